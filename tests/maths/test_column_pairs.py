"""Eigenpairs from columns: exact with all of them, and inside the promised bounds with some of them, always."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import CANCELS, EXACT, LOSSY, SOLVED

from audit.maths import gram
from audit.maths.gram import Columns, column_pairs


def made(k: int, T: int, out: int, into: int, seed: int = 0) -> tuple[Columns, torch.Tensor]:
    """Columns of very different energy, and the matrix that they are [k, out·in]."""
    generator = torch.Generator().manual_seed(seed)
    q, x = (torch.randn(k, T, size, generator=generator, dtype=torch.float64) for size in (out, into))
    q = q * torch.logspace(0, -3, k, dtype=torch.float64)[torch.randperm(k, generator=generator)][:, None, None]
    return Columns(q, x), torch.einsum("kto,kti->koi", q, x).flatten(1)


@pytest.mark.parametrize("shape", [(30, 1, 6, 7), (30, 5, 6, 7), (12, 40, 3, 2), (200, 9, 30, 20)])
def test_products_are_those_of_the_formed_columns(shape: tuple[int, int, int, int]) -> None:
    columns, A = made(*shape)
    torch.testing.assert_close(columns.gram(), A @ A.T, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(columns.energy(), A.square().sum(1), rtol=EXACT, atol=EXACT)
    u, p = (torch.randn(4, shape[1], size, dtype=torch.float64) for size in shape[2:])
    others = torch.einsum("kto,kti->koi", u, p).flatten(1)
    torch.testing.assert_close(columns.inner(u, p), others @ A.T, rtol=EXACT, atol=EXACT)
    weights = torch.randn(len(A), dtype=torch.float64)
    M = torch.einsum("k,kn->n", weights, A).reshape(shape[2:])
    torch.testing.assert_close(columns.combined(weights), M, rtol=EXACT, atol=EXACT)
    for rows in (1, 100):  # in factors, and formed
        x = torch.randn(rows, shape[3], dtype=torch.float64)
        torch.testing.assert_close(columns.times(weights, x), x @ M.T, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("T", [1, 4])
def test_with_all_columns_the_pairs_are_those_of_the_matrix(T: int) -> None:
    columns, A = made(40, T, 5, 6)
    pairs = column_pairs(columns, 7, float(A.square().sum()) / 7, 10)
    expected = torch.linalg.eigvalsh(A.T @ A / 7).flip(0)[:10]
    torch.testing.assert_close(pairs.values, expected, rtol=SOLVED, atol=CANCELS)
    assert pairs.dropped == pytest.approx(0, abs=CANCELS)
    E = torch.stack([pairs.columns.combined(pairs.weights[j]) for j in range(len(pairs.values))]).flatten(1)
    torch.testing.assert_close(E @ E.T, torch.eye(len(E), dtype=E.dtype), rtol=0, atol=1e-7)
    torch.testing.assert_close(E @ (A.T @ A / 7), pairs.values[:, None] * E, rtol=1e-6, atol=1e-9)
    u, p = torch.randn(3, T, 5, dtype=torch.float64), torch.randn(3, T, 6, dtype=torch.float64)
    wanted = torch.einsum("kto,kti->koi", u, p).flatten(1) @ E.T
    torch.testing.assert_close(pairs.project(u, p), wanted, rtol=LOSSY, atol=1e-10)


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_the_bounds_hold_whatever_is_left_out(seed: int, T: int, count: int) -> None:
    columns, A = made(60, T, 4, 5, seed)
    whole = torch.linalg.eigvalsh(A.T @ A / 9).flip(0)
    kept = columns.of_most_energy(count)
    pairs = column_pairs(kept, 9, float(A.square().sum()) / 9, 8)
    k = len(pairs.values)
    slack = 1e-9 * float(whole[0])
    assert bool((pairs.values <= whole[:k] + slack).all())
    assert bool((whole[:k] <= pairs.values + pairs.dropped + slack).all())


def test_an_iteration_finds_the_same_pairs_as_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, _ = made(300, 1, 20, 25)
    at_once = column_pairs(columns, 300, 0.0, 12)
    monkeypatch.setattr("audit.maths.gram.WHOLE", 100)
    iterated = column_pairs(columns, 300, 0.0, 12)
    torch.testing.assert_close(iterated.values, at_once.values, rtol=LOSSY, atol=0)
    first, other = (
        torch.stack([pairs.columns.combined(pairs.weights[j]) for j in range(12)]).flatten(1)
        for pairs in (at_once, iterated)
    )
    torch.testing.assert_close((first * other).sum(1).abs(), torch.ones(12, dtype=torch.float64), rtol=1e-6, atol=0)


def test_columns_of_nothing_have_no_direction() -> None:
    nothing = Columns(torch.zeros(3, 1, 2, dtype=torch.float64), torch.ones(3, 1, 2, dtype=torch.float64))
    assert len(column_pairs(nothing, 3, 0.0, 2).values) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (60, 60)])
def test_the_norm_of_a_large_matrix_is_found_without_its_gram_matrix(
    shape: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    W = 1e-3 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    monkeypatch.setattr(gram, "DENSE_LIMIT", 10)
    monkeypatch.setattr("audit.maths.blocks.HELD", 500)  # a few rows at a time
    rounding = {torch.float64: 1e-8, torch.float32: 1e-6}[dtype]
    assert gram.spectral_norm(W) == pytest.approx(float(np.linalg.norm(W.double().numpy(), 2)), rel=rounding)
    assert gram.spectral_norm(torch.zeros(shape)) == 0.0
