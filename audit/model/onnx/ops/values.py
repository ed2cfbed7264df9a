"""What is taken from onnx2torch: its registry of converters, and its view of a graph, here extended with weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from onnx import AttributeProto, ModelProto
from torch import Tensor, nn

from audit.model.onnx.ops.tensors import attribute_value, is_float, to_torch


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """Two of onnx2torch's modules import torchvision, which is often missing or broken; leave these two out."""
    names = [f"onnx2torch.node_converters.{name}" for name in ("nms", "roialign")]
    blanks = {name: ModuleType(name) for name in names if "onnx2torch" not in sys.modules}
    for blank in blanks.values():
        blank.__dict__["__all__"] = []
    sys.modules.update(blanks)
    try:
        yield
    finally:
        for name in blanks:
            del sys.modules[name]


with _without_torchvision():
    from onnx2torch.node_converters.registry import add_converter, get_converter
    from onnx2torch.onnx_graph import OnnxGraph
    from onnx2torch.onnx_node import OnnxNode
    from onnx2torch.utils.common import OnnxMapping, OperationConverterResult

__all__ = [
    "Graph",
    "OnnxMapping",
    "OnnxNode",
    "OperationConverterResult",
    "add_converter",
    "get_converter",
    "plain_domain",
]


class Graph(OnnxGraph):  # type: ignore[misc]
    """onnx2torch's view of a graph, with its constants as tensors of one number type and its weights as Parameters."""

    def __init__(self, model: ModelProto, dtype: torch.dtype) -> None:
        super().__init__(model.graph)
        self.dtype = dtype
        self.opsets = {plain_domain(entry.domain): entry.version for entry in model.opset_import}
        self.layers: dict[tuple[object, ...], nn.Module] = {}
        self._protos: dict[str, Any] = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.output:
                self._protos[node.output[0]] = node.attribute[0]
        self._tensors: dict[str, Tensor] = {}
        self._parameters: dict[str, nn.Parameter] = {}

    def is_constant(self, name: str) -> bool:
        """Whether the value is known before the network runs."""
        return name in self._protos

    def tensor(self, name: str) -> Tensor:
        """A constant, read once however often it is used."""
        if name not in self._tensors:
            proto = self._protos[name]
            read = attribute_value if isinstance(proto, AttributeProto) else to_torch
            self._tensors[name] = _as_tensor(read(proto, self.dtype), self.dtype)
        return self._tensors[name]

    def parameter(self, name: str) -> nn.Parameter:
        """A constant as a weight: the same object wherever it is used, so that tied weights stay tied."""
        if name not in self._parameters:
            self._parameters[name] = nn.Parameter(self.tensor(name), requires_grad=False)
        return self._parameters[name]

    def is_weight(self, name: str) -> bool:
        """Whether the value is a constant that gradients make sense for."""
        return self.is_constant(name) and is_float(self.tensor(name))


def _as_tensor(value: Any, dtype: torch.dtype) -> Tensor:
    tensor = torch.as_tensor(value)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def plain_domain(domain: str) -> str:
    """The standard operators' domain has two spellings."""
    return "" if domain == "ai.onnx" else domain
