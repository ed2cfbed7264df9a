"""Several backward passes over one graph, side by side where the network's operators allow it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor


def pulled(of: Tensor, targets: Sequence[Tensor], cotangents: Tensor) -> list[Tensor]:
    """∂(of·v)/∂target for each v of `cotangents` [k, …]: [k, *shape] for each target."""
    k = len(cotangents)
    if k > 1:
        with suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
            found = torch.autograd.grad(
                of, targets, cotangents, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            return [t.new_zeros(k, *t.shape) if g is None else g for g, t in zip(found, targets, strict=True)]
    each = [torch.autograd.grad(of, targets, v, retain_graph=True, materialize_grads=True) for v in cotangents]
    return [torch.stack(column) for column in zip(*each, strict=True)]
