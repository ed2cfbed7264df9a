"""Products, matrices and eigenpairs of a layer's Hessian against the Hessian itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from references.flatness import hessian as brute
from tolerances import CANCELS, EXACT, SOLVED
from torch import Tensor, nn
from zoo import ZOO, build

from audit.curvature import spectrum
from audit.curvature.spectrum import LayerHessian, all_eigenpairs, top_eigenpairs
from audit.maths import lanczos


def hessians(make_audit, name, n=9):  # type: ignore[no-untyped-def]
    network, x, y = build(name, n=n)
    task = ZOO[name].task
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy(), task=task)
    for layer in audit.layers:
        H = brute(audit.network, layer.module, x, y, task)
        yield LayerHessian(audit.train, layer), H.reshape(layer.out_features * layer.in_features, -1), audit


@pytest.mark.parametrize("name", sorted(ZOO))
def test_products_and_matrix_are_the_hessian(make_audit, name) -> None:
    for hessian, H, _ in hessians(make_audit, name):
        scale = H.abs().max()
        assert (hessian.dense() - H).abs().max() <= EXACT * scale
        V = torch.randn(2, 3, *hessian.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        expected = (V.reshape(6, -1) @ H).reshape(V.shape)
        assert (hessian.times(V) - expected).abs().max() <= EXACT * scale * 10
        assert (hessian.times(V[0, 0]) - expected[0, 0]).abs().max() <= EXACT * scale * 10
        quotients = hessian.rayleigh_quotients(V[0, 0])
        assert quotients.mean() == pytest.approx(float((V[0, 0] * expected[0, 0]).sum()), rel=SOLVED)


@pytest.mark.parametrize("name", ["relu", "tanh", "tokens"])
def test_a_table_without_room_gives_the_same(make_audit, name) -> None:
    for hessian, H, audit in hessians(make_audit, name):
        audit.train.room = 0
        object.__setattr__(audit.capture, "chunk", 2)
        for _ in range(2):
            assert (hessian.dense() - H).abs().max() <= EXACT * H.abs().max()


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("name", ["relu", "tanh", "tokens", "binary"])
def test_iteration_agrees_with_diagonalisation(make_audit, monkeypatch, name, k) -> None:
    monkeypatch.setattr(spectrum, "SMALL", 0)
    for hessian, H, _ in hessians(make_audit, name, n=20):
        pairs = top_eigenpairs(hessian, k)
        values = torch.linalg.eigvalsh(H).flip(0)[: len(pairs.values)]
        assert len(values) == min(k, hessian.dim)
        single = hessian.single()
        mixed = k > spectrum.FEW and single is not None and single.dim > 4 * k
        check(hessian, H, pairs, values, tolerance=1e-6, mixed=mixed)


def check(hessian, H: Tensor, pairs, values: Tensor, tolerance: float, mixed: bool = False) -> None:  # type: ignore[no-untyped-def]
    """`mixed`: found in single precision, with all residuals but the first seen on a mixture of the vectors."""
    scale = H.diagonal().abs().max().clamp(min=torch.linalg.eigvalsh(H).abs().max())
    v = pairs.vectors.reshape(len(values), -1)
    assert (pairs.values - values).abs().max() <= tolerance * scale
    assert (v @ v.T - torch.eye(len(v))).abs().max() <= 1e-12
    residuals = (v @ H - pairs.values[:, None] * v).norm(dim=1) / scale
    limits = lanczos.allowed(pairs.values, tolerance)
    assert (residuals <= 1.01 * limits).all() and (pairs.residuals <= limits).all()
    wrong = (residuals - pairs.residuals).abs()
    assert wrong[0] <= 1e-9
    if mixed and wrong.max() > 1e-9:
        assert ((pairs.residuals / limits)[1:] >= (1 - 1e-3) * (residuals / limits)[1:].square().mean().sqrt()).all()
    else:
        assert wrong.max() <= 1e-9
    assert (pairs.values.diff() <= 0).all()


class Given:
    """A Hessian with a spectrum of our choice."""

    def __init__(self, values: list[float], seed: int = 0) -> None:
        self.dim, self.shape, self.products = len(values), (1, len(values)), 0
        self.dtype, self.room = torch.float64, 1 << 30
        basis = torch.linalg.qr(
            torch.randn(self.dim, self.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        )[0]
        self.matrix = basis @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ basis.T

    def times(self, V: Tensor) -> Tensor:
        self.products += V.numel() // self.dim
        return (V.reshape(-1, self.dim) @ self.matrix).reshape(V.shape)

    def dense(self) -> Tensor:
        return self.matrix

    def single(self) -> None:
        return None


DECAY = [1.0 / (i + 2) for i in range(500)]


@pytest.mark.parametrize(
    ("values", "k"),
    [
        ([*DECAY, 3.0], 1),
        ([*DECAY, *[3.0] * 2, 2.0], 4),
        ([*DECAY, *[3.0] * 7, 2.0], 8),  # an eigenspace wider than the block
        ([*DECAY, *[3.0] * 20], 12),
        ([0.0] * 500, 3),
        ([*[0.0] * 500, 1.0, 2.0], 6),  # fewer nonzero eigenvalues than asked for
        ([-value for value in DECAY], 2),
        ([*[-5.0] * 3, *DECAY], 2),
        ([1.0] * 450, 5),
    ],
)
def test_chosen_spectra(values, k) -> None:
    given, ordered = Given(values), sorted(values, reverse=True)
    pairs = top_eigenpairs(given, k)  # type: ignore[arg-type]
    assert len(pairs.values) == k  # all but eigenspaces of more than half of the pairs end here by themselves
    expected = torch.tensor(ordered[:k], dtype=torch.float64)
    assert pairs.iterations >= min(10, len(values))
    if any(values):
        check(given, given.matrix, pairs, expected, tolerance=1e-6)
    else:
        assert pairs.values.abs().max() == 0 and pairs.residuals.abs().max() == 0


def test_values_alone_take_fewer_products_and_are_as_good_as_asked() -> None:
    values = [*DECAY, 0.503]
    both, alone = Given(values), Given(values)
    top_eigenpairs(both, 1)  # type: ignore[arg-type]
    pairs = top_eigenpairs(alone, 1, values_only=True)  # type: ignore[arg-type]
    assert alone.products < both.products
    assert pairs.values[0] == pytest.approx(0.503, rel=1e-6) and pairs.residuals[0] > 1e-6


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_single_precision_iterations_end_in_double_precision_values(make_audit, monkeypatch, scale) -> None:
    """Also for a network so confident that its curvature is far below what single precision can hold."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(25, 20), nn.ReLU(), nn.Linear(20, 3)).double()
    network[2].weight.data *= scale
    x = torch.randn(400, 25, dtype=torch.float64)
    first, second = network(x).topk(2).values.T
    x = x[(first - second).argsort()[-40:]]  # the surest answers
    y = network(x).argmax(1)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy())
    hessian = LayerHessian(audit.train, audit.layers[0])
    assert hessian.dim > spectrum.SMALL and hessian.single() is not None
    pairs = top_eigenpairs(hessian, 1, 1e-7, values_only=True)
    full = all_eigenpairs(hessian)
    assert scale == 1.0 or 0 < full.values[0] < 1e-45
    assert float(pairs.values[0]) == pytest.approx(float(full.values[0]), rel=1e-7)
    v = pairs.vectors[0]
    residual = (hessian.times(v) - pairs.values[0] * v).norm() / pairs.values[0]
    assert float(pairs.residuals[0]) == pytest.approx(float(residual), rel=1e-6, abs=CANCELS)
    audit.train.room = 0
    assert hessian.single() is None


