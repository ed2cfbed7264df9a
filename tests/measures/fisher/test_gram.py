"""Determinants of Gram matrices that are singular, or nearly so."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.measures.fisher.determinant import log_determinants


def vectors(lengths: list[float], seed: int) -> torch.Tensor:
    """Unit vectors, as many as `lengths`, whose matrix has about these singular values."""
    torch.manual_seed(seed)
    n = len(lengths)
    U, V = (torch.linalg.qr(torch.randn(size, n, dtype=torch.float64)).Q for size in (n, 2 * n))
    G = U * torch.tensor(lengths, dtype=torch.float64) @ V.T
    return G / G.norm(dim=1, keepdim=True)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), smallest=st.floats(3e-6, 1e-3))
def test_dependent_vectors_are_found_however_ill_conditioned_the_others_are(seed: int, smallest: float) -> None:
    """Rounding makes pivots of such a Gram matrix that are far larger than its last eigenvalue, which is zero."""
    G = vectors([1.0, 0.5, 1e-2, smallest, 2 * smallest, 0.3, 0.0], seed)
    dets = log_determinants((G @ G.T)[None])
    assert not bool(dets.regular[0])
    assert int(dets.zero_gradients[0]) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), smallest=st.floats(1e-4, 1.0))
def test_independent_vectors_have_the_determinant_of_their_singular_values(seed: int, smallest: float) -> None:
    G = vectors([1.0, 0.5, 1e-2, smallest, 0.3], seed)
    dets = log_determinants((G @ G.T)[None])
    expected = 2 * float(torch.linalg.svdvals(G).log().sum())
    assert bool(dets.regular[0])
    assert abs(float(dets.angles[0]) - expected) <= 1e-6 * abs(expected)
