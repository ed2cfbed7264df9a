"""Small plots as SVG, without a plotting library: lines with error bars, or points, in panels side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 250, 200  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 24, 36  # of its frame
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")
STYLE = (
    "text{font:11px sans-serif;fill:#1c2024}.q{fill:#555e68}.f{fill:none;stroke:#aab1b9}"
    "path,line{fill:none;stroke-width:1.4}.c0{stroke:#1c2024;fill:#1c2024}.c1{stroke:#1f5fa8;fill:#1f5fa8}"
    ".c2{stroke:#1b6e3c;fill:#1b6e3c}.c3{stroke:#a4262c;fill:#a4262c}.c4{stroke:#8a4b00;fill:#8a4b00}"
    ".c5{stroke:#7a3e9d;fill:#7a3e9d}path{fill:none!important}text.c0,text.c1,text.c2,text.c3,text.c4,text.c5"
    "{stroke:none}"
)


@dataclass(frozen=True)
class Series:
    """Points (x, y), joined by a line unless they are scattered; `spread` is drawn above and below."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    scattered: bool = False


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    x_label: str
    series: tuple[Series, ...]
    x_ticks: Sequence[str] = ()  # words at x = 0, 1, 2, …, instead of numbers
    log: str = ""  # "x", "y" or "xy"
    names: str = "above"  # where the names of the series stand: above, or in the lower left or right corner


def figure(panels: Sequence[Panel], columns: int, title: str) -> str:
    """The panels in rows of so many columns."""
    rows = math.ceil(len(panels) / columns)
    parts = [
        f'<g transform="translate({place % columns * WIDTH} {place // columns * HEIGHT})">{"".join(_panel(panel))}</g>'
        for place, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}" '
        f'width="{columns * WIDTH}" role="img"><title>{escape(title)}</title><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


@dataclass(frozen=True)
class Scale:
    """From numbers to places along one side of the frame."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        """Where a number stands, in tenths of a pixel."""
        a, b, v = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return round(self.start + (v - a) / (b - a) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Powers of ten, with 2 and 5 between them where there are few; or up to five round numbers."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            between, every = ((1, 2, 5) if last - first < 3 else (1,)), max(1, (last - first) // 4)
            each = [part * 10.0**power for power in range(first, last + 1, every) for part in between]
            return [value for value in each if self.low <= value <= self.high]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        step *= next(part for part in (0.2, 0.5, 1, 2) if (self.high - self.low) / (part * step) <= 5)
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _panel(panel: Panel) -> Iterator[str]:
    x, y = _scales(panel)
    yield f'<rect class="f" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"/>'
    yield f'<text x="{LEFT}" y="15">{escape(panel.title)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="q" x="{middle:g}" y="{HEIGHT - 4}" text-anchor="middle">{escape(panel.x_label)}</text>'
    named = list(enumerate(panel.x_ticks)) if panel.x_ticks else [(tick, _short(tick)) for tick in x.ticks()]
    for place, word in named:
        yield f'<text class="q" x="{x(place):g}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{escape(word)}</text>'
    for tick in y.ticks():
        yield f'<text class="q" x="{LEFT - 4}" y="{y(tick) + 4:g}" text-anchor="end">{_short(tick)}</text>'
    for place, series in enumerate(panel.series):
        yield from _drawn(series, x, y, COLOURS[place])
    yield from _names(panel)


def _names(panel: Panel) -> Iterator[str]:
    """Above: side by side, in the room that the scale leaves; else below each other in a corner."""
    across, count = LEFT + 6.0, len(panel.series)
    for place, series in enumerate(panel.series):
        down, anchor = TOP + 13.0, "start"
        if panel.names != "above":
            down = HEIGHT - BOTTOM - 6.0 - 13 * (count - 1 - place)
            across, anchor = (LEFT + 6.0, "start") if panel.names == "left" else (WIDTH - RIGHT - 6.0, "end")
        at = f'x="{across:g}" y="{down:g}" text-anchor="{anchor}"'
        yield f'<text class="{COLOURS[place]}" {at}>{escape(series.name)}</text>'
        across += 6 + 5.6 * len(series.name)


def _scales(panel: Panel) -> tuple[Scale, Scale]:
    xs = [value for series in panel.series for value in series.x]
    ys = [value + sign * by for s in panel.series for value, by in zip(s.y, s.spread or [0.0] * len(s.y), strict=True)
          for sign in (-1, 1) if value + sign * by > 0 or "y" not in panel.log]  # fmt: skip
    ends = (-0.3, len(panel.x_ticks) - 0.7) if panel.x_ticks else _wider(min(xs), max(xs), "x" in panel.log)
    low, high = _wider(min(ys), max(ys), "y" in panel.log)
    if "y" not in panel.log and min(ys) >= 0:
        low = 0.0
    if panel.names == "above":
        high = high * (high / low) ** 0.15 if "y" in panel.log else high + 0.15 * (high - low)
    return (
        Scale(*ends, LEFT, WIDTH - RIGHT, "x" in panel.log),
        Scale(low, high, HEIGHT - BOTTOM, TOP, "y" in panel.log),
    )


def _wider(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        room = (high / low) ** 0.05 if high > low else 2.0
        return low / room, high * room
    room = (high - low) * 0.05 or 1.0
    return low - room, high + room


def _drawn(series: Series, x: Scale, y: Scale, colour: str) -> Iterator[str]:
    points = [(x(a), y(b)) for a, b in zip(series.x, series.y, strict=True)]
    if series.scattered:
        yield from (f'<circle class="{colour}" cx="{a:g}" cy="{b:g}" r="1.6"/>' for a, b in points)
        return
    yield f'<path class="{colour}" d="M{" L".join(f"{a:g} {b:g}" for a, b in points)}"/>'
    for a, value, by in zip(series.x, series.y, series.spread, strict=False):
        ends = y(value - by), y(value + by)
        yield f'<line class="{colour}" x1="{x(a):g}" x2="{x(a):g}" y1="{ends[0]:g}" y2="{ends[1]:g}"/>'


def _short(value: float) -> str:
    return f"{value:.6g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"1e{round(math.log10(abs(value)))}"
