"""What an ONNX file asks for, counted before any of it is done: functions that call each other, loops, tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, helper

from audit.errors import ModelError
from audit.model.onnx.graph import Array, subgraphs, to_array, walk

MOST_NODES = 40_000
"""Once functions are put in their callers' place; the largest networks have some ten thousand."""
MOST_TURNS = 10**4
"""Of a loop that is run once to see what it gives."""
COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
PACKED: dict[int, int] = {TensorProto.UINT4: 2, TensorProto.INT4: 2}  # numbers in one byte
LOOPS = ("Loop", "Scan", "SequenceMap")


def check_size(path: Path, model: ModelProto) -> None:
    """Refuses a graph of more operators than can be converted soon, its functions put in their callers' place."""
    bodies = {(one.domain, one.name): list(one.node) for one in model.functions}
    known: dict[tuple[str, str], int] = {}

    def nodes_of(nodes: list[NodeProto]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(nodes_of(list(body.node)) for body in subgraphs(node))
            total += expanded((node.domain, node.op_type)) if (node.domain, node.op_type) in bodies else 0
        return min(total, MOST_NODES + 1)

    def expanded(name: tuple[str, str]) -> int:
        if name not in known:
            known[name] = MOST_NODES + 1  # of one that calls itself
            known[name] = nodes_of(bodies[name])
        return known[name]

    if nodes_of(list(model.graph.node)) > MOST_NODES:
        raise ModelError(
            f"{path}: runs more than {MOST_NODES:,} operators, those of its functions and branches included; export it "
            "without unrolled loops."
        )


def check_tensor(path: Path, tensor: TensorProto) -> None:
    """Refuses a tensor whose bytes are not those of its shape, and numbers that the audit would have to cut."""
    if tensor.data_type in COMPLEX:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are complex numbers; audit a model with real ones.")
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{path}: the weights of {tensor.name!r} have a negative size; export the model again.")
    if not tensor.HasField("raw_data") or tensor.data_type == TensorProto.STRING:
        return
    count = math.prod(tensor.dims)
    if tensor.data_type in PACKED:
        wanted = -(-count // PACKED[tensor.data_type])
    elif tensor.data_type in helper.get_all_tensor_dtypes():
        wanted = count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    else:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are of no type that exists; export the model again.")
    if len(tensor.raw_data) != wanted:
        raise ModelError(
            f"{path}: the weights of {tensor.name!r} are {len(tensor.raw_data)} bytes where their shape asks for "
            f"{wanted}; export or copy the model again."
        )


def is_short(node: NodeProto, known: Mapping[str, TensorProto]) -> bool:
    """Whether a node of constants ends soon: a loop says beforehand how often it turns, and holds no other."""
    if not any(inner.op_type in LOOPS for inner in (node, *(one for body in subgraphs(node) for one in walk(body)))):
        return True
    inside = [one for body in subgraphs(node) for one in walk(body)]
    if node.op_type != "Loop" or any(one.op_type in LOOPS for one in inside):
        return False
    count: Array | None = to_array(known[node.input[0]]) if node.input and node.input[0] in known else None
    return count is not None and count.size == 1 and int(count.reshape(-1)[0]) <= MOST_TURNS
