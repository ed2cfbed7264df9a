"""Operators that fold axes away or run along one: sums, means, extremes, norms, cumulative sums, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import Function, operator
from audit.model.onnx.ops.values import Ints, ints, is_float

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


# Fourier transforms, with complex numbers as a last axis of two


@operator("DFT")
def _dft(x: Tensor, length: Tensor | None = None, axis_input: Tensor | None = None, *, axis: int | None = None,
         inverse: int = 0, onesided: int = 0, opset: int) -> Tensor:  # fmt: skip
    default = 1 if opset < 20 else -2
    along = int(axis_input) if axis_input is not None else default if axis is None else axis
    along = along % x.dim()
    size = None if length is None else int(length)
    if inverse and onesided:
        signal: Tensor = torch.fft.irfft(torch.view_as_complex(x.contiguous()), size, along)
        return signal.unsqueeze(-1)
    signal = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else torch.complex(x[..., 0], x[..., 0] * 0)
    spectrum = torch.fft.ifft(signal, size, along) if inverse else torch.fft.fft(signal, size, along)
    if onesided:
        spectrum = spectrum.narrow(along, 0, spectrum.shape[along] // 2 + 1)
    return torch.view_as_real(spectrum)


@operator("STFT")
def _stft(x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None, *,
          onesided: int = 1) -> Tensor:  # fmt: skip
    signal = x[..., 0] if x.dim() == 3 and x.shape[-1] == 1 else x
    size = int(length) if length is not None else len(window) if window is not None else signal.shape[1]
    if signal.dim() == 3:
        signal = torch.view_as_complex(signal.contiguous())
    frames = signal.unfold(1, size, int(step))  # [n, frames, size]
    if window is not None:
        frames = frames * F.pad(window, [0, size - len(window)])
    spectrum = torch.fft.fft(frames, dim=-1)
    return torch.view_as_real(spectrum[..., : size // 2 + 1] if onesided else spectrum)
