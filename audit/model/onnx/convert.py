"""From a simplified ONNX graph to a network of torch modules that can be differentiated, twice, in any precision.

Every node becomes one call of a module, in the order of the file. Weights are Parameters of the modules that use them;
all other constants are buffers, so that `network.to(torch.float64)` moves everything.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto
from torch import Tensor, fx, nn

from audit.errors import ModelError
from audit.model.canon import layer_name, numbered
from audit.model.onnx import ops  # noqa: F401  (registers the operators)
from audit.model.onnx.layer import DENSE_DOMAIN, node_scope
from audit.model.onnx.ops.registry import Converter, find_converter, kind_of
from audit.model.onnx.ops.values import FLOATS, Graph, OnnxNode, plain_domain


@dataclass(frozen=True)
class Unsupported:
    """A node that no converter takes."""

    op: str
    version: int
    domain: str
    node: str

    def __str__(self) -> str:
        return f"{self.op}-{self.version} ({self.domain or 'ai.onnx'}, node {self.node!r})"


def network_of(proto: ModelProto) -> fx.GraphModule:
    """The network in eval mode, its Parameters frozen.

    `network.onnx_names` maps every submodule with weights to the name its author gave it, `network.onnx_ops` to what
    its operator is called: "gemm", "conv", "batchnorm", ….
    """
    refused = unsupported(proto)
    if refused:
        raise ModelError(_refusal(refused))
    network = _Builder(proto).build()
    return network.eval().requires_grad_(False)


def unsupported(proto: ModelProto) -> list[Unsupported]:
    """All nodes that cannot be converted."""
    opsets = {plain_domain(entry.domain): entry.version for entry in proto.opset_import}
    refused = []
    for position, node in enumerate(proto.graph.node):
        opset = opsets.get(plain_domain(node.domain), 1)
        if node.op_type != "Constant" and find_converter(node, opset) is None:
            name = node.name or f"{node.op_type}_{position}"
            refused.append(Unsupported(node.op_type, _version(node, opset), node.domain, name))
    return refused


def _version(node: NodeProto, opset: int) -> int:
    """The operator's own version under this opset, as its documentation numbers it."""
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, node.domain).since_version)
    except onnx.defs.SchemaError:
        return opset


REMEDIES = (
    (r".*Integer.*|QLinear.*|.*Quantize.*|QGemm|QAttention|.*NBits", "audit the float model it was quantised from"),
    (r"TreeEnsemble.*|SVM.*", "audit a neural network, since forests and kernel machines have no dense layers"),
    (r"Random.*|Bernoulli|Multinomial", "export it in inference mode, so that it gives the same answer twice"),
)


def _refusal(refused: list[Unsupported]) -> str:
    remedy = next(
        (remedy for pattern, remedy in REMEDIES if any(re.fullmatch(pattern, one.op) for one in refused)),
        "export the model again without them",
    )
    return f"the model uses operators that cannot be converted, {', '.join(map(str, refused))}: {remedy}."


def _compute_type(proto: ModelProto) -> torch.dtype:
    """float64 where the file is mostly that; float32 else, also for half precision, which is for storage alone."""
    size = {TensorProto.DOUBLE: 0, TensorProto.FLOAT: 0}
    for tensor in proto.graph.initializer:
        if tensor.data_type in FLOATS:
            kind = TensorProto.DOUBLE if tensor.data_type == TensorProto.DOUBLE else TensorProto.FLOAT
            size[kind] += 1 + sum(tensor.dims)
    inputs = {value.type.tensor_type.elem_type for value in proto.graph.input}
    double = size[TensorProto.DOUBLE] > size[TensorProto.FLOAT] or TensorProto.DOUBLE in inputs
    return torch.float64 if double else torch.float32


