"""Arithmetic: operators that treat every element alike, and matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from audit.model.onnx.layer import DENSE_DOMAIN
from audit.model.onnx.ops.registry import Function, converter, operator
from audit.model.onnx.ops.values import (
    Graph,
    Ints,
    OnnxMapping,
    OnnxNode,
    OperationConverterResult,
    align,
    ints,
    is_float,
)

UNARY: dict[str, Function] = {
    "Abs": torch.abs, "Neg": torch.neg, "Exp": torch.exp, "Log": torch.log, "Sqrt": torch.sqrt, "Erf": torch.erf,
    "Sign": torch.sign, "Reciprocal": torch.reciprocal, "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round,
    "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan,
    "Sinh": torch.sinh, "Cosh": torch.cosh, "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh,
    "IsNaN": torch.isnan, "Not": torch.logical_not, "BitwiseNot": torch.bitwise_not, "Det": torch.linalg.det,
}  # fmt: skip
BINARY: dict[str, Function] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul,
    "Equal": torch.eq, "Less": torch.lt, "LessOrEqual": torch.le, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip


def _binary(function: Function) -> Function:
    """Before opset 7 the second operand is laid along `axis` of the first; since then, shapes broadcast as in NumPy."""

    def compute(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if axis is not None and b.dim() < a.dim():
            b = align(b, a.dim(), axis % a.dim())
        result: Tensor = function(a, b)
        return result

    return compute


for _name, _function in UNARY.items():
    operator(_name)(_function)
for _name, _function in BINARY.items():
    operator(_name)(_binary(_function))


@operator("Div")
@_binary
def _divide(a: Tensor, b: Tensor) -> Tensor:
    return a / b if is_float(a) else torch.div(a, b, rounding_mode="trunc")


@operator("Pow")
@_binary
def _power(a: Tensor, b: Tensor) -> Tensor:
    return torch.pow(a, b).to(a.dtype)


@operator("Mod")
def _modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@operator("BitShift")
def _shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    return torch.bitwise_left_shift(a, b) if direction == "LEFT" else torch.bitwise_right_shift(a, b)


@operator("IsInf")
def _is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return (torch.isposinf(x) & bool(detect_positive)) | (torch.isneginf(x) & bool(detect_negative))


@operator("Sum")
def _sum(*inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs)


@operator("Mean")
def _mean(*inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs) / len(inputs)


@operator("Max")
def _maximum(*inputs: Tensor) -> Tensor:
    return reduce(torch.maximum, inputs)


@operator("Min")
def _minimum(*inputs: Tensor) -> Tensor:
    return reduce(torch.minimum, inputs)


@operator("Where")
def _where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@operator("Clip")
def _clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None, *,
          min: float | None = None, max: float | None = None) -> Tensor:  # fmt: skip
    lower, upper = (low if low is not None else min), (high if high is not None else max)
    if lower is not None:
        x = x.clamp(min=lower)
    return x if upper is None else x.clamp(max=upper)


@operator("Identity")
def _identity(x: Tensor) -> Tensor:
    return x


@operator("Dropout")
def _dropout(x: Tensor, ratio_input: Tensor | None = None, training: Tensor | None = None, *,
             ratio: float = 0.5, seed: int = 0, outputs: int) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    return x if outputs == 1 else (x, torch.ones_like(x, dtype=torch.bool))


# matrix products: dense layers, which `onnx.dense` has found and named, and the products that are none


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


# The numeric part of ai.onnx.ml: what scikit-learn exports put before and after their products.


DOMAIN = "ai.onnx.ml"


def _real(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def _row(values: list[float] | None, default: float, like: Tensor) -> Tensor:
    return torch.tensor(values or [default], dtype=like.dtype, device=like.device)


@operator("Scaler", domain=DOMAIN)
def _scaler(x: Tensor, *, offset: list[float] | None = None, scale: list[float] | None = None, like: Tensor) -> Tensor:
    return (_real(x, like) - _row(offset, 0.0, like)) * _row(scale, 1.0, like)


@operator("Normalizer", domain=DOMAIN)
def _normalizer(x: Tensor, *, norm: str = "MAX", like: Tensor) -> Tensor:
    x = _real(x, like)
    if norm == "MAX":
        size = x.amax(-1, keepdim=True)  # onnxruntime takes the largest value, not the largest magnitude
    else:
        size = torch.linalg.vector_norm(x, 1 if norm == "L1" else 2, -1, keepdim=True)
    return x / torch.where(size == 0, torch.ones_like(size), size)


@operator("Imputer", domain=DOMAIN)
def _imputer(x: Tensor, *, imputed_value_floats: list[float] | None = None, imputed_value_int64s: Ints = None,
             replaced_value_float: float = 0.0, replaced_value_int64: int = 0, like: Tensor) -> Tensor:  # fmt: skip
    if imputed_value_floats:
        x = _real(x, like)
        missing = x.isnan() if replaced_value_float != replaced_value_float else x == replaced_value_float
        return torch.where(missing, _row(imputed_value_floats, 0.0, like), x)
    return torch.where(x == replaced_value_int64, torch.tensor(ints(imputed_value_int64s), device=x.device), x)


@operator("Binarizer", domain=DOMAIN)
def _binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def _array_feature_extractor(x: Tensor, index: Tensor) -> Tensor:
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    return rows.index_select(-1, index.flatten().long())


@operator("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(*inputs: Tensor, inputdimensions: Ints = None, like: Tensor) -> Tensor:
    return torch.cat([_real(x.reshape(x.shape[0], -1), like) for x in inputs], 1)


def _numeric(attributes: Mapping[str, Any]) -> bool:
    return not any("string" in name for name in attributes if name != "default_string")


@operator("LabelEncoder", domain=DOMAIN, accepts=_numeric)
def _label_encoder(x: Tensor, *, keys_int64s: Ints = None, keys_floats: list[float] | None = None,
                   keys_tensor: Tensor | None = None, values_int64s: Ints = None,
                   values_floats: list[float] | None = None, values_tensor: Tensor | None = None,
                   default_int64: int = -1, default_float: float = -0.0, default_string: str = "",
                   default_tensor: Tensor | None = None, like: Tensor) -> Tensor:  # fmt: skip
    keys = next(torch.as_tensor(k) for k in (keys_tensor, keys_int64s, keys_floats) if k is not None)
    values = next(torch.as_tensor(v) for v in (values_tensor, values_int64s, values_floats) if v is not None)
    whole = not values.is_floating_point()
    other = default_tensor if default_tensor is not None else torch.tensor(default_int64 if whole else default_float)
    values, other = (part.to(x.device, values.dtype if whole else like.dtype) for part in (values, other.reshape(())))
    keys = keys.to(x.device, x.dtype)
    same = (x.unsqueeze(-1) == keys) | ((x != x).unsqueeze(-1) & (keys != keys))
    return torch.where(same.any(-1), values[same.int().argmax(-1)], other)


@operator("OneHotEncoder", domain=DOMAIN, accepts=_numeric)
def _one_hot_encoder(x: Tensor, *, cats_int64s: Ints = None, zeros: int = 1, like: Tensor) -> Tensor:
    return _real(x.long().unsqueeze(-1) == torch.tensor(ints(cats_int64s), device=x.device), like)


@operator("LinearRegressor", domain=DOMAIN)
def _linear_regressor(x: Tensor, *, coefficients: list[float], intercepts: list[float] | None = None,
                      post_transform: str = "NONE", targets: int = 1, like: Tensor) -> Tensor:  # fmt: skip
    y = _real(x, like) @ torch.tensor(coefficients, dtype=like.dtype, device=like.device).reshape(targets, -1).T
    return _post_transform(y if not intercepts else y + _row(intercepts, 0.0, like), post_transform)


def _post_transform(scores: Tensor, name: str) -> Tensor:
    if name == "SOFTMAX":
        return torch.softmax(scores, -1)
    return torch.sigmoid(scores) if name == "LOGISTIC" else scores
