"""The two small words that every block of the report is written with."""

from __future__ import annotations

from dataclasses import field
from typing import Any

Interval = tuple[float, float] | None


def says(description: str, **default: Any) -> Any:
    """A field with the sentence that the JSON Schema prints for it."""
    return field(metadata={"description": description}, **default)
