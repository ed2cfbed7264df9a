"""The paths that a report may have, read off its JSON Schema: every number, word and boolean a rule may name.

A path is written as in the JSON, with dots. Members of a list go by their name or id, or by their position:
`layers.fc2.flatness.kappa`, `gap.per_class.cat.test_error`, `network.sensitivity.bounds.prop-3.4.tightness`. A `*`
stands for each member.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from audit.errors import UsageError
from audit.report.document import schema_of

KINDS = {"number": "number", "integer": "number", "string": "word", "boolean": "boolean"}


class KnownPaths:
    """Every path that the JSON of a dataclass can have; read off its schema when first asked."""

    def __init__(self, kind: type, name: str) -> None:
        self._kind, self._name = kind, name

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        return schema_of(self._kind, self._name)

    @cached_property
    def all(self) -> tuple[str, ...]:
        """Every path, with `*` for each member of a list or map."""
        return tuple(dict.fromkeys(path for path, _ in self._leaves))

    @cached_property
    def _leaves(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys(_leaves(self.schema, self.schema["$defs"], ())))

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        """One pattern for each kind, in which any name may take the place of a `*`."""
        by_kind: dict[str, list[str]] = {}
        for path, kind in self._leaves:
            by_kind.setdefault(kind, []).append(re.escape(path).replace(r"\*", ".+"))
        return tuple((re.compile("|".join(paths)), kind) for kind, paths in by_kind.items())

    def check(self, path: str, where: str) -> None:
        """Refuses a path that no report can have, naming the nearest one that exists."""
        if not self.kinds_of(path):
            raise UsageError(f"{where}: no report has a number {path!r}; the nearest one is {self.nearest(path)!r}.")

    def kinds_of(self, path: str) -> set[str]:
        """What may stand at a path: number, word, boolean, or any; nothing where no report has it."""
        return {kind for pattern, kind in self._patterns if pattern.fullmatch(path)}

    def without_members(self, path: str) -> str | None:
        """The path with the names of layers, classes and other members left out; None where no report has it."""
        patterns = ((known, re.escape(known).replace(r"\*", ".+")) for known in self.all if "*" in known)
        return next((known.replace(".*", "") for known, pattern in patterns if re.fullmatch(pattern, path)), None)

    def nearest(self, path: str) -> str:
        """The known path that looks most alike, with the layer's or class's name as the path has it."""
        parts = path.split(".")
        own = parts[1] if len(parts) > 2 else "*"
        known = {known.replace("*", own, 1) if known.startswith(f"{parts[0]}.*") else known for known in self.all}
        same_key = {name for name in known if name.endswith(f".{parts[-1]}")}
        return difflib.get_close_matches(path, sorted(same_key or known), n=1, cutoff=0.0)[0]


def _leaves(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Each path and what the schema says stands there."""
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]]
    for option in node.get("anyOf", ()):
        yield from _leaves(option, definitions, path)
    children = _children(node)
    for name, child in children.items():
        yield from _leaves(child, definitions, (*path, name))
    if not children and "anyOf" not in node and node.get("type") not in ("null", "array"):  # an interval is an array
        yield ".".join(path), KINDS.get(node.get("type", "any"), "any")


def _children(node: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    children = dict(node.get("properties", {}))
    for members in (node.get("items"), node.get("additionalProperties")):
        if members:
            children["*"] = members if isinstance(members, Mapping) else {}
    return children
