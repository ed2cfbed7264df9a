"""Stored values as torch tensors; and what is taken from onnx2torch, its registry and its view of a graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import torch
from onnx import AttributeProto, ModelProto, TensorProto, numpy_helper
from torch import Tensor, nn

Ints = Tensor | Sequence[int] | int | None

FLOATS: set[int] = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
"""Every one of these becomes the network's own number type, so that it computes in one precision throughout."""

INTEGERS: dict[int, torch.dtype] = {
    TensorProto.BOOL: torch.bool,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    # torch computes little in wide unsigned types: the next wider signed one holds the same values
    TensorProto.UINT16: torch.int32,
    TensorProto.UINT32: torch.int64,
    TensorProto.UINT64: torch.int64,
}


def is_float(tensor: Tensor) -> bool:
    """Whether the tensor holds real numbers."""
    return tensor.is_floating_point()


def to_torch(proto: TensorProto, dtype: torch.dtype) -> Tensor:
    """A stored tensor; real numbers in `dtype`, where a number beyond its range becomes its largest, not infinity."""
    array = numpy_helper.to_array(proto)
    if proto.data_type in INTEGERS:
        return torch.from_numpy(np.array(array.astype(_numpy(INTEGERS[proto.data_type]))))
    if proto.data_type != TensorProto.DOUBLE:
        return torch.from_numpy(np.array(array.astype(np.float32))).to(dtype)
    double, limit = torch.from_numpy(np.array(array)), torch.finfo(dtype).max
    return torch.where(double.isinf(), double, double.clamp(-limit, limit)).to(dtype)


def _numpy(dtype: torch.dtype) -> Any:
    return torch.empty((), dtype=dtype).numpy().dtype


def attribute_value(attribute: AttributeProto, dtype: torch.dtype) -> Any:
    """An attribute as a plain value: number, text, list of these, or tensor."""
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return to_torch(value, dtype)
    if attribute.type == AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def ints(values: Ints) -> list[int]:
    """Sizes, axes or positions as a list, whether they came as an attribute or as a tensor."""
    if values is None:
        return []
    if isinstance(values, Tensor):
        return [int(value) for value in values.flatten().tolist()]
    return [values] if isinstance(values, int) else [int(value) for value in values]


def align(values: Tensor, rank: int, axis: int = 1) -> Tensor:
    """A vector along `axis` of a tensor of `rank` dimensions: [C] → [1, C, 1, …]."""
    return values.reshape([1] * axis + list(values.shape) + [1] * (rank - axis - values.dim()))


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
