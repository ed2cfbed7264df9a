"""A report laid beside the slow reference, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from tolerances import AUDITED, WALKED

FOUND_BY_WALKING = ("width",)
NOISE = 1e-9  # an entry below this share of its list's largest is rounding
ROUNDED = 1e-14  # … and a number, a difference of losses, below this share of the largest of its kind
PER_DIRECTION = ("sigma_g", "sigma_w", "c", "contribution")
HESSIAN_ROUNDING = 1e-15  # relative error of a Hessian's entries; eigenvectors are off by it over their values' gap


def disagreements(ours: Any, theirs: Any, path: str = "", largest: dict[str, float] | None = None) -> list[str]:
    """Where the report differs from the reference, which says less: what it names must be there, and equal.

    `largest`: of an entry of a list, the largest number under each key in that list.
    """
    if isinstance(theirs, dict):
        if "id" in theirs:
            path = f"{path}({theirs['id']})"
        if ours is None:
            return [f"{path}: missing"]
        lines = []
        for key, value in theirs.items():
            if key in PER_DIRECTION and isinstance(value, list) and value:
                lines += _apart_in_list(ours[key], value, f"{path}.{key}", _looseness(theirs, key))
            else:
                lines += disagreements(ours[key], value, f"{path}.{key}", largest)
        return lines
    if isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        if "id" in theirs[0]:
            ours = [next(one for one in ours if one["id"] == other["id"]) for other in theirs]
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} entries, not {len(theirs)}"]
        pairs, among = zip(ours, theirs, strict=True), None if "id" in theirs[0] else _largest(theirs)
        return [line for place, pair in enumerate(pairs) for line in disagreements(*pair, f"{path}[{place}]", among)]
    if isinstance(theirs, list):
        return _apart_in_list(ours, theirs, path)
    if theirs is None or isinstance(theirs, (str, int)) or ours is None:
        return [] if ours == theirs else [f"{path}: {ours!r}, not {theirs!r}"]
    key = path.split(".")[-1]
    noise = max(1e-12 * AUDITED, ROUNDED * (largest or {}).get(key, 0.0))
    tolerance = WALKED if key in FOUND_BY_WALKING else AUDITED
    return [] if abs(ours - theirs) <= max(tolerance * abs(theirs), noise) else [f"{path}: {ours!r}, not {theirs!r}"]


def _largest(entries: list[dict[str, Any]]) -> dict[str, float]:
    """By key, the largest number that the entries have there."""
    keys = {key for entry in entries for key, value in entry.items() if isinstance(value, float)}
    return {key: max(abs(entry[key]) for entry in entries if isinstance(entry.get(key), float)) for key in keys}


def _apart_in_list(ours: list[Any], theirs: list[Any], path: str, loose: list[float] | None = None) -> list[str]:
    """`loose`: by which share of the largest entry each may differ."""
    if ours is None or len(ours) != len(theirs) or (theirs and isinstance(theirs[0], str) and ours != theirs):
        return [f"{path}: {ours!r}, not {theirs!r}"]
    if not path.endswith(".c") and [a is None for a in ours] != [b is None for b in theirs]:  # c alone may be undefined
        return [f"{path}: {ours!r}, not {theirs!r}"]
    rows = zip(ours, theirs, loose or [NOISE] * len(theirs), strict=True)
    known = [(a, b, extra) for a, b, extra in rows if a is not None]
    scale = max((abs(b) for _, b, _ in known), default=0.0)
    apart = [(a, b) for a, b, extra in known if not abs(a - b) <= max(AUDITED * abs(b), extra * scale)]
    return [f"{path}: {len(apart)} of {len(theirs)} differ, such as {apart[0]}"] if apart else []


def _looseness(block: dict[str, Any], key: str) -> list[float]:
    """How far a direction may be off in any arithmetic of 16 digits: rounding over the gap to the next eigenspace.

    A correlation is a covariance over two deviations: it is as uncertain as the smaller of these makes it.
    """
    values = np.array(block["eigenvalues"]) / max(map(abs, block["eigenvalues"]))
    gaps = np.abs(values[:, None] - values[None])
    loose = NOISE + HESSIAN_ROUNDING / np.where(gaps > 1e-10, gaps, np.inf).min(1)
    if key == "c":
        deviations = (np.array(block[name]) for name in ("sigma_g", "sigma_w"))
        loose = loose * sum(each.max() / np.maximum(each, 1e-300) for each in deviations)
    return loose.tolist()
