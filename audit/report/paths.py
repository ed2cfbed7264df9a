"""The one way to walk a report and to name what stands in it. A `Report` and its JSON are walked alike.

A path is written with dots. Members of a list go by their position in brackets, or by their name or id:
`layers[0].duality.sharp.share`, `layers.fc2.flatness.kappa`, `network.sensitivity.bounds.prop-3.4.tightness`. A `*`
stands for each member.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from audit.maths import Interval
from audit.maths.shares import Z95, wilson

PLAIN = (float, int, str)
STEP = re.compile(r"(?=\.|\[\d+\])")  # where a step of a path begins


@dataclass(frozen=True)
class Found:
    """The value at one path, wildcards filled in."""

    path: str
    value: Any = None
    interval: Interval = None
    missing: str | None = None  # why there is no value
    why: str | None = None  # the report's own words for a yes or no


Steps = tuple[tuple[str, Any], ...]
"""The way to a value: the name of each step and what is there, outermost first."""


def steps_of(path: str) -> list[str]:
    """The steps of a path in either spelling.

    >>> steps_of("layers[0].duality.sharp"), steps_of("layers.fc2.flatness")
    (['layers', '[0]', '.duality', '.sharp'], ['layers', '.fc2', '.flatness'])
    """
    return [step for step in STEP.split(path) if step]


def dotted(path: str) -> str:
    """A path with its positions as names.

    >>> dotted("layers[0].duality.sigma_g[3]")
    'layers.0.duality.sigma_g.3'
    """
    return ".".join(step.strip(".[]") if step.startswith("[") else step.removeprefix(".") for step in steps_of(path))


def join(path: str, step: str | int) -> str:
    """The path one step further: a name behind a dot, a position in brackets."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


def children(node: Any) -> Mapping[Any, Any] | None:
    """What a block holds by name, and a list by position; None for a plain value."""
    if node is None or isinstance(node, PLAIN):  # most of a report, and asked first, since the last question is slow
        return None
    if isinstance(node, (list, tuple)):
        return dict(enumerate(node))
    if is_dataclass(node):
        return vars(node)
    return node if isinstance(node, Mapping) else None


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value, with its path: `layers[0].duality.sigma_g[3]`."""
    inside = children(node)
    if inside is None:
        yield path, node
        return
    for step, item in inside.items():
        yield from leaves(item, join(path, step))


def not_finite(value: Any) -> bool:
    """Whether a plain value is NaN or infinite."""
    return isinstance(value, float) and not math.isfinite(value)


def find(path: str, report: Any) -> list[Found]:
    """What the report has at a path: one entry, or one for each member that a `*` stands for."""
    return [_lost(steps, rest) if rest else _found(steps) for steps, rest in _ways(steps_of(path), (("", report),))]


def value_at(path: str, report: Any) -> Any:
    """What stands at a path, null or not; an error where the report has no such place."""
    steps, rest = next(_ways(steps_of(path), (("", report),)))
    if rest:
        raise LookupError(f"{path}: {_absent(steps, rest)}")
    return steps[-1][1]


def _ways(rest: list[str], steps: Steps) -> Iterator[tuple[Steps, list[str]]]:
    """Each way that a path leads, and the steps for which there is none."""
    if not rest:
        yield steps, rest
        return
    node = steps[-1][1]
    members = _members(node)
    if rest[0] in ("*", ".*"):
        for name, member in members.items():
            yield from _ways(rest[1:], (*steps, (name, member)))
        if not members:  # a rule about every layer of a network without layers must not pass unseen
            yield steps, rest
        return
    for length in range(len(rest), 0, -1):  # a layer's name may hold dots: the longest name that fits
        name = "".join(rest[:length]).removeprefix(".")
        if name in members:
            yield from _ways(rest[length:], (*steps, (name, members[name])))
            return
    place = int(rest[0][1:-1]) if rest[0].startswith("[") else None
    if place is not None and isinstance(node, (list, tuple)) and place < len(node):
        yield from _ways(rest[1:], (*steps, (_name(node[place], place), node[place])))
        return
    yield steps, rest


def _members(node: Any) -> Mapping[str, Any]:
    """Children by name: fields of a block, names or ids of a list's blocks, positions in any other list."""
    inside = children(node) or {}
    return {_name(item, place): item for place, item in inside.items()} if isinstance(node, (list, tuple)) else inside


