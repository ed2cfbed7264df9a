"""Free a batch size that an exporter has written into a graph, and prove by running it that nothing else changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from audit.model.base import FREE_SIZES
from audit.model.onnx.constant_folding import fold
from audit.model.onnx.graph import (
    Array,
    TensorType,
    add_constant,
    constants,
    fresh,
    infer_node,
    infer_types,
    prune,
    tensor_type,
    to_array,
)
from audit.model.onnx.runtime import LONGEST, RuntimeFailure, Session, random_input

CLOSE = 1e-3
"""Relative to the largest output: far above float16 rounding of a whole network's answer, far below any real change."""


def free_batch_size(model: ModelProto) -> tuple[ModelProto, int | None]:
    """The folded model with a free batch size, or with its own where the graph insists on that; and that size."""
    size = declared_batch(model.graph.input)
    fixed = _copy(model)
    fold(fixed)
    if size is None:
        return fixed, None
    freed = _copy(model)
    for value in freed.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    freed.graph.output[0].type.tensor_type.ClearField("shape")
    fold(freed)
    open_constants(fixed, freed, size)
    fold(freed)
    return (freed, None) if _agree(fixed, freed, size) else (fixed, size)


def declared_batch(inputs: Sequence[ValueInfoProto]) -> int | None:
    """The batch size that the file writes into its inputs; None where one of them leaves it open."""
    shapes = [tensor_type(value).shape for value in inputs]
    sizes = [shape[0] if shape else None for shape in shapes]
    return None if None in sizes else sizes[0]


def _copy(model: ModelProto) -> ModelProto:
    other = ModelProto()
    other.CopyFrom(model)
    return other


def _agree(fixed: ModelProto, freed: ModelProto, size: int) -> bool:
    """Two batches through the fixed graph, both at once through the free one: the same answers?"""
    output = fixed.graph.output[0].name
    try:
        old, new = Session(fixed), Session(freed)
    except RuntimeFailure:
        return False
    for feeds in trial_feeds(fixed.graph.input, 2 * size):
        try:
            halves = [old.run([output], rows_of(feeds, start, size), LONGEST)[0] for start in (0, size)]
        except RuntimeFailure:
            continue
        try:
            whole = new.run([output], feeds, LONGEST)[0]
        except RuntimeFailure:
            return False
        return _same(np.concatenate([np.atleast_1d(half) for half in halves]), np.atleast_1d(whole), 2 * size)
    return False


def _same(expected: Array, answer: Array, samples: int) -> bool:
    if len(answer) != samples or expected.size != answer.size:
        return False
    expected, answer = (part.reshape(samples, -1).astype(np.float64) for part in (expected, answer))
    scale = np.abs(expected).max(initial=np.finfo(np.float64).tiny)
    return bool(np.allclose(expected, answer, rtol=0, atol=CLOSE * scale, equal_nan=True))


def trial_feeds(inputs: Sequence[ValueInfoProto], count: int) -> Iterator[dict[str, Array]]:
    """Random batches of `count` samples for all inputs, one for every guess at the sizes that the file leaves open."""
    kinds = {value.name: tensor_type(value) for value in inputs}
    rests = {name: (kind.shape or ())[1:] for name, kind in kinds.items()}
    for guess in FREE_SIZES if any(None in rest for rest in rests.values()) else FREE_SIZES[:1]:
        yield {
            name: random_input((count, *(guess if size is None else size for size in rests[name])), kind.element, name)
            for name, kind in kinds.items()
        }


def rows_of(feeds: dict[str, Array], start: int, count: int) -> dict[str, Array]:
    """Some of the samples."""
    return {name: x[start : start + count] for name, x in feeds.items()}


# following the freed axis through the graph

SPREADING = ("Expand", "Concat", "Add", "Sub", "Mul", "Div")
"""Operators that may have a constant operand with one copy per sample in it."""


def open_constants(fixed: ModelProto, freed: ModelProto, size: int) -> None:
    """Rewrite `freed`, which is `fixed` with the batch `size` taken off its input, so that any batch runs through."""
    _Opening(fixed, freed, size).run()


