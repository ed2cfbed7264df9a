"""Operators that fold axes away or run along one: sums, means, extremes, norms, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from audit.model.onnx.ops.registry import Function, operator
from audit.model.onnx.ops.tensors import Ints, ints, is_float

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _reduction(compute: Reduction) -> Function:
    """Axes are an attribute in early versions and an input since; none given means all, unless the node says none."""

    def reduce(x: Tensor, axes_input: Tensor | None = None, *, axes: Ints = None, keepdims: int = 1,
               noop_with_empty_axes: int = 0) -> Tensor:  # fmt: skip
        given = ints(axes_input if axes_input is not None else axes)
        if not given and noop_with_empty_axes:
            return compute(x.unsqueeze(0), [0], False)
        dims = sorted(axis % x.dim() for axis in given) if given else list(range(x.dim()))
        return compute(x, dims, bool(keepdims)) if dims else compute(x.unsqueeze(0), [0], False)

    return reduce


def _in_own_type(x: Tensor, result: Tensor) -> Tensor:
    return result.to(x.dtype)


def _sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _in_own_type(x, x.sum(dims, keepdim=keep))


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if is_float(x):
        return x.mean(dims, keepdim=keep)
    return torch.div(x.sum(dims, keepdim=keep), math.prod(x.shape[d] for d in dims), rounding_mode="trunc").to(x.dtype)


def _product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    result = x
    for axis in reversed(dims):
        result = result.prod(axis, keepdim=keep)
    return _in_own_type(x, result)


def _extreme(function: Function, neutral: Callable[[Tensor], float]) -> Reduction:
    def compute(x: Tensor, dims: list[int], keep: bool) -> Tensor:
        if all(x.shape[axis] for axis in dims):
            result: Tensor = function(x, dims, keepdim=keep)
            return result
        return x.sum(dims, keepdim=keep).to(x.dtype) * 0 + neutral(x)  # over nothing

    return compute


def _lowest(x: Tensor) -> float:
    return -math.inf if is_float(x) else False if x.dtype == torch.bool else torch.iinfo(x.dtype).min


def _highest(x: Tensor) -> float:
    return math.inf if is_float(x) else True if x.dtype == torch.bool else torch.iinfo(x.dtype).max


def _l1(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _sum(x.abs(), dims, keep)


def _l2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if is_float(x):
        norm: Tensor = torch.linalg.vector_norm(x, dim=dims, keepdim=keep)
        return norm
    return _in_own_type(x, torch.linalg.vector_norm(x.double(), dim=dims, keepdim=keep))


def _sum_square(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _sum(x * x, dims, keep)


def _log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _in_own_type(x, x.sum(dims, keepdim=keep).log())


def _log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _in_own_type(x, torch.logsumexp(x if is_float(x) else x.double(), dims, keepdim=keep))


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": _product,
    "ReduceMax": _extreme(torch.amax, _lowest),
    "ReduceMin": _extreme(torch.amin, _highest),
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
for _name, _compute in REDUCTIONS.items():
    operator(_name)(_reduction(_compute))


@operator("CumSum")
def _cumulative_sum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    dim = int(axis)
    source = x.flip(dim) if reverse else x
    total = source.cumsum(dim).to(x.dtype)
    if exclusive:
        total = total - source
    return total.flip(dim) if reverse else total


@operator("CumProd")
def _cumulative_product(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    dim = int(axis)
    source = x.flip(dim) if reverse else x
    if exclusive and source.shape[dim]:
        kept = source.narrow(dim, 0, source.shape[dim] - 1)
        source = torch.cat([torch.ones_like(source.narrow(dim, 0, 1)), kept], dim)
    product = source.cumprod(dim).to(x.dtype)
    return product.flip(dim) if reverse else product