def _name(item: Any, place: int) -> str:
    block = _block(item)
    return str(block.get("name", block.get("id", place)))


def _block(node: Any) -> Mapping[str, Any]:
    """The fields of a block; none where there is another thing."""
    return {} if isinstance(node, (list, tuple)) else children(node) or {}


def _lost(steps: Steps, rest: list[str]) -> Found:
    path = "".join((".".join(_names(steps)), *rest)) if len(steps) > 1 else "".join(rest)
    return Found(path, missing=_reason(steps) or _absent(steps, rest))


def _names(steps: Steps) -> list[str]:
    return [name for name, _ in steps[1:]]


def _found(steps: Steps) -> Found:
    path, value = ".".join(_names(steps)), steps[-1][1]
    if value is None:
        return Found(path, missing=_reason(steps) or "it is null in this report")
    why = _block(steps[-2][1]).get("why") if isinstance(value, bool) else None
    return Found(path, value, _interval(steps), why=why)


def _interval(steps: Steps) -> Interval:
    """The 95 % interval beside a number: `x_ci95`, or 1.96 times `x_std`; some stand in a `ci95` block further up."""
    (name, value), block = steps[-1], _block(steps[-2][1])
    if isinstance(value, (bool, str)):
        return None
    if not block:
        return _of_a_list(steps)
    if (beside := block.get(f"{name}_ci95")) is not None:
        return float(beside[0]), float(beside[1])
    if (spread := block.get(f"{name}_std")) is not None:
        return value - Z95 * spread, value + Z95 * spread
    return _apart(steps) or _of_a_share(name, value, block)


def _of_a_list(steps: Steps) -> Interval:
    """`duality.sigma_g.3` has its standard error in `duality.sigma_g_std.3`."""
    (place, value), (name, _), (_, block) = steps[-1], steps[-2], steps[-3]
    spread = _members(_block(block).get(f"{name}_std")).get(place)
    return None if spread is None else (value - Z95 * spread, value + Z95 * spread)


def _apart(steps: Steps) -> Interval:
    """`duality.sharp.share` has its interval in `duality.ci95.sharp_share`."""
    for depth in range(1, len(steps)):
        intervals = _block(_block(steps[-1 - depth][1]).get("ci95"))
        inner = intervals.get("_".join(_names(steps)[-depth:]))
        if inner is not None:
            return float(inner[0]), float(inner[1])
    return None


def _of_a_share(name: str, value: float, block: Mapping[str, Any]) -> Interval:
    """An accuracy is 1 minus an error; a class's error is a share of its samples."""
    split, _, kind = name.partition("_")
    error = block.get(f"{split}_error_ci95")
    if kind == "accuracy" and error is not None:
        return 1 - error[1], 1 - error[0]
    samples = block.get(f"{split}_samples")
    return wilson(value, samples) if kind == "error" and samples else None


def _reason(steps: Steps) -> str | None:
    """The report's own words for why a number is null: the nearest `skipped` on the way up."""
    name = steps[-1][0]
    for _, node in reversed(steps):
        block = _block(node)
        own = block.get(f"{name}_skipped") or block.get("skipped")
        if own:
            return str(own).rstrip(".")
    return None


def _absent(steps: Steps, rest: list[str]) -> str:
    """Where the way ends: at a layer or class that this model does not have, or at a block that was not made."""
    place, members = ".".join(_names(steps)), list(_members(steps[-1][1]))
    lost = "".join(rest).removeprefix(".")
    if not members:
        return f"this report has no {place}"
    for layer in map(_block, _block(steps[0][1]).get("passed_by", ()) if place == "layers" else ()):
        if lost.startswith(f"{layer['name']}."):
            return f"{layer['name']} was passed by: {layer['why']}"
    first = rest[0].removeprefix(".")
    return f"{place} of this report has no {first!r}, only {', '.join(members[:8])}{', …' if members[8:] else ''}"
