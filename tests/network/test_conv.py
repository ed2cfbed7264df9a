"""Convolutions behind --conv, against Hessians, gradients and duals that are formed."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from conv_cases import NETWORKS, audit_of, made, suite
from made_audits import AuditMaker
from references import duality as duality_reference
from references import fisher as fisher_reference
from references import flatness as flatness_reference
from references.sensitivity import log_volume, spectral
from tolerances import CANCELS, LOSSY, SOLVED
from torch import Tensor, nn

from audit.checks import check_reports, run_checks
from audit.measures.contract import Audit
from audit.measures.duality.block import DualityBlock
from audit.measures.fisher.measure import draw_subsets


def convolutions(audit: Audit) -> list[str]:
    return [layer.name for layer in audit.layers if layer.patches is not None]


@pytest.mark.parametrize("name", NETWORKS)
def test_flatness_agrees_with_the_hessian_itself(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["flatness"].layers
    assert convolutions(audit)
    for path in convolutions(audit):
        weight = network.get_submodule(path).weight.flatten(1)
        expected = flatness_reference.layer_numbers(weight, flatness_reference.hessian(network, path, x, y))
        found = asdict(blocks[path])
        for key, value in expected.items():
            scale = np.abs(value).max()
            np.testing.assert_allclose(found[key], value, rtol=LOSSY, atol=LOSSY * scale, err_msg=f"{path} {key}")


@pytest.mark.parametrize("name", NETWORKS)
def test_fisher_agrees_with_formed_gradients(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["fisher"].layers
    for path in convolutions(audit):
        names = [f"{path}.{key}" for key, _ in network.get_submodule(path).named_parameters()]
        G = fisher_reference.gradients(network, x, y, "classification", names)
        logs = [fisher_reference.log_determinant(G[subset]) for subset in draw_subsets(12, 5, 3, 0)]
        regular = [value for value in logs if math.isfinite(value)]
        assert blocks[path].singular_subsets == len(logs) - len(regular)
        assert blocks[path].gamma == (pytest.approx(np.mean(regular), rel=LOSSY) if regular else None)


@pytest.mark.parametrize("name", NETWORKS)
def test_sensitivity_is_that_of_the_rest_of_the_network(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    assert isinstance(network, nn.Sequential)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["sensitivity"].layers
    for path in convolutions(audit):
        before, behind = network[: int(path)], nn.Sequential(*network[int(path) :])
        Ks, squares = [], []
        for sample in x:
            h = before(sample[None])
            K = torch.autograd.functional.jacobian(lambda h, rest=behind: rest(h)[0], h)
            Ks.append(K.flatten(1).numpy())
            squares.append(float(_weight_jacobian(behind, h).square().sum()))
        assert blocks[path].mls == pytest.approx(np.mean([spectral(K) for K in Ks]), rel=LOSSY)
        logs = [volume for K in Ks if math.isfinite(volume := log_volume(K))]
        assert blocks[path].rank_deficient_samples == len(Ks) - len(logs)
        assert blocks[path].mean_log_volume == (pytest.approx(np.mean(logs), rel=LOSSY) if logs else None)
        assert blocks[path].sharpness == pytest.approx(np.mean(squares), rel=LOSSY)


def _weight_jacobian(behind: nn.Sequential, h: Tensor) -> Tensor:
    def score(weight: Tensor) -> Tensor:
        return torch.func.functional_call(behind, {"0.weight": weight}, (h,))[0]

    return torch.autograd.functional.jacobian(score, behind[0].weight.detach())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_decomposition_agrees_with_every_dual_formed(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["duality"].layers
    x_test = audit.test.x.double()
    for path in convolutions(audit):
        block, module = blocks[path], network.get_submodule(path)
        expected = duality_reference.decompose(network, module, x, y, x_test, y)
        assert block.skipped is None
        assert block.gap == pytest.approx(expected.gap, rel=LOSSY)
        assert block.max_residual == pytest.approx(expected.max_residual, rel=LOSSY, abs=CANCELS)
        assert block.mean_residual == pytest.approx(expected.mean_residual, rel=LOSSY, abs=CANCELS)
        assert block.relative_residual == pytest.approx(expected.relative_residual, rel=LOSSY, abs=CANCELS)
        kept = int((expected.sigma_g > 1e-7 * expected.sigma_g[0]).sum())  # where g does not vary, nothing is ordered
        for key in ("sigma_g", "sigma_w", "contribution"):
            found, value = getattr(block, key)[:kept], getattr(expected, key)[:kept]
            atol = 1e-7 * np.abs(value).max()
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=atol, err_msg=f"{path} {key}")
        for key in ("mean_term", "total_g", "total_w"):
            assert getattr(block, key) == pytest.approx(getattr(expected, key), rel=LOSSY)
        assert block.trace_hessian == pytest.approx(expected.trace, rel=LOSSY)
        assert sum(block.contribution) + block.mean_term == pytest.approx(block.gap, rel=SOLVED)


def test_an_approximate_layer_says_so_and_does_not_pass_as_exact(make_audit: AuditMaker) -> None:
    network, x, y = made("lenet")
    results = suite(audit_of(make_audit, network, x, y))
    blocks: dict[str, DualityBlock] = dict(results.measurements["duality"].layers)
    assert {name: block.approximate for name, block in blocks.items()} == {
        "0": True,
        "3": False,
        "7": False,
        "9": False,
    }
    first = blocks["0"]
    assert first.max_residual is not None and first.mean_residual is not None and first.relative_residual is not None
    assert first.max_residual > 1e-6 and first.max_residual >= first.mean_residual
    assert first.approximation == (
        "a convolution: no weights do to all of its patches what exchanging the sample does, so the dual weights are "
        f"the least-squares ones, and with them the loss is off by {first.mean_residual:.3g} on average "
        f"({first.relative_residual:.0%} of a pair's |Δl|); the contributions add up to the gap all the same, since g "
        "is defined by it (g = Δl ΔW/‖ΔW‖²)"
    )
    exact, closes = check_reports(results)[:2]
    assert (exact.id, exact.status, closes.status) == ("duality-exact", "passed", "passed")
    assert exact.explanation == (
        "Largest |l(w*, x) − l(w, x′)| over all pairs of the 3 decomposed layers. "
        "Only approximate, and not judged here: 0."
    )
    assert closes.explanation.endswith("over the 4 decomposed layers.")
    lone = replace(results.measurements["duality"], layers={"0": first})
    alone = check_reports(replace(results, measurements={"duality": lone}))[0]
    assert alone.status == "skipped"
    assert alone.explanation == ("No decomposed layer claims an equality. Only approximate, and not judged here: 0.")


@pytest.mark.parametrize("name", NETWORKS)
def test_all_checks_hold_with_convolutions(make_audit: AuditMaker, name: str) -> None:
    audit = audit_of(make_audit, *made(name))
    checks = run_checks(audit, suite(audit))
    assert not [check.id for check in checks if check.kind == "check" and check.status == "failed"]


def test_single_precision_finds_the_same_but_for_rounding(make_audit: AuditMaker) -> None:
    network, x, y = made("lenet")
    precise, rough = (suite(audit_of(make_audit, network, x, y, precision=kind)) for kind in ("float64", "float32"))
    for path in ("0", "3"):
        for key, names in {"flatness": ("trace", "kappa", "rho"), "sensitivity": ("mls", "sharpness")}.items():
            exact, found = (results.measurements[key].layers[path] for results in (precise, rough))
            for name in names:
                assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1e-4)
        exact, found = (results.measurements["duality"].layers[path] for results in (precise, rough))
        assert (found.approximate, found.skipped) == (exact.approximate, None)
        assert found.mean_residual == pytest.approx(exact.mean_residual, rel=1e-4, abs=1e-9)
