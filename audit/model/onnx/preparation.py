"""Samples as they are stored, text and missing values included, through the preprocessing of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto

from audit.errors import CellError, ModelError
from audit.model.base import Preparation
from audit.model.onnx.graph import Array, attributes, tensor_type, walk
from audit.model.onnx.prefix import Prefix
from audit.model.onnx.runtime import RuntimeFailure, Session, as_scores, numpy_dtype

MISSING_TEXT = ("", "nan", "None", "NaN", "<NA>")
"""How encoders were told of missing text; the first that the file knows is used, else the empty one."""
ABSENT = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", "None")
"""Texts that mean that there is no value, unless the file knows them as a category."""


@dataclass(frozen=True)
class RawInput:
    """One input of the file and the raw columns that it takes."""

    name: str
    element: int
    first: int
    width: int

    @property
    def kind(self) -> str:
        """What its columns hold."""
        if self.element == TensorProto.STRING:
            return "text"
        return "whole number" if numpy_dtype(self.element).kind in "iub" else "number"


class Feeds:
    """Raw samples [n, columns] as onnxruntime takes them, input by input in the type that the file declares."""

    def __init__(self, model: ModelProto, inputs: Sequence[RawInput]):
        self.inputs = inputs
        self.names = column_names(inputs)
        self.known = known_texts(model.graph)
        self.missing = next((text for text in MISSING_TEXT if text in self.known), "")

    def __call__(self, raw: Array) -> dict[str, Array]:
        """By the name of the input."""
        return {one.name: self._of(one, raw) for one in self.inputs}

    def _of(self, one: RawInput, raw: Array) -> Array:
        columns = raw[:, one.first : one.first + one.width]
        if one.kind == "text":
            return np.array([[self._text(value) for value in row] for row in columns], object).reshape(columns.shape)
        numbers = _numbers(columns, self.cell(one))
        if one.kind == "whole number" and not (fits := np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
            row, place = np.argwhere(~fits)[0]
            raise self.cell(one)(int(row), int(place), columns[row, place])
        return numbers.astype(numpy_dtype(one.element))

    def cell(self, one: RawInput) -> Callable[[int, int, Any], CellError]:
        """The error for a value of this input, by its row and its place among the input's columns."""

        def error(row: int, place: int, value: Any) -> CellError:
            held = "no value" if is_missing(value) else repr(value)
            reason = f"but the model's input {one.name!r} takes {one.kind}s; correct or remove such rows"
            return CellError(row, self.names[one.first + place], held, reason)

        return error

    def _text(self, value: Any) -> str:
        return self.missing if is_missing(value) and value not in self.known else str(value)


def _numbers(columns: Array, error: Callable[[int, int, Any], CellError]) -> Array:
    """Cells [n, d] as float64, NaN where there is no value; one by one where some of them are no numbers at once."""
    try:
        return columns.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        out = np.full(columns.shape, np.nan)
    for (row, place), value in np.ndenumerate(columns):
        if is_missing(value):
            continue
        try:
            out[row, place] = float(value)
        except (TypeError, ValueError, OverflowError) as failure:
            raise error(row, place, value) from failure
    return out


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, what pandas puts there, or a text that says so."""
    if isinstance(value, str):
        return value in ABSENT
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def column_names(inputs: Sequence[RawInput]) -> tuple[str, ...]:
    """The raw columns as the file calls them; those of a matrix are numbered."""
    lone = all(one.width == 1 for one in inputs)
    return tuple(one.name if lone else f"{one.name}[{place}]" for one in inputs for place in range(one.width))


def known_texts(graph: GraphProto) -> set[str]:
    """Every text that stands in the graph: categories, keys of encoders, fill values."""
    texts: set[str] = set()
    for node in walk(graph):
        for value in attributes(node).values():
            items = value if isinstance(value, list) else [value]
            texts.update(item.decode() for item in items if isinstance(item, bytes))
    for tensor in graph.initializer:
        texts.update(text.decode() for text in tensor.string_data)
    return texts


def raw_inputs(model: ModelProto) -> list[RawInput]:
    """The file's inputs that reach the scores, with the raw columns of each."""
    found: list[RawInput] = []
    for value in model.graph.input:
        kind = tensor_type(value)
        first = sum(one.width for one in found)
        found.append(RawInput(value.name, kind.element, first, (kind.shape or (0, 0))[1] or 0))
    return found


