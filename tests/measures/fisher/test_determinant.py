"""γ̂ where Gram matrices lose their digits: against fifty digits, and against what is zero by construction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
import torch
import zoo
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_audits import AuditMaker
from references import extended
from references import fisher as reference
from tolerances import BY_HAND, EXACT, LOSSY
from torch import Tensor, nn
from zoo import ZOO

from audit.measures.contract import Audit, Measurement, Records
from audit.measures.fisher.determinant import log_angles, triangle
from audit.measures.fisher.gram import dense_columns, dense_grams, formed_columns, summed_gradients
from audit.measures.fisher.measure import Fisher, draw_subsets
from audit.network.record import Products

SIZE = 24

Build = Callable[[], nn.Sequential]
Samples = Callable[[float], Tensor]


def head() -> nn.Sequential:
    return nn.Sequential(nn.Linear(9, 5))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 5))


def near_duplicates(distance: float) -> Tensor:
    """Samples that come in pairs, `distance` apart."""
    first = torch.randn(SIZE, 9, dtype=torch.float64)
    first[1::2] = first[::2] + distance * torch.randn(SIZE // 2, 9, dtype=torch.float64)
    return first


def nearly_flat(distance: float) -> Tensor:
    """Samples that leave a plane of four dimensions by `distance`."""
    plane = torch.randn(SIZE, 4, dtype=torch.float64) @ torch.randn(4, 9, dtype=torch.float64)
    return plane + distance * torch.randn(SIZE, 9, dtype=torch.float64)


def made(
    make_audit: AuditMaker, network: nn.Module, x: Tensor, y: Tensor, task: str = "classification", **chosen: object
) -> Audit:
    chosen = {"subsets": 2, "subset_size": SIZE - 2, "bootstrap": 20, **chosen}
    arrays = x.numpy(), y.numpy()
    return make_audit(network.double(), *arrays, *arrays, task, **chosen)


def measured(audit: Audit) -> Measurement:
    fold = Fisher().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def expected(network: nn.Module, x: Tensor, y: Tensor) -> tuple[list[float], float]:
    """γ̂ of each layer and of the network."""
    layers = [(m.weight, m.bias) for m in network if isinstance(m, nn.Linear)]
    gradients = extended.layer_gradients(layers, x, y)
    gradients.append([list(chain(*rows)) for rows in zip(*gradients, strict=True)])
    subsets = draw_subsets(len(x), SIZE - 2, 2, 0)
    *each, whole = (np.mean([extended.log_determinant([G[i] for i in s]) for s in subsets]) for G in gradients)
    return each, whole


def least_eigenvalue(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Of the cosines, through singular values, which keep their digits."""
    G = reference.gradients(network, x, y, "classification")
    return float(torch.linalg.svdvals(G / G.norm(dim=1, keepdim=True))[-1]) ** 2


CASES = [(head, near_duplicates), (head, nearly_flat), (mlp, near_duplicates)]


@pytest.mark.parametrize(("build", "samples"), CASES)
@pytest.mark.parametrize("exponent", [-10, -11, -12, -13, -14, -15])
def test_gamma_has_its_digits_however_alike_the_samples_are(
    make_audit: AuditMaker, build: Build, samples: Samples, exponent: int
) -> None:
    torch.manual_seed(1)
    distance = (3 if build is head else 20) * 10 ** (exponent / 2)
    network, x, y = build().double(), samples(distance), torch.arange(SIZE) // 2 % 5
    audit = made(make_audit, network, x, y)
    subset = draw_subsets(SIZE, SIZE - 2, 2, 0)[0]
    assert 10 ** (exponent - 0.6) < least_eigenvalue(audit.network, x[subset], y[subset]) < 10 ** (exponent + 0.6)
    result = measured(audit)
    each, whole = expected(audit.network, x, y)
    assert result.network.singular_subsets == 0
    assert result.network.gamma == pytest.approx(whole, rel=LOSSY)
    for layer, gamma in zip(audit.layers, each, strict=True):
        assert result.layers[layer.name].gamma == pytest.approx(gamma, rel=LOSSY)


@pytest.mark.parametrize("name", [name for name, case in ZOO.items() if case.task != "regression"])
def test_every_kind_of_network_gives_the_gradients_themselves(make_audit: AuditMaker, name: str) -> None:
    """Layers over vectors, over tokens, and parameters outside the dense layers; against formed gradients."""
    network, x, y = zoo.build(name, n=8)
    x[1::2], y[1::2] = x[::2] + 1e-6 * torch.randn_like(x[::2]), y[::2]
    task = ZOO[name].task
    audit = made(make_audit, network, x, y, task, subsets=20, subset_size=4)
    G = reference.gradients(audit.network, x, y, task)
    logs = [reference.log_determinant(G[subset]) for subset in draw_subsets(8, 4, 20, 0)]
    regular = [value for value in logs if np.isfinite(value)]
    result = measured(audit)
    assert result.network.singular_subsets == 20 - len(regular)
    assert result.network.gamma == pytest.approx(np.mean(regular), rel=LOSSY)


