"""Which paths a rule may name: every number, word and boolean that the JSON Schema of the report allows.

A path is written as in the JSON, with dots. Members of a list go by their name or id, or by their position:
`layers.fc2.flatness.kappa`, `gap.per_class.cat.test_error`, `network.sensitivity.bounds.prop-3.4.tightness`. A `*`
stands for each member.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from audit.errors import UsageError

KINDS = {"number": "number", "integer": "number", "string": "word", "boolean": "boolean"}


def check_path(path: str, where: str) -> None:
    """Refuses a path that no report can have, naming the nearest one that exists."""
    if not kinds_of(path):
        raise UsageError(f"{where}: no report has a number {path!r}; the nearest one is {_nearest(path)!r}.")


def kinds_of(path: str) -> set[str]:
    """What may stand at a path: number, word, boolean, or any; nothing where no report has it."""
    return {kind for pattern, kind in _patterns() if pattern.fullmatch(path)}


def without_members(path: str) -> str | None:
    """The path with the names of layers, classes and other members left out; None where no report has it.

    >>> without_members("layers.block.0.fc.flatness.kappa"), without_members("gap.per_class.cat.test_error")
    ('layers.flatness.kappa', 'gap.per_class.test_error')
    """
    patterns = ((known, re.escape(known).replace(r"\*", ".+")) for known in known_paths() if "*" in known)
    return next((known.replace(".*", "") for known, pattern in patterns if re.fullmatch(pattern, path)), None)


@cache
def known_paths() -> tuple[str, ...]:
    """Every path that the schema allows, with `*` for each member of a list or map."""
    return tuple(dict.fromkeys(path for path, _ in _known_leaves()))


@cache
def _known_leaves() -> tuple[tuple[str, str], ...]:
    from audit.report import json_schema

    schema = json_schema()
    return tuple(dict.fromkeys(_leaves(schema, schema["$defs"], ())))


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


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """One pattern for each kind, in which any name may take the place of a `*`."""
    by_kind: dict[str, list[str]] = {}
    for path, kind in _known_leaves():
        by_kind.setdefault(kind, []).append(re.escape(path).replace(r"\*", ".+"))
    return tuple((re.compile("|".join(paths)), kind) for kind, paths in by_kind.items())


def _nearest(path: str) -> str:
    """The known path that looks most alike, with the layer's or class's name as the path has it.

    >>> _nearest("layers.fc2.kappa")
    'layers.fc2.flatness.kappa'
    """
    parts = path.split(".")
    own = parts[1] if len(parts) > 2 else "*"
    known = {known.replace("*", own, 1) if known.startswith(f"{parts[0]}.*") else known for known in known_paths()}
    same_key = {name for name in known if name.endswith(f".{parts[-1]}")}
    return difflib.get_close_matches(path, sorted(same_key or known), n=1, cutoff=0.0)[0]