class _Entrance(nn.Module):
    """Brings a real input to the network's own number type, whatever `network.to(...)` has made of it."""

    anchor: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("anchor", torch.zeros((), dtype=dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.anchor.dtype)


class _Builder:
    """Walks through the file's nodes and writes down, for each, one call of one module."""

    def __init__(self, proto: ModelProto) -> None:
        self.proto = proto
        self.source = Graph(proto, _compute_type(proto))
        self.graph = fx.Graph()
        self.values: dict[str, fx.Node] = {}
        self.modules: dict[str, nn.Module | Tensor] = {}
        self.paths: dict[nn.Module, str] = {}
        self.names: dict[str, str] = {}
        self.kinds: dict[str, str] = {}

    def build(self) -> fx.GraphModule:
        """The finished network."""
        for value in self.proto.graph.input:
            if not self.source.is_constant(value.name):
                self._enter(value)
        for node in self.source.nodes.values():
            if node.operation_type != "Constant":
                opset = self.source.opsets.get(plain_domain(node.domain), 1)
                self._call(node, find_converter(node.proto, opset))
        results = [self._value(value.name) for value in self.proto.graph.output]
        self.graph.output(results[0] if len(results) == 1 else tuple(results))
        network = fx.GraphModule(self.modules, self.graph)
        network.onnx_names, network.onnx_ops = self.names, self.kinds  # type: ignore[assignment]
        return network

    def _enter(self, value: onnx.ValueInfoProto) -> None:
        node = self.graph.placeholder(_identifier(value.name))
        if value.type.tensor_type.elem_type in FLOATS:
            path = self._place(_Entrance(self.source.dtype), f"{_identifier(value.name)}_entrance")
            node = self.graph.call_module(path, (node,))
        self.values[value.name] = node

    def _call(self, node: OnnxNode, converter: Converter | None) -> None:
        assert converter is not None  # `unsupported` has looked
        module, mapping = converter(node, self.source)
        if module not in self.paths:
            self._adopt(node, module, kind_of(converter, node.proto))
        arguments = tuple(self._value(name) for name in mapping.inputs)
        result = self.graph.call_module(self.paths[module], arguments)
        if len(node.output_values) == 1:
            self.values[node.output_values[0]] = result
            return
        for position, name in enumerate(node.output_values):
            if name:
                self.values[name] = self.graph.call_function(operator.getitem, (result, position))

    def _adopt(self, node: OnnxNode, module: nn.Module, kind: str) -> None:
        """Give a new module its place, and if it has weights a name in the report."""
        module.to(self.source.dtype)
        if not any(True for _ in module.parameters()):
            self.paths[module] = self._place(module, f"{node.operation_type.lower()}_{len(self.modules)}")
            return
        weights = [name for name in node.input_values if self.source.is_constant(name)]
        name = _recognised(node, weights)
        path = self._place(module, name)
        self.paths[module] = path
        self.names[path] = path if name in self.names.values() else name
        self.kinds[path] = kind

    def _place(self, module: nn.Module | Tensor, name: str) -> str:
        """Put a module or a constant at a path that is valid and still free."""
        stem = ".".join(_identifier(part) for part in re.split("[./]", name) if part) or "layer"
        path = next(path for path in numbered(stem) if path not in self.modules)
        self.modules[path] = module
        return path

    def _value(self, name: str) -> fx.Node | None:
        """The node that computes a value; a constant becomes a buffer when it is first asked for."""
        if not name:
            return None
        if name not in self.values:
            if not self.source.is_constant(name):
                raise ModelError(f"the value {name!r} is used but never computed; export the model again.")
            path = self._place(self.source.tensor(name), f"constants.c{len(self.modules)}")
            self.values[name] = self.graph.get_attr(path)
        return self.values[name]


TAKEN = {*dir(fx.GraphModule), "training", "meta", "weight", "bias", "like", "function", "settings", "slots", "follows"}


def _identifier(name: str) -> str:
    """A name that torch takes for a submodule: letters, digits, underscores, and none that a module needs itself."""
    clean = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
    return f"{clean}_" if clean in TAKEN else clean


def _recognised(node: OnnxNode, weights: list[str]) -> str:
    """The name that a layer's author gave it, as far as the file tells; a Dense node bears it already."""
    if node.domain == DENSE_DOMAIN:
        return str(node.name)
    weight, bias = (*weights, "", "")[:2]
    return layer_name(weight, bias, node_scope(node.proto)) or str(node.name or node.operation_type.lower())
