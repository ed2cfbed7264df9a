"""Other ways to feed the same stored samples: the usual normalisations, channels reversed, axes in another order.

Each is what a run with its flags would feed, so that they can be pasted as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from audit.data.dataset import Array, Data
from audit.data.fit import Accepts, Fitting, Way, ways
from audit.data.preprocess import default_scale, preprocess, statistics_axis
from audit.settings import Settings

FEWEST_PIXELS = 64  # numbers in a sample, below which it is no image
DARKEST = 127  # images whose brightest pixel is below this may be anything
MOST_NUMBERS = 64  # one per feature, that a command line is to hold
TRIED = 256  # samples that other preprocessings are tried on, at most
KEPT = 1 << 26  # 64 MB: stored samples behind means and standard deviations, at least those tried
PIXEL = 0.00392157  # 1/255, as a command line has it
Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation, one number or one per channel
NOTHING: Moments = ((), ())

USUAL: dict[int, dict[str, Moments]] = {  # of pixels between 0 and 1, by the number of channels
    1: {"MNIST's mean and std": ((0.1307,), (0.3081,))},
    3: {
        "ImageNet's mean and std": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "CIFAR-10's mean and std": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    },
}


@dataclass(frozen=True)
class Feeding:
    """One way to feed stored samples."""

    name: str
    settings: Settings  # scale, mean and std
    way: Way
    before: Callable[[Array], Array] | None = None  # done to stored samples first
    cure: str = ""  # flags, or words where no flag does it

    def apply(self, x: Array, axes: str) -> Array:
        """Stored samples [n, ...] as they would be fed."""
        x = x if self.before is None else self.before(x)
        with np.errstate(over="ignore"):
            return self.way.apply(preprocess(x, axes, self.settings))


def feeding_now(fitting: Fitting, settings: Settings) -> Feeding:
    """How the samples are fed now."""
    return Feeding("as they are fed", settings, fitting.way)


def normalisations(fitting: Fitting, settings: Settings) -> Iterator[Feeding]:
    """The usual ones, with the samples' axes as they are."""
    data = fitting.stored
    few = data.train.x
    for name, scale, moments in _affine(few, data):
        changed = replace(settings, scale=scale, mean=moments[0] or None, std=moments[1] or None)
        yield Feeding(name, changed, fitting.way, cure=_flags(changed, settings, default_scale(few, data.axes)))


def orders(fitting: Fitting, feeding: Feeding, accepts: Accepts) -> Iterator[Feeding]:
    """Channels reversed and axes in another order that the network accepts, normalised as `feeding` is."""
    data, way = fitting.stored, fitting.way
    sample = data.train.x.shape[1:]
    if "c" in data.axes and sample[data.axes.index("c")] == 3:
        axis = data.axes.index("c") + 1
        word = "rgb" if feeding.settings.channels == "bgr" else "bgr"
        yield _ordered(feeding, f"channels as {word.upper()}", f"--channels {word}", lambda x: np.flip(x, axis))
    words = ("none", "flatten", "flatten-nchw", "flatten-nhwc", "to-nchw", "to-nhwc")
    for other in (one for word in words for one in ways(sample, data.axes, None, word)):
        if other.order != way.order and (other.shape == way.shape or accepts(other.shape)):
            cure = f"{feeding.cure} --reshape {other.word}".strip()
            yield replace(feeding, name=_named(feeding, f"axes by --reshape {other.word}"), way=other, cure=cure)
    if _planes(sample) is not None:
        cure = "store the samples with their axes transposed, not reshaped: each as [channels, height, width]"
        yield _ordered(feeding, "pixel by pixel read as channel by channel", cure, _planar)


def _ordered(feeding: Feeding, name: str, cure: str, before: Callable[[Array], Array]) -> Feeding:
    cure = f"{feeding.cure} {cure}".strip() if cure.startswith("--") else "; ".join(filter(None, (feeding.cure, cure)))
    return replace(feeding, name=_named(feeding, name), cure=cure, before=before)


def _named(feeding: Feeding, name: str) -> str:
    return f"{feeding.name}, {name}" if feeding.cure else name


