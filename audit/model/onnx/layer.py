"""A dense layer as found, and how layers are written back: each with a name, tied ones with one weight."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto, NodeProto, helper

from audit.model.canon import layer_name, numbered, without_wrappers
from audit.model.onnx.graph import (
    Array,
    add_constant,
    constants,
    fresh,
    producers,
    set_nodes,
    to_array,
    uses,
)

DENSE_DOMAIN = "gen_audit"
FUSED = "FuseBatchNorm"
"""What the newer PyTorch exporter notes at a node into whose weights it has multiplied a BatchNorm."""


@dataclass(frozen=True)
class Layer:
    """y = x Wᵀ + b in place of a node; `before` makes x from the node's input, `after` makes its output from y."""

    node: NodeProto
    kind: str
    x: str
    weight: Array  # [out, in]
    weight_name: str  # the initializer it comes from
    origin: str  # the parameter that initializer was made from, where an exporter or folding has changed it
    output: str
    bias: Array | None = None  # [out]
    bias_name: str = ""
    before: tuple[NodeProto, ...] = ()
    after: tuple[NodeProto, ...] = ()
    weight_number: int = 0  # given when layers are written: the same for layers with one weight, other for others
    name: str = ""  # … and this, too

    @property
    def absorbed_batchnorm(self) -> bool:
        """Whether the exporter says that it has merged a BatchNorm into these weights."""
        return has_fused_batchnorm(self.node)


def dense_node(layer: Layer, weight: str, bias: str, output: str) -> NodeProto:
    """The one form that every dense layer is brought into; `bias` may be empty."""
    inputs = [layer.x, weight, bias] if bias else [layer.x, weight]
    return helper.make_node("Dense", inputs, [output], name=layer.name, domain=DENSE_DOMAIN, kind=layer.kind)


def bias_node(node: NodeProto, y: str, bias: str, output: str) -> NodeProto:
    """The bias of a layer that shares its weights with one that has another bias: trained, unlike other constants."""
    return helper.make_node("Bias", [y, bias], [output], name=f"{node.name or output} (bias)", domain=DENSE_DOMAIN)


def has_fused_batchnorm(node: NodeProto) -> bool:
    """Whether the exporter says that a node's weights have a BatchNorm in them."""
    return any(FUSED in entry.value for entry in node.metadata_props if entry.key.endswith("rule_name"))


def write_layers(graph: GraphProto, parts: Sequence[NodeProto | Layer]) -> list[Layer]:
    """Put nodes and layers back into the graph; the layers with their final names, one per weight."""
    layers = _tied([part for part in parts if isinstance(part, Layer)])
    transposed = _transposed(layers)
    named = _named([layer for layer in layers if layer.output not in transposed])
    groups: dict[str, list[Layer]] = {}
    for layer in named:
        groups.setdefault(layer.name, []).append(layer)
    written: dict[str, list[NodeProto]] = {}
    for group in groups.values():
        written.update(_Writer(graph, group).nodes())
    for layer in layers:
        if layer.output in transposed:
            dense = written[transposed[layer.output].output]
            written[layer.output] = _product(graph, layer, next(n.input[1] for n in dense if n.op_type == "Dense"))
    nodes: list[NodeProto] = []
    for part in parts:
        nodes.extend(written[part.output] if isinstance(part, Layer) else [part])
    set_nodes(graph, nodes)
    return [group[0] for group in groups.values()]


def _tied(layers: list[Layer]) -> list[Layer]:
    """Layers with the same numbers for weights share the first one's: no two trainings end in equal matrices."""
    seen: dict[tuple[object, ...], list[Layer]] = {}
    result = []
    for number, untied in enumerate(layers):
        layer, w = replace(untied, weight_number=number), untied.weight
        key = (w.dtype, w.shape, w[:1].tobytes(), layer.weight_name if _flat(w) else "")
        twin = next((other for other in seen.get(key, []) if np.array_equal(other.weight, w)), None)
        if twin is None:
            seen.setdefault(key, []).append(layer)
        else:
            layer = replace(
                layer,
                weight=twin.weight,
                weight_name=twin.weight_name,
                weight_number=twin.weight_number,
                origin=twin.origin,
            )
        result.append(layer)
    return result


def _transposed(layers: list[Layer]) -> dict[str, Layer]:
    """By their outputs, layers whose weights are an earlier one's transposed, with that one.

    As layers they would have weights of their own.
    """
    seen: dict[tuple[int, ...], list[Layer]] = {}
    found: dict[str, Layer] = {}
    for layer in layers:
        w, alike = layer.weight, seen.get(layer.weight.shape[::-1], [])
        known = any(other.weight_number == layer.weight_number for other in seen.get(w.shape, []))
        twin = (
            None if known or _flat(w) else next((other for other in alike if np.array_equal(other.weight.T, w)), None)
        )
        if twin is None:
            seen.setdefault(w.shape, []).append(layer)
        else:
            found[layer.output] = twin
    return found


def _product(graph: GraphProto, layer: Layer, weight: str) -> list[NodeProto]:
    """Y = x W + b with the weight [in, out] of another layer."""
    ending = list(layer.after)
    output = ending[0].input[0] if ending else layer.output
    y = output if layer.bias is None else fresh(graph, f"{output}/product")
    made = [*layer.before, helper.make_node("MatMul", [layer.x, weight], [y], name=layer.node.name)]
    if layer.bias is not None:
        bias = add_constant(graph, fresh(graph, f"{output}/bias"), layer.bias)
        made.append(bias_node(layer.node, y, bias, output))
    return [*made, *ending]


