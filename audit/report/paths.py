"""What a report has at a path: the value, its interval, or the report's own words for why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from audit.maths.shares import Z95, wilson
from audit.report.fields import Interval


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


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of a report or of its JSON, with its path: `layers[0].duality.sigma_g[3]`."""
    if isinstance(node, (list, tuple)):
        for place, item in enumerate(node):
            yield from leaves(item, f"{path}[{place}]")
    elif isinstance(node, Mapping) or is_dataclass(node):
        for name, item in (node if isinstance(node, Mapping) else vars(node)).items():
            yield from leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, node


def not_finite(value: Any) -> bool:
    """Whether a plain value is NaN or infinite."""
    return isinstance(value, float) and not math.isfinite(value)


def find(path: str, document: Mapping[str, Any]) -> list[Found]:
    """What the report has at a path: one entry, or one for each member that a `*` stands for."""
    return list(_walk(path.split("."), (("", document),)))


def _walk(rest: list[str], steps: Steps) -> Iterator[Found]:
    if not rest:
        yield _found(steps)
        return
    members = _members(steps[-1][1])
    if rest[0] == "*":
        for name, member in members.items():
            yield from _walk(rest[1:], (*steps, (name, member)))
        if not members:  # a rule about every layer of a network without layers must not pass unseen
            yield _lost(steps, rest)
        return
    for length in range(len(rest), 0, -1):  # a layer's name may hold dots: the longest name that fits
        name = ".".join(rest[:length])
        if name in members:
            yield from _walk(rest[length:], (*steps, (name, members[name])))
            return
    yield _lost(steps, rest)


def _lost(steps: Steps, rest: list[str]) -> Found:
    return Found(".".join((*_names(steps), *rest)), missing=_reason(steps) or _absent(steps, rest))


def _members(node: Any) -> dict[str, Any]:
    """Children by name: keys of a block, names or ids of a list's blocks, positions in any other list."""
    if isinstance(node, Mapping):
        return dict(node)
    if not isinstance(node, (list, tuple)):
        return {}
    return {_name(item, place): item for place, item in enumerate(node)}


def _name(item: Any, place: int) -> str:
    return str(item.get("name", item.get("id", place)) if isinstance(item, Mapping) else place)


def _names(steps: Steps) -> list[str]:
    return [name for name, _ in steps[1:]]


def _found(steps: Steps) -> Found:
    path, value = ".".join(_names(steps)), steps[-1][1]
    if value is None:
        return Found(path, missing=_reason(steps) or "it is null in this report")
    block = steps[-2][1]
    why = block.get("why") if isinstance(value, bool) and isinstance(block, Mapping) else None
    return Found(path, value, _interval(steps), why=why)


def _interval(steps: Steps) -> Interval:
    """The 95 % interval beside a number: `x_ci95`, or 1.96 times `x_std`; some stand in a `ci95` block further up."""
    (name, value), block = steps[-1], steps[-2][1]
    if isinstance(value, (bool, str)):
        return None
    if not isinstance(block, Mapping):
        return _of_a_list(steps)
    if (beside := block.get(f"{name}_ci95")) is not None:
        return float(beside[0]), float(beside[1])
    if (spread := block.get(f"{name}_std")) is not None:
        return value - Z95 * spread, value + Z95 * spread
    return _apart(steps) or _of_a_share(name, value, block)


def _of_a_list(steps: Steps) -> Interval:
    """`duality.sigma_g.3` has its standard error in `duality.sigma_g_std.3`."""
    (place, value), (name, _), (_, block) = steps[-1], steps[-2], steps[-3]
    spreads = _members(block.get(f"{name}_std")) if isinstance(block, Mapping) else {}
    spread = spreads.get(place)
    return None if spread is None else (value - Z95 * spread, value + Z95 * spread)


def _apart(steps: Steps) -> Interval:
    """`duality.sharp.share` has its interval in `duality.ci95.sharp_share`."""
    for depth in range(1, len(steps)):
        block = steps[-1 - depth][1]
        intervals = block.get("ci95") if isinstance(block, Mapping) else None
        inner = intervals.get("_".join(_names(steps)[-depth:])) if isinstance(intervals, Mapping) else None
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
    for _, block in reversed(steps):
        own = (block.get(f"{name}_skipped") or block.get("skipped")) if isinstance(block, Mapping) else None
        if own:
            return str(own).rstrip(".")
    return None


def _absent(steps: Steps, rest: list[str]) -> str:
    """Where the way ends: at a layer or class that this model does not have, or at a block that was not made."""
    place, members = ".".join(_names(steps)), list(_members(steps[-1][1]))
    if not members:
        return f"this report has no {place}"
    for layer in steps[0][1].get("passed_by", ()) if place == "layers" else ():
        if ".".join(rest).startswith(f"{layer['name']}."):
            return f"{layer['name']} was passed by: {layer['why']}"
    return f"{place} of this report has no {rest[0]!r}, only {', '.join(members[:8])}{', …' if members[8:] else ''}"
