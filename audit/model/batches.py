"""Whether a network takes a shape, and its canonical form once a sample is at hand: weights alone do not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from audit.model.base import Model
from audit.model.foreign import float_type, quiet
from audit.settings import Settings


def trace(model: Model, example: Tensor, *, settings: Settings | None = None) -> Model:
    """`model` in canonical form, found by running `example` [n, ...] through it; unchanged if it already is."""
    if model.input.shape is not None:
        return model
    from audit.model.torch.module import to_graph  # torch.export takes half a second to import

    return to_graph(model, example, settings or Settings(output=model.output or None))


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
        fed = torch.from_numpy(np.ascontiguousarray(x))
        kind = float_type(model.network) if model.input.dtype.is_floating_point else model.input.dtype
        with torch.no_grad(), quiet():
            answers.append(tree_leaves(model.network(fed.to(kind))))
    return all(_equal(answers[0], other) for other in answers[1:])


def _equal(first: list[Any], second: list[Any]) -> bool:
    tensors = [[leaf for leaf in leaves if isinstance(leaf, Tensor)] for leaves in (first, second)]
    if [leaf.shape for leaf in tensors[0]] != [leaf.shape for leaf in tensors[1]]:
        return False
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*tensors, strict=True))


def runs(network: nn.Module, x: Tensor) -> bool:
    """Whether a forward pass on x comes to an end."""
    try:
        with torch.no_grad(), quiet():
            network(x)
    except Exception:  # a user's forward may raise anything; all of it means no
        return False
    return True
