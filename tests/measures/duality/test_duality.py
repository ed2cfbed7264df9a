"""The activity–weight decomposition against every ΔW formed and every Hessian entry by double backward."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from duality_cases import NETWORKS, AuditMaker, grown, mlp, reference, run, samples
from hypothesis import HealthCheck, given, settings
from references.duality import Reference
from tolerances import EXACT, IDENTITY, LOSSY, ROUNDING, SOLVED
from torch import nn

from audit.maths import blocks
from audit.measures.duality import layer_pairs
from audit.measures.duality.block import DualityBlock


def assert_agrees(block: DualityBlock, truth: Reference) -> None:
    assert block.skipped is None
    close = {"rtol": 1e-8, "atol": 1e-10}
    assert block.max_residual is not None and block.max_residual < 1e-12 and truth.max_residual < 1e-10
    np.testing.assert_allclose(block.gap, truth.gap, **close)
    np.testing.assert_allclose(block.mean_term, truth.mean_term, **close)
    np.testing.assert_allclose([block.total_g, block.total_w], [truth.total_g, truth.total_w], **close)
    np.testing.assert_allclose(block.trace_hessian, truth.trace, **close)
    scale = {"rtol": 1e-7, "atol": 1e-8 * max(1e-3, float(np.abs(truth.contribution).max()))}
    np.testing.assert_allclose(block.sigma_g, truth.sigma_g, rtol=1e-7, atol=1e-8 * truth.sigma_g.max())
    varies = truth.sigma_g > 1e-8 * truth.sigma_g.max()  # beyond them σ_w is unique only where it, too, is diagonalised
    alone = varies & _separated(np.array(block.eigenvalues))
    np.testing.assert_allclose(np.array(block.sigma_w)[alone], truth.sigma_w[alone], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.array(block.contribution)[alone], truth.contribution[alone], **scale)


def _separated(eigenvalues: np.ndarray) -> np.ndarray:
    """Directions whose eigenvalue has neighbours equal to it or at a distance: in between, rounding turns them."""
    distance = np.abs(eigenvalues[:, None] - eigenvalues[None, :]) / np.abs(eigenvalues).max()
    return ~((distance > 1e-11) & (distance < 1e-7)).any(1)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("space", ["input", "features"])
def test_agrees_with_brute_force(make_audit: AuditMaker, kind: str, space: str) -> None:
    build, shape, task, outputs = NETWORKS[kind]
    network, data = grown(build(), scale=2.0), samples(shape, task, outputs)
    audit = make_audit(copy.deepcopy(network), *data, task=task, partner_space=space)
    found = run(audit)
    for layer in audit.layers:
        assert_agrees(found.layers[layer.name], reference(network, layer.module, data, task, space))
    assert (found.network is None) == (space == "features")


@pytest.mark.parametrize("kind", NETWORKS)
def test_of_a_layer_too_large_for_a_second_copy_rows_are_worked_on_in_turn(
    make_audit: AuditMaker, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (blocks, layer_pairs):
        monkeypatch.setattr(module, "HELD", 7)  # numbers: a row or two
    build, shape, task, outputs = NETWORKS[kind]
    network, data = grown(build(), scale=2.0), samples(shape, task, outputs)
    audit = make_audit(copy.deepcopy(network), *data, task=task)
    found = run(audit)
    for layer in audit.layers:
        assert_agrees(found.layers[layer.name], reference(network, layer.module, data, task, "input"))


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_identity_closes(make_audit: AuditMaker, seed: int) -> None:
    network, data = grown(mlp(6, 5, 4, 3), seed, 3.0), samples((6,), "classification", 3, seed)
    audit = make_audit(network, *data, widths=0, bootstrap=10)
    for block in run(audit).layers.values():
        total = sum(block.contribution) + block.remainder.contribution + block.mean_term
        assert total == pytest.approx(block.gap, rel=ROUNDING, abs=1e-14)
        assert sum(np.square(block.sigma_g)) == pytest.approx(block.total_g, rel=IDENTITY)
        assert sum(np.square(block.sigma_w)) == pytest.approx(block.total_w, rel=IDENTITY)
        assert block.sigma_g == sorted(block.sigma_g, reverse=True)
        assert block.cumulative_w[-1] == pytest.approx(sum(block.sigma_w))
        assert all(c is None or -1 <= c <= 1 for c in block.c)
        split = block.sharp.contribution + block.flat.contribution
        assert split == pytest.approx(block.gap - block.mean_term, rel=IDENTITY)


def test_a_large_layer_keeps_its_leading_directions_and_the_rest_as_one_lump(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, data = grown(mlp(6, 8, 3), scale=2.0), samples((6,), "classification", 3, n=80, k=40)
    whole = run(make_audit(network, *data, widths=2)).layers["0"]
    for room in ("", ".spectrum"):
        monkeypatch.setattr(f"audit.curvature{room}.DENSE_LIMIT", 10)
    kept = run(make_audit(network, *data, directions=6, widths=2)).layers["0"]
    assert (whole.basis_complete, kept.basis_complete) == (True, False)
    assert (kept.directions, kept.remainder.directions) == (6, 42)
    assert sum(kept.contribution) + kept.remainder.contribution + kept.mean_term == pytest.approx(
        kept.gap, rel=ROUNDING
    )
    assert kept.trace_hessian == pytest.approx(whole.trace_hessian, rel=ROUNDING)
    assert (kept.total_g, kept.total_w) == pytest.approx((whole.total_g, whole.total_w), rel=ROUNDING)
    by_value = sorted(zip(whole.eigenvalues, whole.sigma_g, whole.contribution, strict=True), reverse=True)[:6]
    mine = sorted(zip(kept.eigenvalues, kept.sigma_g, kept.contribution, strict=True), reverse=True)
    np.testing.assert_allclose(mine, by_value, rtol=1e-5, atol=1e-8)
    lump = whole.gap - whole.mean_term - sum(contribution for _, _, contribution in by_value)
    assert kept.remainder.contribution == pytest.approx(lump, rel=1e-6)
    assert kept.remainder.sigma_g**2 == pytest.approx(whole.total_g - sum(s * s for _, s, _ in by_value), rel=1e-6)


@given(st.lists(st.floats(0.05, 20), min_size=3, max_size=3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rescaling_layers_changes_neither_the_total_nor_the_split(make_audit: AuditMaker, factors: list[float]) -> None:
    network, data = grown(mlp(6, 5, 4, 3), scale=2.0), samples((6,), "classification", 3)
    scaled = copy.deepcopy(network)
    product = 1.0
    with torch.no_grad():
        for module, factor in zip((scaled[0], scaled[2]), factors, strict=False):
            product *= factor
            module.weight *= factor
            module.bias *= product
        scaled[4].weight /= product
    before, after = (run(make_audit(one, *data, widths=0, bootstrap=10)).layers for one in (network, scaled))
    for name in before:
        a, b = before[name], after[name]
        assert b.gap == pytest.approx(a.gap, rel=SOLVED)
        np.testing.assert_allclose(b.contribution, a.contribution, rtol=1e-6, atol=1e-9 * max(map(abs, a.contribution)))
        assert b.sharp.count == a.sharp.count
        assert b.total_g * b.total_w == pytest.approx(a.total_g * a.total_w, rel=LOSSY)


def test_chunks_and_repeated_runs_change_nothing(make_audit: AuditMaker) -> None:
    network, data = grown(mlp(6, 5, 3, act=nn.Tanh), scale=2.0), samples((6,), "classification", 3)
    first = make_audit(network, *data)
    small = make_audit(network, *data)
    object.__setattr__(small.capture, "chunk", 7)
    fixed = make_audit(network, *data)
    object.__setattr__(fixed.capture, "fixed_batch", 8)
    a, again = run(first), run(make_audit(network, *data))
    assert a.layers == again.layers and a.network == again.network
    for other in (run(small), run(fixed)):
        for name, block in a.layers.items():
            mine = other.layers[name]
            np.testing.assert_allclose(mine.contribution, block.contribution, rtol=SOLVED, atol=1e-15)
            assert mine.ci95.gap == pytest.approx(block.ci95.gap, rel=EXACT)
            assert mine.max_residual < 1e-12 and mine.sharp.count == block.sharp.count
            assert [w.width is None for w in mine.widths] == [w.width is None for w in block.widths]
