"""An operator that torch has no derivative of is a sentence, whichever words torch has for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import audit
from audit.errors import ModelError

OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "igamma": lambda h: torch.igamma(h.abs() + 1, h.abs() + 1),
    "zeta": lambda h: torch.special.zeta(h.abs() + 2, h.abs() + 1),
    "heaviside": lambda h: torch.heaviside(h, torch.zeros(1, dtype=h.dtype)),
    "does not require grad": lambda h: (h > 0).to(h.dtype),
}


class Through(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.name, self.last = nn.Linear(4, 5), name, nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(OPERATORS[self.name](self.first(x)))


@pytest.mark.parametrize("name", OPERATORS)
def test_it_is_named(name: str) -> None:
    torch.manual_seed(0)
    draws = np.random.default_rng(0)
    x = draws.normal(size=(30, 4)).astype(np.float32)
    split = x, (x[:, 0] > 0).astype(np.int64)
    with pytest.raises(ModelError, match=rf"has an operator that torch cannot differentiate \(.*{name}.*\), and an"):
        audit.audit_model(Through(name), split, split)
