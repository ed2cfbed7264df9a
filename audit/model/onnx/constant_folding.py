"""Compute once what does not depend on the data: constants, static shapes, and branches they decide."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from audit.errors import out_of_memory
from audit.model.onnx.graph import (
    Array,
    TensorType,
    add_constant,
    attributes,
    constants,
    fresh,
    infer_types,
    is_short,
    prune,
    reads,
    rename_reads,
    set_nodes,
    sparse_to_array,
    to_array,
    with_graph,
)
from audit.model.onnx.runtime import RuntimeFailure, Session, seconds_of
from audit.model.onnx.simplify import forget_zero_states

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
LARGEST = 2**26
"""Elements (256 MB in float32) beyond which a constant is left to be computed at run time."""

LONGEST = 20.0  # seconds for the constants of a file, some of which come out of loops

HOPELESS = 2**32
"""Elements of a constant that nothing could compute with at run time either."""


def fold(model: ModelProto) -> None:
    """Fold until nothing changes: an `If` decided by a static shape opens up more constants."""
    changed = True
    while changed:
        constants_from_nodes(model.graph)
        skip_identities(model)
        changed = fold_shapes(model)
        changed |= fold_constants(model)
        changed |= inline_branches(model.graph)
        forget_zero_states(model.graph)
        prune(model.graph)


def constants_from_nodes(graph: GraphProto) -> None:
    """Constant nodes become initializers."""
    kept = []
    for node in graph.node:
        array = _constant_value(node) if node.op_type == "Constant" else None
        if array is None:
            kept.append(node)
        else:
            add_constant(graph, node.output[0], array)
    if len(kept) < len(graph.node):
        set_nodes(graph, kept)


def _constant_value(node: NodeProto) -> Array | None:
    for name, value in attributes(node).items():
        if name == "value":
            return numpy_helper.to_array(value) if value.data_type != TensorProto.STRING else None
        if name == "sparse_value":
            return sparse_to_array(value)
        if name in ("value_int", "value_ints"):
            return np.asarray(value, dtype=np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, dtype=np.float32)
    return None


def skip_identities(model: ModelProto) -> None:
    """Identity, and Dropout outside training, hand their input on: let readers take it directly."""
    graph = model.graph
    known, outputs = constants(graph), {value.name for value in graph.output}
    renamed: dict[str, str] = {}
    kept = []
    for node in graph.node:
        rename_reads([node], renamed)
        if _passes_through(node, known) and not outputs.intersection(node.output):
            renamed[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    if renamed:
        set_nodes(graph, kept)


def _passes_through(node: NodeProto, known: Mapping[str, TensorProto]) -> bool:
    if node.op_type == "Identity":
        return True
    if node.op_type != "Dropout" or any(node.output[1:]):
        return False
    training = node.input[2] if len(node.input) > 2 else ""
    return not training or (training in known and not to_array(known[training]).any())


def fold_shapes(model: ModelProto) -> bool:
    """Replace what reads only static sizes of a shape; a free batch size stays free."""
    graph = model.graph
    if not any(node.op_type == "Shape" for node in graph.node):
        return False
    types, known = infer_types(model), constants(graph)
    shapes = [node for node in graph.node if node.op_type == "Shape"]
    sizes = {node.output[0]: _sizes(node, types.get(node.input[0], TensorType())) for node in shapes}
    found = {}
    for node in graph.node:
        value = _static_value(node, sizes, known)
        if value is not None:
            found[node.output[0]] = value
    for name, value in found.items():
        add_constant(graph, name, value)
    if found:
        set_nodes(graph, [node for node in graph.node if not found.keys() & set(node.output)])
    return bool(found)


def _sizes(node: NodeProto, kind: TensorType) -> list[int | None] | None:
    if kind.shape is None:
        return None
    options = attributes(node)
    return list(kind.shape)[options.get("start", 0) : options.get("end", len(kind.shape))]


def _static_value(
    node: NodeProto, sizes: Mapping[str, list[int | None] | None], known: Mapping[str, TensorProto]
) -> Array | None:
    """The value of a Shape, or of a Size, Gather or Slice of one, if it touches static sizes only."""
    if node.op_type == "Shape" and (own := sizes.get(node.output[0])) is not None:
        return None if None in own else np.array(own, dtype=np.int64)
    shape = sizes.get(node.input[0]) if node.input else None
    if shape is None or any(name and name not in known for name in node.input[1:]):
        return None
    if node.op_type == "Size":
        return np.array(len(shape), dtype=np.int64)  # how many axes there are is static, whatever their sizes
    positions = np.arange(len(shape))
    if node.op_type == "Gather":
        chosen = positions[to_array(known[node.input[1]])]
    elif node.op_type == "Slice" and len(node.input) > 2:
        start, end = (int(to_array(known[name]).reshape(-1)[0]) for name in node.input[1:3])
        step = int(to_array(known[node.input[4]]).reshape(-1)[0]) if len(node.input) > 4 else 1
        chosen = positions[start:end:step]
    else:
        return None
    picked = [shape[position] for position in np.atleast_1d(chosen)]
    return None if None in picked else np.array(picked, dtype=np.int64).reshape(chosen.shape)


def fold_constants(model: ModelProto) -> bool:
    """Evaluate all nodes whose inputs are constants, in one run of onnxruntime."""
    graph = model.graph
    known = constants(graph)
    ready, constant = [], set(known)
    for node in graph.node:
        if _foldable(node) and is_short(node, known) and reads(node) <= constant:
            ready.append(node)
            constant |= set(node.output)
    if not ready:
        return False
    made = {name for node in ready for name in node.output if name}
    others = [node for node in graph.node if not made.intersection(node.output)]
    needed = sorted(made & (set().union(*map(reads, others)) | {value.name for value in graph.output}))
    values = _evaluate(model, ready, needed)
    origins = _origins(ready, known)
    for name, value in values.items():
        add_constant(graph, name, value, origins.get(name, ""))
    if values:
        set_nodes(graph, [node for node in graph.node if not values.keys() & set(node.output)])
    return bool(values)


def _foldable(node: NodeProto) -> bool:
    """Weights that are stored as int8 and a scale become the floats that the file computes with; nothing else does."""
    if node.op_type == "DequantizeLinear":
        return node.domain in ("", "ai.onnx", "com.microsoft")
    quantised = "quantize" in node.op_type.lower() or "Integer" in node.op_type
    return node.op_type not in RANDOM and not quantised and node.domain in ("", "ai.onnx", "ai.onnx.ml")


def _evaluate(model: ModelProto, nodes: list[NodeProto], names: list[str]) -> dict[str, Array]:
    """Values of `names`; without those that are too large to keep or that onnxruntime cannot compute."""
    part = _part(model, nodes, names)
    types = infer_types(part)
    largest = max((_elements(types.get(name)) for node in nodes for name in node.output), default=0.0)
    if largest > HOPELESS:
        raise MemoryError
    too_long = f"its constants take more than {LONGEST:g} seconds to compute"
    if max(seconds_of(node, lambda name: types.get(name, TensorType()).shape) for node in nodes) > LONGEST:
        raise TimeoutError(too_long)
    try:
        results = [] if largest > LARGEST else Session(part, optimise=False).run(names, {}, LONGEST)
    except TimeoutError as error:
        raise TimeoutError(too_long) from error
    except RuntimeFailure as failure:
        if out_of_memory(failure):
            raise MemoryError from failure
        results = []
    if results:
        return {name: value for name, value in zip(names, results, strict=True) if _storable(value)}
    if len(names) <= 1:
        return {}
    alone = [_evaluate(model, _ancestors(nodes, name), [name]) for name in names]
    return {name: value for found in alone for name, value in found.items()}


def _part(model: ModelProto, nodes: list[NodeProto], names: list[str]) -> ModelProto:
    """A model of its own that computes `names` from constants alone."""
    used: set[str] = set().union(*map(reads, nodes))
    graph = GraphProto(name="constants", node=nodes)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in used)
    graph.output.extend(ValueInfoProto(name=name) for name in names)
    return with_graph(model, graph)


def _ancestors(nodes: list[NodeProto], name: str) -> list[NodeProto]:
    needed, kept = {name}, []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= reads(node)
    return kept[::-1]


def _elements(kind: TensorType | None) -> float:
    return float(np.prod([size or 1 for size in kind.shape], dtype=float)) if kind and kind.shape else 1.0


def _storable(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O" and value.size <= LARGEST


def _origins(nodes: list[NodeProto], known: Mapping[str, TensorProto]) -> dict[str, str]:
    """The one weight matrix behind a folded value: a transposed, reshaped or cast `fc1.weight` is still fc1's."""
    origins = {name: tensor.doc_string or name for name, tensor in known.items() if len(tensor.dims) >= 2}
    for node in nodes:
        behind = {origins[name] for name in node.input if name in origins}
        if len(behind) == 1:
            origins.update(dict.fromkeys(node.output, behind.pop()))
    return origins


