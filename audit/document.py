"""`Document`: what a comparison and a history have in common, their head and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from audit.fields import says


@dataclass(frozen=True, kw_only=True)
class Document:
    """A result that is written as JSON, from one call of the tool."""

    schema: str
    created: str
    version: str = says("of gen-audit")
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, as in the JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """Stable key order, numbers in full, no NaN."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
