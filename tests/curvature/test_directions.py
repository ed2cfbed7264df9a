"""Leading directions of large layers where the spectrum is unkind: equal, tiny and vanishing eigenvalues."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tolerances import EXACT, LOSSY, SINGLE
from torch import Tensor, nn

from audit.curvature import spectrum
from audit.curvature.spectrum import ONE_SPACE, EigenPairs, LayerHessian, _in_double, all_eigenpairs, top_eigenpairs
from audit.maths.lanczos import allowed
from audit.measures.duality.basis import eigenspaces, hessian_basis


@pytest.fixture
def first_layer(make_audit, monkeypatch):  # type: ignore[no-untyped-def]
    """The Hessian of a network's first layer, whose directions are found by iteration however small it is."""
    monkeypatch.setattr(spectrum, "SMALL", 0)

    def of(network: nn.Module, x: Tensor, y: Tensor, task: str = "classification") -> LayerHessian:
        x, y = x.double().numpy(), y.numpy()
        audit = make_audit(network.double(), x, y, x[:6], y[:6], task=task)
        return LayerHessian(audit.train, audit.layers[0])

    return of


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_direction_of_a_linear_regression_comes_once_for_every_output(first_layer, seed) -> None:
    """H = (mean x xᵀ) ⊗ 1: as many equal eigenvalues as outputs, to the digits that make them one eigenspace."""
    torch.manual_seed(0)
    x = torch.randn(80, 150)
    hessian = first_layer(nn.Linear(150, 3), x, torch.randn(80, 3).double(), "regression")
    pairs = top_eigenpairs(hessian, 10, seed=seed)
    exact = torch.linalg.eigvalsh(x.double().T @ x.double() / 80).flip(0)
    assert len(pairs.values) == 12  # the tenth is one of three
    assert torch.allclose(pairs.values, exact[:4].repeat_interleave(3), rtol=EXACT, atol=0)
    assert eigenspaces(pairs.values) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 12)]


@pytest.mark.parametrize(("asked", "kept"), [(2, 2), (5, 5), (25, 30)])
def test_an_eigenspace_of_more_than_half_of_what_was_asked_for_is_cut_at_once(first_layer, asked, kept) -> None:
    """Each eigenvalue has ten eigenvectors: of twenty-five directions, five are in the third eigenspace."""
    torch.manual_seed(0)
    x = torch.randn(80, 30)
    hessian = first_layer(nn.Linear(30, 10), x, torch.randn(80, 10).double(), "regression")
    assert len(top_eigenpairs(hessian, asked).values) == kept


def test_one_small_pair_that_is_off_by_little_is_noticed(first_layer) -> None:
    """Its residual is far below 1e-6 of the largest eigenvalue, but not below what its own allows."""
    torch.manual_seed(0)
    x = 30 + torch.randn(60, 40)
    hessian = first_layer(nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 3)), x, torch.arange(60) % 3)
    right = all_eigenpairs(hessian)
    pairs = EigenPairs(right.values[:8], right.vectors[:8].clone(), torch.zeros(8, dtype=torch.float64), 1)
    small, beyond = 4, right.vectors[12]
    limit = float(allowed(pairs.values, 1e-6)[small])
    assert limit < 1e-7
    pairs.vectors[small] += 10 * limit * beyond * pairs.values[0] / pairs.values[small]
    untouched = SimpleNamespace(scale=1.0, whole=lambda V: V)
    for seed in range(5):
        judged = _in_double(hessian, untouched, pairs, 1e-6, seed)  # type: ignore[arg-type]
        assert judged.residuals[small] > limit


@pytest.mark.parametrize("seed", [0, 1])
def test_directions_far_below_the_largest_are_eigenvectors_too(first_layer, seed) -> None:
    """Inputs with a large common part: one eigenvalue is 10⁴ times and more as large as the next."""
    torch.manual_seed(0)
    x = 30 + torch.randn(60, 40)
    hessian = first_layer(nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 3)), x, torch.arange(60) % 3)
    values, vectors = torch.linalg.eigh(hessian.dense())
    pairs = top_eigenpairs(hessian, 8, seed=seed)
    assert values.flip(0)[7] < SINGLE * values[-1]
    assert torch.allclose(pairs.values, values.flip(0)[:8], rtol=LOSSY, atol=0)
    overlap = (pairs.vectors.flatten(1) * vectors.T.flip(0)[:8]).sum(1).abs()
    assert (1 - overlap).max() <= 1e-6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_direction_is_kept_that_is_only_rounding(first_layer, seed) -> None:
    """With fewer samples than directions asked for, the Hessian of one score has no more directions than samples."""
    torch.manual_seed(0)
    x = torch.randn(12, 60)
    network = nn.Sequential(nn.Linear(60, 8), nn.ReLU(), nn.Linear(8, 1))
    hessian = first_layer(network, x, torch.arange(12) % 2, "binary")
    pairs = top_eigenpairs(hessian, 20, seed=seed)
    exact = torch.linalg.eigvalsh(hessian.dense()).flip(0)
    rank = int((exact > ONE_SPACE * exact[0]).sum())
    assert rank == 12 and len(hessian_basis(pairs).values) == rank