@pytest.mark.parametrize(("size", "taken"), [(2e-6, [torch.float32]), (0.5, [torch.float32, torch.float64])])
def test_one_spoilt_vector_of_many_is_noticed_and_mended_or_all_are_found_anew_in_double_precision(
    make_audit, monkeypatch, size, taken
) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(25, 20), nn.ReLU(), nn.Linear(20, 3)).double()
    x = torch.randn(40, 25, dtype=torch.float64)
    y = network(x).argmax(1)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy())
    hessian, right, arithmetic = LayerHessian(audit.train, audit.layers[0]), spectrum.iterated, []
    away = nn.functional.normalize(torch.randn(hessian.dim), dim=0).reshape(hessian.shape)

    def spoilt(given, *arguments):  # type: ignore[no-untyped-def]
        pairs = right(given, *arguments)
        arithmetic.append(given.dtype)
        if given.dtype == torch.float32:
            pairs.vectors[5] += size * pairs.values[0] / pairs.values[5] * away
        return pairs

    assert top_eigenpairs(hessian, 10).residuals.max() <= 1e-6
    monkeypatch.setattr(spectrum, "iterated", spoilt)
    pairs = top_eigenpairs(hessian, 10)
    assert arithmetic == taken
    residuals = (hessian.times(pairs.vectors) - pairs.values[:, None, None] * pairs.vectors).flatten(1).norm(dim=1)
    assert residuals.max() <= 1e-6 * pairs.values[0]
    if taken == [torch.float32]:  # mended: each residual is one that was taken in double precision
        assert torch.allclose(pairs.residuals, residuals / pairs.values[0], rtol=1e-6, atol=CANCELS)


