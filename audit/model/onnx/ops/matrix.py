"""Matrix products: dense layers, which the preparation has found and named, and the products that are none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from audit.model.onnx.layer import DENSE_DOMAIN
from audit.model.onnx.ops.registry import converter, operator
from audit.model.onnx.ops.values import Graph, OnnxMapping, OnnxNode, OperationConverterResult


@converter("Dense", domain=DENSE_DOMAIN)
def _dense(node: OnnxNode, graph: Graph) -> OperationConverterResult:
    """Build y = W x + b as an nn.Linear: one module for one pair (W, b), however often the graph uses it."""
    x, weight, *rest = node.input_values
    bias = rest[0] if rest and rest[0] else None
    key = ("Dense", weight, bias)
    if key not in graph.layers:
        size = graph.tensor(weight).shape
        layer = nn.Linear(size[1], size[0], bias is not None, device="meta")
        layer.weight = graph.parameter(weight)
        layer.bias = graph.parameter(bias) if bias is not None else None  # type: ignore[assignment]
        graph.layers[key] = layer
    return OperationConverterResult(graph.layers[key], OnnxMapping((x,), node.output_values))


@operator("Bias", domain=DENSE_DOMAIN, weights={1: "bias"})
def _bias(y: Tensor, bias: Tensor) -> Tensor:
    return y + bias


@operator("MatMul", weights={0: "left", 1: "weight"})
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@operator("Gemm", weights={0: "left", 1: "weight", 2: "bias"})
def gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
         transB: int = 0, broadcast: int = 0) -> Tensor:  # fmt: skip
    """Y = α A B + β C, either factor transposed where the node says so."""
    product = torch.matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else alpha * product
    return product if c is None else product + (c if beta == 1 else beta * c)


@operator("Einsum", weights={0: "left", 1: "weight", 2: "third"})
def _einsum(*inputs: Tensor, equation: str) -> Tensor:
    result: Tensor = torch.einsum(equation, *inputs)
    return result