class _Opening:
    """One walk through the graph, from the input to the output."""

    def __init__(self, fixed: ModelProto, freed: ModelProto, size: int):
        self.model, self.graph, self.size = freed, freed.graph, size
        self.before = infer_types(fixed)  # every shape at the old batch size
        self.types = infer_types(freed)  # every shape as the walk finds it
        self.known = constants(self.graph)

    def run(self) -> None:
        """Open one node after the other: what a node gives decides what its readers need."""
        changed: set[str] = set()
        for node in list(self.graph.node):
            before = list(node.input)
            if node.op_type == "Reshape" or (node.op_type in SPREADING and self._constants_of(node)):
                self._open(node)
            if list(node.input) != before or changed.intersection(before):
                self.types |= infer_node(self.model, node, self.types, self.known)
                changed |= set(node.output)
        prune(self.graph)

    def _constants_of(self, node: NodeProto) -> list[int]:
        return [position for position, name in enumerate(node.input) if name in self.known]

    def _open(self, node: NodeProto) -> None:
        moving = next((name for name in node.input if name not in self.known), "")
        kind = self.types.get(moving, TensorType())
        axis = _free_axis(kind.shape)
        if axis is None:
            return
        if node.op_type == "Reshape":
            self._open_reshape(node, axis)
        elif node.op_type == "Expand":
            self._open_expand(node, axis, kind)
        else:
            for position in self._constants_of(node):
                self._open_operand(node, position, axis, kind, moving)

    def _open_reshape(self, node: NodeProto, axis: int) -> None:
        old, new = (self.before.get(name, TensorType()).shape for name in (node.input[0], node.output[0]))
        if old is None or new is None or None in old or None in new:
            return
        place = _landing([size or 0 for size in old], axis, [size or 0 for size in new], self.size)
        if place is not None:
            target = [-1 if position == place else number for position, number in enumerate(new)]
            node.input[1] = self._constant(node.input[1], np.array(target, dtype=np.int64))

    def _open_expand(self, node: NodeProto, axis: int, kind: TensorType) -> None:
        target = to_array(self.known[node.input[1]]).copy()
        place = len(target) - len(kind.shape or ()) + axis
        if place >= 0 and target[place] == self.size:
            target[place] = 1
            node.input[1] = self._constant(node.input[1], target)

    def _open_operand(self, node: NodeProto, position: int, axis: int, kind: TensorType, moving: str) -> None:
        """A constant that repeats itself for every sample: keep one copy, and let it spread over the batch."""
        value, rank = to_array(self.known[node.input[position]]), len(kind.shape or ())
        place = value.ndim - rank + axis
        joins = node.op_type == "Concat"
        if place < 0 or value.ndim == 0 or value.shape[place] != self.size or (self.size == 1 and not joins):
            return
        first = value.take([0], axis=place)
        if not np.array_equal(np.broadcast_to(first, value.shape), value):
            return
        single = self._constant(node.input[position], first)
        node.input[position] = self._spread(node, single, first.shape, place, moving, axis) if joins else single

    def _spread(self, node: NodeProto, name: str, shape: tuple[int, ...], place: int, moving: str, axis: int) -> str:
        """Repeat a constant for the batch at hand: Expand(name, [..., size of `moving` along `axis`, ...])."""
        sizes, batch, target, spread = (fresh(self.graph, f"{name}/{part}") for part in ("sizes", "n", "to", "spread"))
        parts = {"axis": (axis,), "before": shape[:place], "after": shape[place + 1 :]}
        at, before, after = (self._constant(f"{name}/{k}", np.array(v, dtype=np.int64)) for k, v in parts.items())
        nodes = [
            helper.make_node("Shape", [moving], [sizes]),
            helper.make_node("Gather", [sizes, at], [batch]),
            helper.make_node("Concat", [before, batch, after], [target], axis=0),
            helper.make_node("Expand", [name, target], [spread]),
        ]
        _insert_before(self.graph, node, nodes)
        free = tuple(None if axis == place else size for axis, size in enumerate(shape))
        self.types[spread] = TensorType(self.known[name].data_type, free)
        return spread

    def _constant(self, stem: str, value: Array) -> str:
        name = add_constant(self.graph, fresh(self.graph, f"{stem}/free"), value)
        self.known[name] = self.graph.initializer[-1]
        self.types[name] = TensorType(self.known[name].data_type, value.shape)
        return name


def _insert_before(graph: GraphProto, node: NodeProto, nodes: list[NodeProto]) -> None:
    position = next(i for i, other in enumerate(graph.node) if list(other.output) == list(node.output))
    for new in reversed(nodes):
        graph.node.insert(position, new)


def _free_axis(shape: tuple[int | None, ...] | None) -> int | None:
    free = [axis for axis, size in enumerate(shape or ()) if size is None]
    return free[0] if len(free) == 1 else None


def _landing(old: list[int], axis: int, new: list[int], batch: int) -> int | None:
    """The axis of a reshaped tensor that the batch lands on: the one whose elements span those of `axis`.

    Several may, above all at batch size 1. The likeliest is one of the batch's own length, cut out of a merged axis
    (batch x heads, tokens x batch); then one that starts where the batch does; the last axis, of features, comes last.
    A wrong guess is found when the graph is run.
    """
    places = range(len(new))
    starts, ends = [prod(new[:place]) for place in places], [prod(new[: place + 1]) for place in places]
    start, end = prod(old[:axis]), prod(old[: axis + 1])
    inside = [place for place in places if starts[place] >= start and ends[place] <= end]
    exact = [place for place in inside if new[place] == batch]
    around = [place for place in places if start % starts[place] == 0 and ends[place] % end == 0]
    around.sort(key=lambda place: (place == len(new) - 1, starts[place] != start))
    shared = [place for place in inside if new[place] % batch == 0]
    return next(iter([*exact, *around, *shared]), None)