@pytest.mark.parametrize("dim", [100, 512, 300_001])
def test_long_sums_of_single_numbers_keep_their_digits(dim) -> None:
    """Summed up plainly, 300,000 numbers are wrong by 4e-6."""
    P, Q = (torch.rand(rows, dim, generator=torch.Generator().manual_seed(rows)) for rows in (2, 5))
    exact = P.double() @ Q.double().T
    wrong = (lanczos._inner(P, Q) / exact - 1).abs().max()
    assert wrong <= 3e-7


def test_single_precision_finds_directions_of_large_layers_to_well_below_what_is_asked(make_audit) -> None:
    """So that no product has to be taken anew in double precision: the residuals of long vectors, one by one."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(500, 400), nn.ReLU(), nn.Linear(400, 4)).double()
    x = torch.rand(60, 500, dtype=torch.float64)  # all positive: the largest eigenvalue stands far out
    audit = make_audit(network, x.numpy(), np.arange(60) % 4, x[:4].numpy(), np.arange(4))
    hessian = LayerHessian(audit.train, audit.layers[0])
    single = hessian.single()
    assert single is not None
    found = lanczos.iterated(single, 6, 2e-7, 0, False)
    V = single.whole(found.vectors)
    wrong = (hessian.times(V) - single.scale * found.values[:, None, None] * V).flatten(1).norm(dim=1)
    assert wrong.max() <= 6e-7 * single.scale * found.values[0]


def test_restarts_change_nothing(monkeypatch) -> None:
    values = [*DECAY, 0.55, 0.6]
    monkeypatch.setattr(lanczos, "KRYLOV_BASIS", 0)
    given = Given(values)
    check(given, given.matrix, top_eigenpairs(given, 3), torch.tensor([0.6, 0.55, 0.5]), tolerance=1e-6)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_the_same_value() -> None:
    first, again, other = (top_eigenpairs(Given(DECAY), 2, seed=seed) for seed in (0, 0, 1))  # type: ignore[arg-type]
    assert torch.equal(first.vectors, again.vectors)
    assert torch.allclose(first.values, other.values, rtol=SOLVED)


def test_the_complete_basis(make_audit) -> None:
    for hessian, H, _ in hessians(make_audit, "relu"):
        pairs = all_eigenpairs(hessian)
        v = pairs.vectors.reshape(hessian.dim, -1)
        assert (v @ v.T - torch.eye(hessian.dim)).abs().max() <= 1e-12
        assert ((v.T * pairs.values) @ v - H).abs().max() <= EXACT
        assert len(top_eigenpairs(hessian, 10_000).values) == hessian.dim


def test_too_many_weights_for_a_matrix_are_refused(make_audit) -> None:
    x = np.random.default_rng(0).normal(size=(4, 70))
    audit = make_audit(nn.Linear(70, 60), x, np.arange(4), x, np.arange(4))
    with pytest.raises(ValueError, match="4200 weights are too many for a dense Hessian"):
        LayerHessian(audit.train, audit.layers[0]).dense()
