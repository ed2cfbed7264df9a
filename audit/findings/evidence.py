"""Finds what stands at a path of the report, so that a finding can only cite what is really there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from typing import Any

from audit.report import Report

STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def value_at(report: Report, path: str) -> Any:
    """What the report has at a path such as `layers[0].duality.sharp.share`."""
    here: Any = report
    for name, place in STEP.findall(path):
        here = here[int(place)] if place else getattr(here, name)
    return here


def cited(report: Report, paths: Iterable[str]) -> dict[str, Any]:
    """Every path with its value, as in the JSON; a number that does not exist is no evidence and is left out."""
    found = {path: value_at(report, path) for path in paths}
    return {path: _plain(value) for path, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
