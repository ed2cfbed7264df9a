from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_audits import AuditMaker
from references import fisher as reference
from tolerances import IDENTITY, LOSSY, ROUNDING, SOLVED
from torch import Tensor, nn
from zoo import ZOO, Tied, build

from audit.measures.contract import Audit, Measurement, Records
from audit.measures.fisher.block import NetworkFisher
from audit.measures.fisher.determinant import largest_eigenvalues, log_determinants, squared_slope
from audit.measures.fisher.gram import draw_subsets
from audit.measures.fisher.measure import Fisher
from audit.network.loss import BinaryCrossEntropy, CrossEntropy
from audit.network.record import Products


def measured(audit: Audit) -> Measurement:
    fold = Fisher().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    return fold.finish()


def audit_of(make_audit: AuditMaker, network: nn.Module, x: Tensor, y: Tensor, task: str, **chosen: object) -> Audit:
    chosen = {"subsets": 3, "subset_size": 4, "bootstrap": 20, **chosen}
    return make_audit(network, x.numpy(), y.numpy(), x.numpy(), y.numpy(), task, **chosen)


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def blocks(measurement: Measurement) -> NetworkFisher:
    assert isinstance(measurement.network, NetworkFisher)
    return measurement.network


@pytest.mark.parametrize("name", [name for name in ZOO if name != "one-weight"])  # two parameters, four samples
@pytest.mark.parametrize("normalized", [False, True])
def test_determinants_agree_with_formed_gradients(make_audit: AuditMaker, name: str, normalized: bool) -> None:
    network, x, y = build(name, n=9)
    task = ZOO[name].task
    if normalized and task != "classification":
        pytest.skip("one score divided by its own size is a constant: there is no gradient; a regression has no logits")
    audit = audit_of(make_audit, network, x, y, task, normalized_logits=normalized)
    result = measured(audit)
    subsets = draw_subsets(9, 4, 3, 0)
    G = reference.gradients(audit.network, x, y, task, normalized=normalized)
    expected = finite(reference.log_determinant(G[subset]) for subset in subsets)
    found = blocks(result)
    assert found.singular_subsets == 3 - len(expected)
    assert found.gamma == pytest.approx(np.mean(expected), rel=LOSSY)
    assert found.gamma_std == pytest.approx(np.std(expected), rel=1e-6)
    P = G.shape[1]
    assert found.gamma_full == pytest.approx(P / 4 * np.mean(expected) - P * math.log(P), rel=LOSSY)
    for layer in audit.layers:
        own = [f"{layer.module}.{part}".lstrip(".") for part in ("weight", "bias")]
        G = reference.gradients(audit.network, x, y, task, own, normalized)
        expected = finite(reference.log_determinant(G[subset]) for subset in subsets)
        block = result.layers[layer.name]
        assert block.singular_subsets == 3 - len(expected)
        assert block.gamma == (pytest.approx(np.mean(expected), rel=LOSSY) if expected else None)


@pytest.mark.parametrize("name", ["relu", "tanh", "lenet", "binary", "tokens"])
def test_the_other_metrics_of_section_7_1(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=9)
    task = ZOO[name].task
    audit = audit_of(make_audit, network, x, y, task)
    found = blocks(measured(audit))
    G = reference.gradients(audit.network, x, y, task)
    K = [G[subset] @ G[subset].T for subset in draw_subsets(9, 4, 3, 0)]
    assert found.frobenius_norm == pytest.approx(np.mean([float(k.square().sum()) / 16 for k in K]), rel=LOSSY)
    assert found.spectral_radius == pytest.approx(
        np.mean([float(torch.linalg.eigvalsh(k)[-1]) / 4 for k in K]), rel=LOSSY
    )
    assert found.robustness == pytest.approx(reference.robustness(audit.network, x, task), rel=LOSSY)


