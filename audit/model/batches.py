"""Samples as a network takes them: in its number type, in batches of the size it insists on; and whether it does.

This is the one place where samples are cast and where a batch is filled up, for networks and for reference runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from audit.model.base import InputSpec, Model, Reference, quiet

FREE_SIZES = (8, 16, 32, 64, 224)
"""What to try for sizes of a sample that a file leaves open."""
SEED = 0

Samples = TypeVar("Samples", Tensor, NDArray[Any])


def float_type(network: nn.Module) -> torch.dtype:
    """The float type a network computes in: that of its weights."""
    floats = (tensor.dtype for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point())
    return next(floats, torch.float32)


def as_fed(network: nn.Module, x: Tensor) -> Tensor:
    """Samples on the network's device and in its float type; whole numbers such as tokens stay whole.

    >>> as_fed(nn.Linear(2, 1).double(), torch.ones(1, 2)).dtype, as_fed(nn.Linear(2, 1), torch.tensor([[7]])).dtype
    (torch.float64, torch.int64)
    """
    device = next((tensor.device for tensor in (*network.parameters(), *network.buffers())), x.device)
    return x.to(device, float_type(network) if x.is_floating_point() else x.dtype)


def filled(x: Samples, size: int) -> Samples:
    """Samples [n, ...] with the last one repeated until n is a multiple of `size`.

    >>> filled(np.arange(5), 4).tolist()
    [0, 1, 2, 3, 4, 4, 4, 4]
    """
    missing = -len(x) % size
    return x[np.minimum(np.arange(len(x) + missing), len(x) - 1)] if missing else x


def batches(x: Samples, size: int | None) -> Iterator[tuple[Samples, int]]:
    """Batches of exactly `size` samples (None: all at once), each with how many of its samples are not filling."""
    size = size or max(len(x), 1)
    for start in range(0, len(x), size):
        part = x[start : start + size]
        yield filled(part, size), len(part)


def reference_of(
    forward: Callable[..., Tensor], dtypes: Sequence[torch.dtype], batch: int | None, smallest: int = 1
) -> Reference:
    """`forward` from arrays to arrays, fed in the batch size it insists on, and with no fewer samples than it takes."""

    def run(*inputs: NDArray[Any]) -> NDArray[Any]:
        answers, n = [], len(inputs[0])
        for rows, count in batches(np.arange(n), batch or max(n, smallest)):
            fed = [torch.from_numpy(np.ascontiguousarray(x[rows])) for x in inputs]
            with torch.no_grad(), quiet():
                answer = forward(*(x.to(dtype) for x, dtype in zip(fed, dtypes, strict=True)))[:count]
            answers.append(answer.to("cpu", torch.promote_types(answer.dtype, torch.float32)).numpy())
        return np.concatenate(answers)

    return run


def runs(network: nn.Module, *x: Tensor) -> bool:
    """Whether a forward pass on x comes to an end."""
    try:
        with torch.no_grad(), quiet():
            network(*x)
    except Exception:  # a user's forward may raise anything; all of it means no
        return False
    return True


def accepts(model: Model, shape: tuple[int, ...]) -> bool:
    """Whether the network takes samples of this shape."""
    declared = model.input.shape
    if declared is not None and None not in declared:
        return tuple(shape) == declared
    if declared is not None:
        if len(shape) != len(declared) or any(
            want not in (None, size) for want, size in zip(declared, shape, strict=True)
        ):
            return False
        return runs(model.network, torch.zeros((model.input.batch or 2, *shape), dtype=model.input.dtype))
    kinds = (float_type(model.network), torch.int64)
    return any(runs(model.network, torch.zeros((2, *shape), dtype=kind)) for kind in kinds)


def alike(model: Model, inputs: Sequence[NDArray[Any]]) -> bool:
    """Whether the network gives the same answer to each of these batches."""
    answers = []
    for x in inputs:
        kind = float_type(model.network) if model.input.dtype.is_floating_point else model.input.dtype
        with torch.no_grad(), quiet():
            answers.append(tree_leaves(model.network(torch.from_numpy(np.ascontiguousarray(x)).to(kind))))
    return all(_equal(answers[0], other) for other in answers[1:])


def _equal(first: list[Any], second: list[Any]) -> bool:
    tensors = [[leaf for leaf in leaves if isinstance(leaf, Tensor)] for leaves in (first, second)]
    if [leaf.shape for leaf in tensors[0]] != [leaf.shape for leaf in tensors[1]]:
        return False
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*tensors, strict=True))


def trial_batches(inputs: Sequence[InputSpec], count: int) -> Iterator[tuple[Tensor, ...]]:
    """Random batches of `count` samples for all inputs, one for every guess at the sizes that the file leaves open."""
    draws = torch.Generator().manual_seed(SEED)
    open_sizes = any(None in (spec.shape or ()) for spec in inputs)
    for guess in FREE_SIZES if open_sizes else FREE_SIZES[:1]:
        yield tuple(_drawn(spec, count, guess, draws) for spec in inputs)


def _drawn(spec: InputSpec, count: int, guess: int, draws: torch.Generator) -> Tensor:
    """Standard normal floats, zeros and ones for whole numbers; a mask that hides nothing."""
    sizes = (count, *(guess if size is None else size for size in spec.shape or ()))
    if "mask" in spec.name.lower():
        return torch.ones(sizes, dtype=spec.dtype)
    floats = spec.dtype.is_floating_point
    drawn = torch.randn(sizes, generator=draws) if floats else torch.randint(0, 2, sizes, generator=draws)
    return drawn.to(spec.dtype)
