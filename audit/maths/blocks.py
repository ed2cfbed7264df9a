"""Work on a few samples at a time, so that what lies between two steps never leaves the processor's cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NUMBERS = 1 << 16  # in a block: ½ MB in float64


def in_blocks(work: Callable[..., Tensor], *tensors: Tensor, numbers: int = 0) -> Tensor:
    """work(*tensors) [n, …], a few rows at a time; `numbers` in a row of what lies between, where these are most.

    >>> in_blocks(lambda a, b: (a * b).sum(1), torch.ones(3, 2), torch.full((3, 2), 5.0))
    tensor([10., 10., 10.])
    """
    rows = max(1, NUMBERS // max(1, numbers, *(tensor[0].numel() for tensor in tensors)))
    return torch.cat([work(*parts) for parts in zip(*(torch.split(each, rows) for each in tensors), strict=True)])