def test_weights_used_twice_count_once(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network, x, y = Tied().double(), torch.randn(9, 6, dtype=torch.float64), torch.arange(9) % 3
    audit = audit_of(make_audit, network, x, y, "classification")
    G = reference.gradients(audit.network, x, y, "classification")
    expected = np.mean([reference.log_determinant(G[subset]) for subset in draw_subsets(9, 4, 3, 0)])
    assert blocks(measured(audit)).gamma == pytest.approx(expected, rel=LOSSY)


@pytest.mark.parametrize("name", ["relu", "lenet", "tokens"])
def test_running_each_subset_again_gives_the_same_numbers(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=9)
    audit = audit_of(make_audit, network, x, y, "classification")
    poor = Records(audit.capture, audit.train.x, audit.train.y, room=0, full=True)
    kept, again = measured(audit), measured(dataclasses.replace(audit, train=poor))
    assert blocks(again).gamma == pytest.approx(blocks(kept).gamma, rel=ROUNDING)
    assert blocks(again).spectral_radius == pytest.approx(blocks(kept).spectral_radius, rel=ROUNDING)


@pytest.mark.parametrize("name", ["relu", "lenet", "tokens"])
def test_many_subsets_of_few_samples_share_one_gram_matrix(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=9)
    audit = audit_of(make_audit, network, x, y, "classification", subsets=60)
    G = reference.gradients(audit.network, x, y, "classification")
    expected = finite(reference.log_determinant(G[subset]) for subset in draw_subsets(9, 4, 60, 0))
    found = blocks(measured(audit))
    assert found.singular_subsets == 60 - len(expected)
    assert found.gamma == pytest.approx(np.mean(expected), rel=LOSSY)
    assert found.gamma_std == pytest.approx(np.std(expected), rel=1e-6)


def test_confident_samples_keep_their_digits(make_audit: AuditMaker) -> None:
    network, x, _ = build("relu", n=9)
    network[4].weight.mul_(100.0)
    y = network(x).argmax(1)  # every answer right, with margins far beyond what 1 − p can hold
    audit = audit_of(make_audit, network, x, y, "classification")
    found = blocks(measured(audit))
    assert found.singular_subsets == 0
    assert found.gamma is not None and math.isfinite(found.gamma)


def test_duplicates_make_a_subset_singular_and_are_counted(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=9)
    x[1], y[1] = x[0], y[0]
    audit = audit_of(make_audit, network, x, y, "classification", subsets=40)
    found = blocks(measured(audit))
    both = sum({0, 1} <= set(subset.tolist()) for subset in draw_subsets(9, 4, 40, 0))
    assert 0 < both < 40
    assert found.singular_subsets == both
    assert found.gamma is not None


def test_reasons_for_a_zero_determinant(make_audit: AuditMaker) -> None:
    network, x, y = build("linear", n=40)
    few = blocks(measured(audit_of(make_audit, network, x, y, "classification", subset_size=30)))
    assert few.gamma is None
    assert few.skipped == "Fewer parameters (21) than samples in a subset (30): the determinant is zero."
    network, x, y = build("relu", n=8)
    same = blocks(measured(audit_of(make_audit, network, x[:1].expand(8, -1).clone(), y * 0 + 1, "classification")))
    assert same.skipped is not None and same.skipped.startswith("In every subset the gradients are linearly dependent")
    for parameter in network.parameters():
        parameter.zero_()
    network[4].bias[1] = 1e4
    zero = blocks(measured(audit_of(make_audit, network, x, y * 0 + 1, "classification")))
    assert zero.skipped == "Every subset has samples whose gradient is exactly zero: the determinant is zero."


def test_a_regression_has_gradients_but_no_probabilities_and_no_bound(make_audit: AuditMaker) -> None:
    network, x, y = build("regression", n=9)
    found = blocks(measured(audit_of(make_audit, network, x, y, "regression", normalized_logits=True)))
    assert found.gamma is not None and found.skipped is None
    assert not found.normalized_logits  # there are no logits
    assert found.robustness is None
    assert found.robustness_skipped == "A regression has no class probabilities, so that these have no slope."
    assert found.pac_bayes is None
    assert found.pac_bayes_skipped is not None
    assert found.pac_bayes_skipped.startswith("The theorem is for a loss between 0 and 1.")


def test_another_unit_of_the_targets_multiplies_the_gradients_in_the_last_layer(make_audit: AuditMaker) -> None:
    network, x, y = build("regression", n=9)
    one = measured(audit_of(make_audit, network, x, y, "regression")).layers["4"].gamma
    for parameter in network[4].parameters():
        parameter.mul_(10.0)
    ten = measured(audit_of(make_audit, network, x, 10 * y, "regression")).layers["4"].gamma
    assert ten == pytest.approx(one + 4 * math.log(100), rel=LOSSY)


def test_the_bound_follows_the_theorem_and_says_when_it_says_nothing(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=9)
    audit = audit_of(make_audit, network, x, y, "classification", volume=2.0, delta=0.1)
    found = blocks(measured(audit))
    bound = found.pac_bayes
    assert bound is not None and found.gamma_full is not None
    P, loss = found.parameters, float(audit.train_outcome.loss.mean())
    A = P * 2.0 ** (2 / P) * math.pi ** (1 / P) * math.exp(found.gamma_full / P) / (4 * math.pi * math.e)
    assert bound.complexity == pytest.approx(A, rel=SOLVED)
    assert bound.bound == pytest.approx(loss + 2 * math.sqrt((2 * loss + 2 * A + math.log(180)) / 8), rel=SOLVED)
    assert bound.vacuous is (bound.bound > math.log(3))
    assert bound.vacuous and not bound.exceeded


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 6), spread=st.floats(0, 8))
def test_gram_determinants_and_eigenvalues(seed: int, size: int, spread: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    G = torch.randn(2, size, 9, generator=rng, dtype=torch.float64)
    G = G * torch.exp(-spread * torch.rand(2, size, 1, generator=rng, dtype=torch.float64))
    K = G @ G.mT
    found = log_determinants(K)
    assert (found.angles <= 1e-12).all()  # Hadamard: orthogonal gradients have the largest determinant
    expected = torch.tensor([reference.log_determinant(g) for g in G], dtype=torch.float64)
    assert torch.allclose(found.norms + found.angles, expected, rtol=SOLVED, atol=1e-9)
    assert torch.allclose(largest_eigenvalues(K), torch.linalg.svdvals(G)[:, 0].square(), rtol=SOLVED)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    C=st.integers(1, 7),
    r=st.integers(1, 9),
    confident=st.floats(0, 60),
    common=st.floats(0, 1e3),
)
def test_robustness_is_the_slope_of_the_probabilities(seed: int, C: int, r: int, confident: float, common: float):
    rng = torch.Generator().manual_seed(seed)
    f = confident * torch.randn(3, C, generator=rng, dtype=torch.float64)
    K = torch.randn(3, C, r, generator=rng, dtype=torch.float64)
    K = K + common * torch.randn(3, 1, r, generator=rng, dtype=torch.float64)  # the softmax does not see it
    loss, y = CrossEntropy() if C > 1 else BinaryCrossEntropy(), torch.zeros(3, dtype=torch.int64)
    slopes = torch.linalg.svdvals(loss.curvature_times(f, y, K))[:, 0].square()
    classes = 1 if C > 1 else 2  # one score moves the probabilities of two classes
    assert torch.allclose(squared_slope(loss, f, y, K, K @ K.mT), classes * slopes, rtol=IDENTITY, atol=0)


def test_subsets_are_distinct_seeded_and_all_there_is_when_that_is_little() -> None:
    subsets = draw_subsets(50, 10, 5, seed=3)
    assert subsets.shape == (5, 10)
    assert all(len(set(subset.tolist())) == 10 for subset in subsets)
    assert (subsets == draw_subsets(50, 10, 5, seed=3)).all()
    assert not (subsets == draw_subsets(50, 10, 5, seed=4)).all()
    assert draw_subsets(7, 10, 5, seed=0).tolist() == [list(range(7))]