@pytest.mark.parametrize("distance", [1e-3, 1e-7])
def test_running_a_doubtful_subset_again_gives_the_same_numbers(make_audit: AuditMaker, distance: float) -> None:
    torch.manual_seed(2)
    x, y = near_duplicates(distance), torch.arange(SIZE) // 2 % 5
    audit = made(make_audit, mlp(), x, y)
    poor = Records(audit.capture, audit.train.x, audit.train.y, room=0, full=True)
    kept, again = measured(audit), measured(dataclasses.replace(audit, train=poor))
    assert kept.network.singular_subsets == again.network.singular_subsets == 0
    assert again.network.gamma == pytest.approx(kept.network.gamma, rel=EXACT)


@pytest.mark.parametrize("examples", [10, pytest.param(80, marks=pytest.mark.slow)])
def test_the_order_of_the_samples_does_not_matter(make_audit: AuditMaker, examples: int) -> None:
    given(seed=st.integers(0, 10**6), exponent=st.floats(-7, -2), build=st.sampled_from([head, mlp]))(
        settings(max_examples=examples, deadline=None)(lambda **drawn: in_any_order(make_audit, **drawn))
    )()


def in_any_order(make_audit: AuditMaker, seed: int, exponent: float, build: Build) -> None:
    """One subset of all samples: drawn in another order, it has the same γ̂."""
    torch.manual_seed(seed)
    network, x, y = build().double(), near_duplicates(10**exponent), torch.arange(SIZE) // 2 % 5
    assume(least_eigenvalue(network, x, y) > 1e-15)
    order = torch.randperm(SIZE)
    one, other = (
        measured(made(make_audit, network, x[rows], y[rows], subsets=1, subset_size=SIZE))
        for rows in (torch.arange(SIZE), order)
    )
    assert one.network.singular_subsets == other.network.singular_subsets == 0
    assert other.network.gamma == pytest.approx(one.network.gamma, rel=EXACT)


@pytest.mark.parametrize(("build", "samples"), CASES)
def test_samples_exactly_alike_stay_singular(make_audit: AuditMaker, build: Build, samples: Samples) -> None:
    torch.manual_seed(3)
    x, y = samples(0.0), torch.arange(SIZE) // 2 % 5
    result = measured(made(make_audit, build(), x, y))
    assert result.network.singular_subsets == 2
    assert result.network.skipped.startswith("In every subset the gradients are linearly dependent")
    assert {layer.singular_subsets for layer in result.layers.values()} == {2}


def test_a_head_has_no_more_directions_than_its_scores_differ_in(make_audit: AuditMaker) -> None:
    """δ sums to zero, so of the C (in + 1) = 25 parameters only (C − 1)(in + 1) = 20 directions are ever used."""
    torch.manual_seed(4)
    x, y = torch.randn(SIZE, 4, dtype=torch.float64), torch.arange(SIZE) % 5
    for size, singular in ((20, 0), (21, 2)):
        result = measured(made(make_audit, nn.Sequential(nn.Linear(4, 5)), x, y, subset_size=size))
        assert result.network.singular_subsets == singular


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("wide", "count"), [(3, 7), (12, 5)])
def test_columns_have_the_gram_matrix_of_the_gradients(
    monkeypatch: pytest.MonkeyPatch, tokens: int, weight: bool, bias: bool, wide: int, count: int
) -> None:
    monkeypatch.setattr("audit.measures.fisher.gram.CACHED_GATHER", 4)  # several blocks
    torch.manual_seed(5)
    x, delta = (torch.randn(count, tokens, size, dtype=torch.float64) for size in (wide, wide + 1))
    K = dense_grams(x, delta, weight, bias, torch.arange(count)[None])[0]
    R = triangle(dense_columns(x, delta, weight, bias))
    assert len(R) <= count
    assert torch.allclose(R.T @ R, K, rtol=EXACT, atol=EXACT)
    if weight or bias:
        R = triangle(formed_columns(summed_gradients(x, delta, weight, bias)))
        assert torch.allclose(R.T @ R, K, rtol=EXACT, atol=EXACT)


def test_angles_by_hand() -> None:
    R = torch.tensor([[2.0, 3e-9], [0.0, 4e-9]], dtype=torch.float64)  # the cosine is 3/5
    assert log_angles(R) == pytest.approx(np.log(16 / 25), rel=BY_HAND)
    assert log_angles(R[:1]) == -np.inf
    assert log_angles(torch.ones(2, 2, dtype=torch.float64)) == -np.inf
