"""The words that blocks and cards are written with, and what they say: JSON, its schema, the paths that it may have."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache, cached_property, reduce
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from audit.errors import UsageError
from audit.maths import Interval as Interval
from audit.report.paths import dotted, join

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails


CHECKED = ("ge", "min_length", "pattern")  # limits of a field that are checked when a report is read
Kind = Literal["number", "percent", "share"]
"""How a number is shown."""


def says(description: str, **given: Any) -> Any:
    """A field with the sentence that the JSON Schema prints for it, and the limits that it is read with."""
    limits = {name: given.pop(name) for name in CHECKED if name in given}
    return field(metadata={"description": description, **limits}, **given)


@dataclass(frozen=True)
class Card:
    """What a number is: the definition card that `gen-audit explain` and the report print."""

    id: str  # the number's name in the JSON, such as "flatness.kappa"
    title: str
    meaning: str  # in plain words
    formula: str
    source: str  # paper and equation
    variant: str = ""  # which of the readings the papers leave open
    normalisation: str = ""
    can_tell: str = ""
    cannot_tell: str = ""
    contradictions: str = ""  # what others measured that speaks against it
    covers: tuple[str, ...] = ()  # ids of other numbers, or of blocks, that the card speaks of too


@dataclass(frozen=True)
class Compared:
    """A number by which two reports are compared."""

    key: str  # its path in the JSON
    name: str
    section: str
    kind: Kind = "number"
    judged: bool = False  # whether lower is better, without doubt
    of_weights: bool = False  # whether it runs over layers or weights, so that it needs the same ones on both sides


# Documents: how a dataclass becomes JSON and is read back, with its schema.


NUMBERS = re.compile(r"\[\n[-+.\deE,\s]+\]")  # a list of numbers, which goes on one line; no string holds a line break
DAMAGE = (  # in a report that has every field
    *("literal_error", "finite_number", "greater_than_equal", "too_short", "string_pattern_mismatch"),
)
KINDS = {float: "number", int: "number", str: "word", bool: "boolean"}


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


def as_json(values: Any) -> str:
    """Stable key order, numbers in full and those of a list on one line, no NaN."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n"


def read_as(kind: type, text: str, name: str, schema: str) -> Any:
    """The JSON of a document as its dataclass, or a sentence that says what is wrong with it and where."""
    from pydantic import ValidationError

    try:
        return adapter_of(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = "is damaged" if first["type"] in DAMAGE else f"is not a {schema} report"
        raise UsageError(f"{name}: {wrong} ({_told(first)}); make it anew with `gen-audit report`.") from error


def _told(error: ErrorDetails) -> str:
    """What is wrong with which value."""
    path: str = reduce(join, error["loc"], "")
    if error["type"] == "literal_error":
        known = re.findall("'([^']*)'", error["ctx"]["expected"])
        return f"{path} is {error['input']!r}, not one of {', '.join(known)}"
    if error["type"] == "finite_number":
        return f"{path} is not a finite number"
    return f"{path or 'the file'}: {error['msg']}"


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


# Every path that a report may have. Members of a list or map are a `*`, which any name may take the place of.


class Known(NamedTuple):
    """One place of a report."""

    path: str
    kind: str | None  # number, word, boolean or any; None for a block or list
    says: str  # its sentence in the JSON Schema


class KnownPaths:
    """Every path that the JSON of a dataclass can have; read off its types when first asked."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @cached_property
    def places(self) -> tuple[Known, ...]:
        """Every number, word, boolean, block and list, outermost first."""
        return tuple(dict.fromkeys(_inside(self._kind, "")))

    @cached_property
    def all(self) -> tuple[str, ...]:
        """Every path that a rule may name: of a number, word or boolean."""
        return tuple(dict.fromkeys(place.path for place in self.places if place.kind))

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        """One pattern for each kind, in which any name may take the place of a `*`."""
        by_kind: dict[str, list[str]] = {}
        for path, kind, _ in self.places:
            by_kind.setdefault(kind or "", []).append(_pattern(path))
        return tuple((re.compile("|".join(paths)), kind) for kind, paths in by_kind.items() if kind)

    def check(self, path: str, where: str) -> None:
        """Refuses a path that no report can have, naming the nearest one that exists."""
        if not self.kinds_of(path):
            raise UsageError(f"{where}: no report has a number {path!r}; the nearest one is {self.nearest(path)!r}.")

    def kinds_of(self, path: str) -> set[str]:
        """What may stand at a path: number, word, boolean, or any; nothing where no report has it."""
        return {kind for pattern, kind in self._patterns if pattern.fullmatch(dotted(path))}

    def without_members(self, path: str) -> str | None:
        """The path with the names of layers, classes and other members left out; None where no report has it."""
        known = [place.path for place in self.places if "*" in place.path]
        fitting = [each.replace(".*", "") for each in known if re.fullmatch(_pattern(each), dotted(path))]
        return max(fitting, key=lambda each: each.count("."), default=None)

    def nearest(self, path: str) -> str:
        """The known path that looks most alike, with the layer's or class's name as the path has it."""
        parts = dotted(path).split(".")
        own = parts[1] if len(parts) > 2 else "*"
        known = {known.replace("*", own, 1) if known.startswith(f"{parts[0]}.*") else known for known in self.all}
        same_key = {name for name in known if name.endswith(f".{parts[-1]}")}
        return difflib.get_close_matches(path, sorted(same_key or known), n=1, cutoff=0.0)[0]


def _pattern(path: str) -> str:
    return re.escape(path).replace(r"\*", ".+")


def _inside(hint: Any, path: str, words: str = "") -> Iterator[Known]:
    """What a value of this type holds; an interval is no number that a rule could name."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for option in of:
            yield from _inside(option, path, words)
    elif is_dataclass(hint):
        yield Known(path, None, words)
        hints = get_type_hints(hint)
        for field in fields(hint):
            yield from _inside(hints[field.name], join(path, field.name), field.metadata.get("description", ""))
    elif origin in (list, dict, tuple):
        yield Known(path, None, words)
        yield from _inside(of[-1], f"{path}.*") if origin is not tuple else ()
    elif hint is not NoneType:
        yield Known(path, "word" if origin is Literal else KINDS.get(hint, "any"), words)
