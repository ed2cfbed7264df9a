"""Lists of a report that belong together, such as a number for each direction and its standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.report.paths import children, join

EQUAL = (("sigma_g", "sigma_w", "c", "contribution", "eigenvalues"), ("predictions", "residuals"))
STANDARD_ERROR = "_std"
RUNNING = ("cumulative_w",)  # of the same length as sigma_g, or left out


def length_faults(value: Any, path: str = "") -> Iterator[str]:
    """Where two lists that are read side by side are not of one length; each fault with its path."""
    if isinstance(value, Mapping):
        yield from _unequal(value, path)
    for name, child in (children(value) or {}).items():
        if children(child) is not None:
            yield from length_faults(child, join(path, name))


def _unequal(block: Mapping[str, Any], path: str) -> Iterator[str]:
    sizes = {name: len(each) for name, each in block.items() if isinstance(each, list)}
    for group in EQUAL:
        if len({sizes[name] for name in group if name in sizes}) > 1:
            yield f"{path}: {' and '.join(name for name in group if name in sizes)} are not of one length"
    for name, size in sizes.items():
        partner = "sigma_g" if name in RUNNING else name.removesuffix(STANDARD_ERROR)
        if partner != name and size and size != sizes.get(partner, size):
            yield f"{path}: {partner} and {name} are not of one length"
    if "edges" in sizes and "counts" in sizes and sizes["edges"] != sizes["counts"] + 1:
        yield f"{path}: edges and counts do not fit"
    for place, width in enumerate(block["widths"] if "widths" in sizes and "sigma_g" in sizes else ()):
        if not 1 <= width["direction"] <= sizes["sigma_g"]:
            yield f"{path}.widths[{place}]: there is no direction {width['direction']}"
