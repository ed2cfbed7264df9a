"""Operators that treat every element alike: arithmetic, comparison, logic, rounding, selection."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from audit.model.onnx.ops.registry import Function, operator
from audit.model.onnx.ops.tensors import align, is_float

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
