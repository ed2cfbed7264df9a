"""Resampling. Every way of resizing is separable: along each axis it is one matrix from old places to new ones."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import Ints, ints

SIMPLE = "simple"
"""What onnxruntime calls the rounding of the first versions, which had no name for it: down, or up where it shrinks."""

HALF_WAY = 1e-6  # how near to half-way between two places onnxruntime takes for half-way

Places = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Resampling:
    """How places and weights are computed, in ONNX's words."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float

    def matrix(self, old: int, new: int, scale: float, roi: tuple[float, float], like: Tensor) -> Tensor:
        """Weights [new, old] of every old place in every new one."""
        if self.mode == "nearest":
            nearest = self._nearest(self._origin(old, new, scale, roi, np.float32), scale).clip(0, old - 1)
            return torch.eye(old, dtype=like.dtype, device=like.device)[torch.from_numpy(nearest).to(like.device)]
        place = torch.from_numpy(self._origin(old, new, scale, roi, np.float64)).to(like)
        squeeze = min(1.0, scale) if self.antialias else 1.0
        reach = math.ceil((1 if self.mode == "linear" else 2) / squeeze)
        first = place.floor().long() - reach
        taps = first.unsqueeze(1) + torch.arange(2 * reach + 2, device=like.device)  # [new, taps]
        weight = self.kernel((taps - place.unsqueeze(1)) * squeeze)
        if self.exclude_outside:
            weight = weight * ((taps >= 0) & (taps < old))
        weight = weight / weight.sum(1, keepdim=True)
        return like.new_zeros(new, old).scatter_add(1, taps.clamp(0, old - 1), weight)

    def outside(self, old: int, new: int, scale: float, roi: tuple[float, float], like: Tensor) -> Tensor:
        """New places that a crop puts beyond the old image."""
        place = self._origin(old, new, scale, roi, np.float32)
        return torch.from_numpy((place < 0) | (place > old - 1)).to(like.device)

    def _origin(self, old: int, new: int, scale: float, roi: tuple[float, float], number: type[Any]) -> Places:
        """The old place of each new one [new].

        Where places are rounded to whole ones, the number type and the order of the steps are onnxruntime's: what
        lies half-way between two of them is decided by the last bit.
        """
        i: Places = np.arange(new, dtype=number)
        factor, half, last = number(scale), number(0.5), number(old - 1)
        place: Places = (i + half) / factor - half
        if self.coordinates == "align_corners":
            place = i * last / number(max(new - 1, 1))
        elif self.coordinates == "asymmetric":
            place = i / factor
        elif self.coordinates == "pytorch_half_pixel" and new == 1:
            place = i
        elif self.coordinates == "tf_half_pixel_for_nn":
            place = (i + half) / factor
        elif self.coordinates == "tf_crop_and_resize":
            start, end = number(roi[0]), number(roi[1])
            middle = half * (start + end) * last
            place = start * last + i * (end - start) * last / number(new - 1) if new > 1 else i + middle
        elif self.coordinates == "half_pixel_symmetric":
            shift = number(old) / number(2) * (number(1) - number(new) / (factor * number(old)))
            place = (float(shift) + (np.arange(new) + 0.5) / float(factor) - 0.5).astype(number)
        return place

    def _nearest(self, place: Places, scale: float) -> NDArray[np.int64]:
        if self.nearest == SIMPLE:
            rounded = np.ceil(place) if scale < 1 else np.floor(place)
        elif self.nearest == "round_prefer_floor":
            rounded = np.ceil(place.astype(np.float64) - 0.5 - HALF_WAY)
        elif self.nearest == "round_prefer_ceil":
            rounded = np.floor(place.astype(np.float64) + 0.5 + HALF_WAY)
        else:
            rounded = np.ceil(place) if self.nearest == "ceil" else np.floor(place)
        return rounded.astype(np.int64)

    def kernel(self, distance: Tensor) -> Tensor:
        """The weight of a neighbour at this distance."""
        x = distance.abs()
        if self.mode == "linear":
            return (1 - x).clamp(min=0)
        a = self.cubic
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return torch.where(x <= 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


@operator("Resize", "Upsample")
def _resize(x: Tensor, *inputs: Tensor | None, scales: list[float] | None = None, mode: str = "nearest",
            antialias: int = 0, axes: Ints = None, coordinate_transformation_mode: str = "half_pixel",
            cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
            keep_aspect_ratio_policy: str = "stretch", nearest_mode: str = "round_prefer_floor",
            opset: int) -> Tensor:  # fmt: skip
    if opset < 11:  # Upsample, and Resize-10: (x, scales), places by division
        inputs = (None, *inputs)
        coordinate_transformation_mode, nearest_mode = "asymmetric", SIMPLE
    roi, factors, sizes = (*inputs, None, None, None)[:3]
    how = Resampling(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside),
                     bool(antialias), extrapolation_value)  # fmt: skip
    dims = [axis % x.dim() for axis in ints(axes)] if axes is not None else list(range(x.dim()))
    factors = factors if factors is not None and factors.numel() else None
    plan = _plan(x, dims, scales if factors is None else factors.tolist(), sizes, keep_aspect_ratio_policy)
    corners = roi.tolist() if roi is not None and roi.numel() else [0.0] * len(dims) + [1.0] * len(dims)
    like, original = x, x
    for i, (axis, (new, scale)) in enumerate(zip(dims, plan, strict=True)):
        window = (corners[i], corners[i + len(dims)])
        if new == original.shape[axis] and scale == 1:  # then onnxruntime does not crop, either
            continue
        weight = how.matrix(original.shape[axis], new, scale, window, like)
        x = torch.tensordot(x, weight, ([axis], [1])).movedim(-1, axis)
        if how.coordinates == "tf_crop_and_resize":
            out = how.outside(original.shape[axis], new, scale, window, like)
            shape = [-1 if d == axis else 1 for d in range(x.dim())]
            x = torch.where(out.reshape(shape), torch.full_like(x, how.extrapolation), x)
    return x