def inline_branches(graph: GraphProto) -> bool:
    """Put the taken branch of every decided `If` in its place."""
    known = constants(graph)
    for position, node in enumerate(graph.node):
        if node.op_type == "If" and node.input[0] in known:
            taken = "then_branch" if to_array(known[node.input[0]]).any() else "else_branch"
            body = next(attribute.g for attribute in node.attribute if attribute.name == taken)
            _splice(graph, position, body)
            return True
    return False


def _splice(graph: GraphProto, position: int, body: GraphProto) -> None:
    """Replace an If by one of its bodies, whose own names are made unique first."""
    node = graph.node[position]
    own = [tensor.name for tensor in body.initializer] + [name for inner in body.node for name in inner.output if name]
    renamed = {name: fresh(graph, f"{node.name or 'If'}/{name}") for name in own}
    nodes = list(body.node)
    rename_reads(nodes, renamed)
    for inner in nodes:
        inner.output[:] = [renamed.get(name, name) for name in inner.output]
    for tensor in body.initializer:
        graph.initializer.append(tensor)
        graph.initializer[-1].name = renamed[tensor.name]
    ends = [
        helper.make_node("Identity", [renamed.get(value.name, value.name)], [name])
        for value, name in zip(body.output, node.output, strict=True)
    ]
    set_nodes(graph, [*graph.node[:position], *nodes, *ends, *graph.node[position + 1 :]])
