"""Operators that pick elements or put them elsewhere: slice, gather, scatter, top-k, one-hot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.values import Ints, ints

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Slice")
def _slice(x: Tensor, starts_input: Tensor | None = None, ends_input: Tensor | None = None,
           axes_input: Tensor | None = None, steps: Tensor | None = None, *,
           starts: Ints = None, ends: Ints = None, axes: Ints = None) -> Tensor:  # fmt: skip
    first = ints(starts_input if starts_input is not None else starts)
    last = ints(ends_input if ends_input is not None else ends)
    dims = ints(axes_input if axes_input is not None else axes) or list(range(len(first)))
    strides = ints(steps) or [1] * len(first)
    for axis, start, stop, step in zip(dims, first, last, strides, strict=True):
        places = range(*slice(start, stop, step).indices(x.shape[axis]))  # bounds may be the ends of int64
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(places.start, places.stop, step),)]
        else:  # torch has no backward slices
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.long, device=x.device))
    return x


def _wrap(index: Tensor, size: int) -> Tensor:
    return torch.where(index < 0, index + size, index).long()


class LookUp(nn.Embedding):
    """An embedding that counts negative row numbers from the end, as ONNX does."""

    def forward(self, input: Tensor) -> Tensor:
        """The rows, [..., width]."""
        return super().forward(_wrap(input, self.num_embeddings))


def _look_up(weights: Mapping[int, nn.Parameter], attributes: Mapping[str, Any]) -> nn.Module | None:
    """Rows of one matrix: as an embedding of torch's, whose gradients have a closed form."""
    if 0 not in weights or weights[0].dim() != 2 or attributes.get("axis", 0) % 2:
        return None
    rows, width = weights[0].shape
    found = LookUp(rows, width, _weight=weights[0].data)
    found.weight = weights[0]
    return found


@operator("Gather", kind="embedding", weights={0: "weight"}, own=_look_up)
def _gather(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    axis = axis % x.dim()
    picked = x.index_select(axis, _wrap(index, x.shape[axis]).flatten())
    return torch.reshape(picked, [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def _gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    return x.gather(axis, _wrap(index, x.shape[axis]))


def _rows(index: Tensor, sizes: list[int]) -> Tensor:
    """Index tuples [..., k] into dimensions of these sizes, as places in their flattened product [...]."""
    place = torch.zeros(index.shape[:-1], dtype=torch.long, device=index.device)
    for i, size in enumerate(sizes):
        place = place * size + _wrap(index[..., i], size)
    return place


@operator("GatherND")
def _gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    batch, depth = list(x.shape[:batch_dims]), index.shape[-1]
    sizes = list(x.shape[batch_dims : batch_dims + depth])
    rest = list(x.shape[batch_dims + depth :])
    count = math.prod(batch)
    place = _rows(index, sizes).reshape(count, -1)
    place = place + torch.arange(count, device=x.device).unsqueeze(1) * math.prod(sizes)
    picked = x.reshape([-1, *rest]).index_select(0, place.flatten())
    return torch.reshape(picked, [*index.shape[:-1], *rest])


@operator("ScatterND")
def _scatter_nd(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = index.shape[-1]
    rest = math.prod(x.shape[depth:])
    rows = x.reshape(-1, rest)
    place = _rows(index, list(x.shape[:depth])).reshape(-1, 1).expand(-1, rest)
    return _scatter(rows, 0, place, updates.reshape(-1, rest), reduction).reshape(x.shape)


def _scatter(x: Tensor, axis: int, index: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, REDUCTIONS[reduction])


@operator("ScatterElements", "Scatter")
def _scatter_elements(x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    return _scatter(x, axis, _wrap(index, x.shape[axis]), updates, reduction)


@operator("TopK")
def _top_k(x: Tensor, count: Tensor | None = None, *, k: int = 1, axis: int = -1, largest: int = 1,
           sorted: int = 1) -> tuple[Tensor, Tensor]:  # fmt: skip
    size = k if count is None else int(count)
    # a stable sort, so that of equal values the earlier comes first, as in ONNX
    order = x.argsort(dim=axis, descending=bool(largest), stable=True).narrow(axis, 0, size)
    return x.gather(axis, order), order


@operator("ArgMax")
def _arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmax(axis, keepdim=bool(keepdims))
    return x.argmax(axis, keepdim=bool(keepdims))


@operator("ArgMin")
def _arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmin(axis, keepdim=bool(keepdims))
    return x.argmin(axis, keepdim=bool(keepdims))


@operator("OneHot")
def _one_hot(index: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    size = int(depth)
    axis = axis % (index.dim() + 1)
    classes = torch.arange(size, device=index.device).reshape([-1] + [1] * (index.dim() - axis))
    place = index.long().unsqueeze(axis)
    hit = torch.where(place < 0, place + size, place) == classes
    return torch.where(hit, values[1], values[0])


@operator("Compress")
def _compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    flat, dim = (x.flatten(), 0) if axis is None else (x, axis)
    return flat.index_select(dim, condition.nonzero().flatten())


@operator("NonZero")
def _non_zero(x: Tensor) -> Tensor:
    return x.nonzero().T


@operator("Trilu")
def _trilu(x: Tensor, diagonal: Tensor | None = None, *, upper: int = 1) -> Tensor:
    k = 0 if diagonal is None else int(diagonal)
    return x.triu(k) if upper else x.tril(k)


@operator("TensorScatter")
def _tensor_scatter(cache: Tensor, update: Tensor, start: Tensor | None = None, *, axis: int = -2,
                    mode: str = "linear") -> Tensor:  # fmt: skip
    axis = axis % cache.dim()
    begin = torch.zeros(len(cache), dtype=torch.long, device=cache.device) if start is None else start
    place = begin.unsqueeze(1) + torch.arange(update.shape[axis], device=cache.device)  # [n, length]
    place = place % cache.shape[axis] if mode == "circular" else place
    shape = [len(place) if i == 0 else place.shape[1] if i == axis else 1 for i in range(cache.dim())]
    return cache.scatter(axis, place.reshape(shape).expand(update.shape), update)