def _named(layers: list[Layer]) -> list[Layer]:
    """The name the file suggests, or dense_1, dense_2, … in its order; one name per weight, one weight per name."""
    names: dict[int, str] = {}
    result = []
    for layer in layers:
        if layer.weight_number not in names:
            stem = layer_name(layer.origin, layer.bias_name, node_scope(layer.node)) or f"dense_{len(names) + 1}"
            taken = set(names.values())
            names[layer.weight_number] = next(name for name in numbered(stem) if name not in taken)
        result.append(replace(layer, name=names[layer.weight_number]))
    return result


class _Writer:
    """Writes the layers that share one weight: one module if their biases agree, else a bias after each."""

    def __init__(self, graph: GraphProto, group: list[Layer]):
        self.graph, self.group = graph, group
        first = group[0].bias
        self.one_bias = all(_equal(layer.bias, first) for layer in group)

    def nodes(self) -> dict[str, list[NodeProto]]:
        """The nodes of each layer, by its output."""
        first = self.group[0]
        weight = self._stored(first.weight, first.weight_name, "weight")
        bias = self._stored(first.bias, "", "bias") if self.one_bias and first.bias is not None else ""
        return {layer.output: self._layer(layer, weight, bias) for layer in self.group}

    def _layer(self, layer: Layer, weight: str, bias: str) -> list[NodeProto]:
        ending = list(layer.after)
        output = ending[0].input[0] if ending else layer.output
        adds_bias = layer.bias is not None and not bias
        y = fresh(self.graph, f"{output}/product") if adds_bias else output
        made = [*layer.before, dense_node(layer, weight, bias, y)]
        if adds_bias and layer.bias is not None:
            made.append(bias_node(layer.node, y, self._stored(layer.bias, "", "bias"), output))
        return [*made, *ending]

    def _stored(self, array: Array, name: str, role: str) -> str:
        """The initializer that holds the array: the file's own where it is the same, else a new one."""
        known = constants(self.graph)
        gathers = [] if _flat(array) else [node for node in self.graph.node if node.op_type == "Gather"]
        tables = [str(node.input[0]) for node in gathers]
        for own in (name, *tables):  # a table that words are looked up in may be the weight of a layer, too
            same_shape = own in known and tuple(known[own].dims) == array.shape
            if same_shape and np.array_equal(to_array(known[own]), array):
                return own
        return add_constant(self.graph, fresh(self.graph, f"{self.group[0].name}.{role}"), array)


def _flat(array: Array) -> bool:
    """Whether all numbers are one, so that to be equal says nothing."""
    return not array.size or bool(np.all(array == array.flat[0]))


def _equal(a: Array | None, b: Array | None) -> bool:
    return b is None if a is None else b is not None and np.array_equal(a, b)


def keep_sample_axis(graph: GraphProto, domain: str) -> None:
    """Turn Reshape → Dense → Reshape into Reshape → Dense, on the second shape.

    nn.MultiheadAttention flattens [tokens, samples, width] before its out_proj, so that a sample's rows lie scattered;
    a dense layer does not mind the shape before the features, but whoever looks at single samples does.
    """
    made, counts, known = producers(graph), uses(graph), constants(graph)
    for last in [node for node in graph.node if _reshapes(node) and node.input[1] in known]:
        dense = made.get(last.input[0])
        first = (
            None if dense is None or (dense.domain, dense.op_type) != (domain, "Dense") else made.get(dense.input[0])
        )
        if dense is None or first is None or not _reshapes(first) or counts[dense.output[0]] != 1:
            continue
        outputs, inputs = known[dense.input[1]].dims
        shape = to_array(known[last.input[1]])
        flat = to_array(known[first.input[1]]).tolist() if first.input[1] in known else []
        if len(flat) == 2 and flat[1] == inputs and len(shape) and shape[-1] == outputs and 0 not in shape:
            shape = shape.copy()
            shape[-1] = inputs
            name = add_constant(graph, fresh(graph, f"{dense.name}.shape"), shape)
            _swap(first.input[0], name, dense, last)


def _reshapes(node: NodeProto) -> bool:
    return node.op_type == "Reshape" and len(node.input) == 2


def _swap(x: str, shape: str, dense: NodeProto, last: NodeProto) -> None:
    """Let the two nodes change places: first x is reshaped, then comes the layer."""
    layer, between, output = NodeProto(), dense.output[0], last.output[0]
    layer.CopyFrom(dense)
    dense.CopyFrom(last)
    dense.input[:], dense.output[:] = [x, shape], [between]
    last.CopyFrom(layer)
    last.input[0], last.output[0] = between, output


# The module that a node was written in, from what its exporter notes.


SCOPES = "pkg.torch.onnx.name_scopes"
"""Where the newer PyTorch exporter notes the modules around a node."""


def node_scope(node: NodeProto) -> str:
    """The module path of a node: from the newer exporter's notes, or a name such as /blocks/blocks.0/fc1/MatMul."""
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            return _last_scope(entry.value)
    parts = [part for part in node.name.split("/")[:-1] if part]
    if node.name.startswith("/"):
        return _merged(parts)
    return without_wrappers("/".join(parts))


def _last_scope(text: str) -> str:
    try:
        scopes = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return ""
    return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) >= 2 else ""


def _merged(parts: list[str]) -> str:
    """The older exporter repeats the parent in the child's name: /blocks/blocks.0/fc1 is blocks.0.fc1."""
    names: list[str] = []
    for part in parts:
        if names and part.startswith(names[-1] + "."):
            names[-1] = part
        else:
            names.append(part)
    return ".".join(names)