def preparation_of(path: Path, prefix: Prefix) -> Preparation:
    """The prefix in onnxruntime."""
    inputs = raw_inputs(prefix.model)
    return Preparation(
        kinds=tuple(one.kind for one in inputs for _ in range(one.width)),
        names=column_names(inputs) if all(one.width == 1 for one in inputs) else None,
        columns=prefix.columns,
        run=_Run(path, prefix, Feeds(prefix.model, inputs)),
    )


class _Run:
    """Raw samples [n, columns] → the network's input [n, k]; opened when first called."""

    def __init__(self, path: Path, prefix: Prefix, feeds: Feeds):
        self._path, self._prefix, self._feeds = path, prefix, feeds
        self._session: Session | None = None

    def __call__(self, raw: Array) -> Array:
        fed = self._feeds(raw)
        self._session = self._session or self._opened()
        try:
            return self._once(fed)
        except RuntimeFailure as failure:
            raise self._blamed(raw, str(failure).rpartition("Status Message: ")[2]) from failure

    def _opened(self) -> Session:
        try:
            return Session(self._prefix.model)
        except RuntimeFailure as failure:
            raise ModelError(
                f"{self._path}: onnxruntime cannot run the model's preprocessing ({failure}); export it with float "
                "inputs, or with another opset."
            ) from failure

    def _once(self, fed: dict[str, Array]) -> Array:
        assert self._session is not None  # `__call__` has opened it
        return np.asarray(self._session.run([self._prefix.value], fed)[0])

    def _runs(self, raw: Array) -> bool:
        try:
            self._once(self._feeds(raw))
        except RuntimeFailure:
            return False
        return True

    def _blamed(self, raw: Array, reason: str) -> CellError | ModelError:
        """The value that the prefix stops at: the one without which its row, else refused, is taken."""
        taken = [self._runs(raw[row : row + 1]) for row in range(len(raw))]
        if True in taken and False in taken:
            row, good = taken.index(False), taken.index(True)
            for column, name in enumerate(self._feeds.names):
                mended = raw[row : row + 1].copy()
                mended[0, column] = raw[good, column]
                if self._runs(mended):
                    why = f"which the model's preprocessing does not take ({reason}); correct or remove such rows"
                    return CellError(row, name, repr(raw[row, column]), why)
        return ModelError(
            f"{self._path}: onnxruntime cannot run the model's preprocessing ({reason}); check that the data are those "
            "that the pipeline was fitted on."
        )


class WholeFile:
    """The user's own file in onnxruntime: raw samples [n, columns] to the audited output; opened when first called."""

    def __init__(self, path: Path, model: ModelProto, prefix: Prefix, output: str, classes: list[Any]):
        self._path, self._output, self._classes = path, output, classes
        self._feeds = Feeds(prefix.model, raw_inputs(prefix.model))
        fed = {one.name for one in self._feeds.inputs} | {tensor.name for tensor in model.graph.initializer}
        self._others = [value for value in model.graph.input if value.name not in fed]
        self._session: Session | None = None

    def __call__(self, raw: Array) -> Array:
        """The file's answer; inputs that the output does not depend on are given zeros, or empty text."""
        fed = self._feeds(raw)
        for value in self._others:
            kind = tensor_type(value)
            shape = (len(raw), *(size or 1 for size in (kind.shape or ())[1:]))
            empty = kind.element == TensorProto.STRING
            fed[value.name] = np.full(shape, "", object) if empty else np.zeros(shape, numpy_dtype(kind.element))
        try:
            self._session = self._session or Session(self._path)
            return as_scores(self._session.run([self._output], fed)[0], self._classes, len(raw))
        except RuntimeFailure as failure:
            raise ModelError(
                f"{self._path}: onnxruntime cannot run this model ({failure}), so nothing can vouch for the converted "
                "network; re-export it with another opset, or update onnxruntime."
            ) from failure


def preparation_note(prefix: Prefix) -> str:
    """What the report says of it."""
    kinds = ", ".join(dict.fromkeys(node.op_type for node in prefix.model.graph.node))
    return (
        f"The file prepares its own inputs ({kinds}): onnxruntime ran that part over the samples as stored, and what "
        "is audited is the network behind it, on the prepared features."
    )
