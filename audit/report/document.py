"""Documents: what a comparison and a history have in common, and how any dataclass is read from JSON and described."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from audit.report.fields import says

if TYPE_CHECKING:
    from pydantic import TypeAdapter


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


def schema_of(kind: type, name: str) -> dict[str, Any]:
    """The JSON Schema of a dataclass whose field `schema` says `name`."""
    schema = adapter_of(kind).json_schema()
    schema["properties"]["schema"] = {"const": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':schema:', 1).replace('/', ':')}",
        **schema,
    }


def adapter_of(kind: type) -> TypeAdapter[Any]:
    """What reads a dataclass from JSON; made once, since that takes longer than reading a report with it."""
    return _adapter(kind)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
