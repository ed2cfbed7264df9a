"""Gram matrices of gradients that are formed already, few or many at a time."""

from __future__ import annotations

import pytest
import torch
from tolerances import CANCELS, ROUNDING

from audit.measures.fisher.gram import formed_grams


@pytest.mark.parametrize("most", [1, 50, 1 << 20])
def test_every_subset_has_the_products_of_its_own_gradients(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("audit.measures.fisher.gram.CACHED_GATHER", most)
    G = torch.randn(9, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    subsets = torch.tensor([[0, 1, 2], [8, 3, 5], [4, 4, 6]])
    expected = torch.stack([G[rows] @ G[rows].T for rows in subsets])
    torch.testing.assert_close(formed_grams(G, subsets), expected, rtol=ROUNDING, atol=CANCELS)