def _plan(
    x: Tensor, dims: list[int], factors: list[float] | None, sizes: Tensor | None, policy: str
) -> list[tuple[int, float]]:
    """New size and scale along each axis, from either."""
    if factors is not None:
        lengths = [np.float32(x.shape[axis]) * np.float32(scale) for axis, scale in zip(dims, factors, strict=True)]
        return list(zip(map(int, lengths), factors, strict=True))  # in single precision, where 0.7 of 10 are 7
    wanted = ints(sizes)
    scales = [new / x.shape[axis] for axis, new in zip(dims, wanted, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        return [(math.floor(scale * x.shape[axis] + 0.5), scale) for axis in dims]
    return list(zip(wanted, scales, strict=True))


@operator("GridSample")
def _grid_sample(x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear",
                 padding_mode: str = "zeros") -> Tensor:  # fmt: skip
    """Read x [n, c, *sizes] at the places of grid [n, *out, d] in [-1, 1], the last coordinate first."""
    sizes = list(x.shape[2:])
    places, weights = [], []
    for axis, size in enumerate(sizes):
        unit = grid[..., len(sizes) - 1 - axis]
        place = (unit + 1) * (size - 1) / 2 if align_corners else ((unit + 1) * size - 1) / 2
        taps, weight = _taps(place, mode)
        places.append(taps)
        weights.append(weight)
    return _blend(x, places, weights, padding_mode, bool(align_corners))


def _taps(place: Tensor, mode: str) -> tuple[list[Tensor], list[Tensor]]:
    """Whole places around a real one, and the weight of each."""
    if mode == "nearest":
        return [place.round()], [torch.ones_like(place)]
    base = place.floor().detach()
    cubic = mode in ("cubic", "bicubic")
    kernel = Resampling("cubic" if cubic else "linear", "", "", -0.75, False, False, 0.0)
    taps = [base + i for i in (range(-1, 3) if cubic else range(2))]
    return taps, [kernel.kernel(place - tap) for tap in taps]


def _reflect(place: Tensor, size: int, align_corners: bool) -> Tensor:
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return torch.zeros_like(place)
    folded = (place - low) % (2 * span)
    return torch.where(folded > span, 2 * span - folded, folded) + low


def _blend(
    x: Tensor, places: list[list[Tensor]], weights: list[list[Tensor]], padding: str, align_corners: bool
) -> Tensor:
    """The weighted sum over all combinations of taps, one per axis."""
    n, c, *sizes = x.shape
    flat = x.reshape(n, c, -1)
    shape = places[0][0].shape[1:]
    total = x.new_zeros(n, c, *shape)
    for combination in itertools.product(*(range(len(taps)) for taps in places)):
        index = torch.zeros_like(places[0][0], dtype=torch.long)
        weight = torch.ones_like(places[0][0])
        for axis, (tap, size) in enumerate(zip(combination, sizes, strict=True)):
            place = places[axis][tap]
            if padding == "reflection":
                place = _reflect(place, size, align_corners)
            inside = (place >= 0) & (place <= size - 1)
            weight = weight * weights[axis][tap] * (inside if padding == "zeros" else 1)
            index = index * size + place.round().clamp(0, size - 1).long()
        value = flat.gather(2, index.reshape(n, 1, -1).expand(n, c, -1)).reshape(n, c, *shape)
        total = total + value * weight.unsqueeze(1)
    return total


@operator("AffineGrid")
def _affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    axes = []
    for length in ints(size)[2:]:
        i = torch.arange(length, dtype=theta.dtype, device=theta.device)
        axes.append((2 * i / (length - 1) - 1) if align_corners and length > 1 else (2 * i + 1) / length - 1)
    mesh = torch.meshgrid(*axes, indexing="ij")
    points = torch.stack([*reversed(mesh), torch.ones_like(mesh[0])], -1)  # [*out, d + 1]
    return torch.einsum("...j,nij->n...i", points, theta)