def _planes(sample: tuple[int, ...]) -> int | None:
    """The side of square colour images of this shape [3, h, h] or [3·h·h]; None for any other."""
    size = math.prod(sample)
    side = math.isqrt(size // 3)
    square = size == 3 * side * side and side >= 8
    return side if square and sample in ((3, side, side), (size,)) else None


def _planar(x: Array) -> Array:
    """Rows that hold [h, w, 3] → the same shape, holding [3, h, w]."""
    side = _planes(x.shape[1:])
    assert side is not None
    return np.ascontiguousarray(np.moveaxis(x.reshape(len(x), side, side, 3), 3, 1)).reshape(x.shape)


# scale, mean and std


def _affine(few: Array, data: Data) -> Iterator[tuple[str, float, Moments]]:
    """Name, scale, and mean and std (empty: none) of each normalisation of samples like these."""
    unit = unit_of(few)
    if unit is None and few.ndim == 2:
        yield from _of_features(few)
        return
    low, high = (np.zeros(1), np.array([1 / unit])) if unit is not None else _extremes(few, data.axes)

    def scaled(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[float, Moments]:
        """(pixels between 0 and 1 − mean) / std, of what is stored."""
        if unit is not None:
            return unit, (() if not any(mean) else mean, () if set(std) == {1.0} else std)
        return 1.0, (_numbers(low + np.array(mean) * (high - low)), _numbers(np.array(std) * (high - low)))

    yield "pixels from 0 to 255", *((1.0, NOTHING) if unit == PIXEL else scaled((0.0,), (1 / 255,)))
    yield "pixels between 0 and 1", *scaled((0.0,), (1.0,))
    yield "pixels between -1 and 1", *scaled((0.5,), (0.5,))
    for name, (mean, std) in USUAL.get(_channels(few, data.axes), {}).items():
        yield name, *scaled(mean, std)
    own_mean, own_std = _moments(few, data.axes)
    scale = unit if unit is not None else 1.0
    yield "standardised by the train samples", scale, (_numbers(scale * own_mean), _numbers(scale * own_std))
    if few.ndim == 2 and few.shape[1] <= MOST_NUMBERS:
        yield next(_of_features(few))


def unit_of(few: Array) -> float | None:
    """What brings images to pixels between 0 and 1; None where they are stored in another range, or are none."""
    if math.prod(few.shape[1:]) < FEWEST_PIXELS or few.min() < 0:
        return None
    if few.dtype == np.uint8 or (DARKEST < few.max() <= 255 and np.array_equal(few, np.floor(few))):
        return PIXEL
    return 1.0 if few.dtype.kind == "f" and 0.5 < few.max() <= 1 else None


def _of_features(few: Array) -> Iterator[tuple[str, float, Moments]]:
    """Columns of a table, one by one."""
    low, high, std = few.min(0), few.max(0), few.std(0, dtype=np.float64)
    wide, std = np.where(high > low, high - low, 1.0), np.where(std > 0, std, 1.0)
    yield "each feature standardised by the train samples", 1.0, (_numbers(few.mean(0)), _numbers(std))
    yield "each feature between 0 and 1", 1.0, (_numbers(low), _numbers(wide))
    yield "each feature between -1 and 1", 1.0, (_numbers(low + wide / 2), _numbers(wide / 2))
    yield "as they are stored", 1.0, NOTHING


def _channels(few: Array, axes: str) -> int:
    return int(few.shape[1 + axes.index("c")]) if "c" in axes else 1


def _others(few: Array, axes: str) -> tuple[int, ...]:
    """All axes but that of the channels."""
    count = _channels(few, axes)
    kept = statistics_axis(count, few.shape[1:], axes) if "c" in axes else None
    return tuple(axis for axis in range(few.ndim) if kept is None or axis != kept + 1)


def _extremes(few: Array, axes: str) -> tuple[Array, Array]:
    rest = _others(few, axes)
    low, high = few.min(rest).astype(np.float64), few.max(rest).astype(np.float64)
    return np.atleast_1d(low), np.atleast_1d(np.where(high > low, high, low + 1.0))


def _moments(few: Array, axes: str) -> tuple[Array, Array]:
    rest = _others(few, axes)
    std = few.std(rest, dtype=np.float64)
    return np.atleast_1d(few.mean(rest, dtype=np.float64)), np.atleast_1d(np.where(std > 0, std, 1.0))


def _numbers(values: Array) -> tuple[float, ...]:
    """As a command line has them."""
    return tuple(float(f"{value:.6g}") for value in values)


def _flags(wanted: Settings, now: Settings, scales: bool) -> str:
    """What to say for `wanted`, where `now` is said; without --scale, uint8 images are divided by 255 if `scales`."""
    parts = []
    usual = PIXEL if scales else 1.0
    if wanted.scale != (now.scale if now.scale is not None else usual):
        parts.append(f"--scale {wanted.scale:g}")
    for name, neutral in (("mean", (0.0,)), ("std", (1.0,))):
        asked, given = getattr(wanted, name) or neutral, getattr(now, name) or neutral
        if len(asked) > MOST_NUMBERS:
            return "give --mean and --std the means and standard deviations of the features in training"
        if asked != given or (asked != neutral):
            parts.append(f"--{name} {','.join(f'{value:g}' for value in asked)}")
    return " ".join(parts)


def few_of(fitting: Fitting) -> Fitting:
    """The fitting on some train samples, spread over all: enough for statistics, and nothing else of what is stored."""
    train = fitting.stored.train
    most = max(TRIED, KEPT // max(1, train.x[:1].nbytes))
    rows = np.linspace(0, len(train) - 1, min(most, len(train))).astype(np.int64)
    some = replace(train, x=train.x[rows], y=train.y[rows], index=rows)
    return Fitting(replace(fitting.stored, train=some, test=some, raw=None), fitting.way)
