"""The self-checks pass on sound networks of every kind, and fail when a number is spoilt on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from made_audits import AuditMaker
from torch import Tensor, nn
from zoo import ZOO, Tied, build

from audit.checks import arithmetic, run_checks
from audit.checks.arithmetic import check_curvature, check_rescaling
from audit.curvature import LayerHessian
from audit.measures.contract import Audit, Measurement
from audit.measures.suite import Results, run_suite
from audit.report.blocks import Check
from audit.run.progress import Progress

HOMOGENEOUS = {"relu", "bias-free", "lenet", "conv1x1", "binary"}


def audit_of(make_audit: AuditMaker, network: nn.Module, x: Tensor, y: Tensor, task: str = "classification") -> Audit:
    shifted = (x + 0.1).numpy()
    return make_audit(network, x.numpy(), y.numpy(), shifted, y.numpy(), task, subset_size=4, subsets=3, bootstrap=10)


def checked(audit: Audit, results: Results | None = None) -> dict[str, Check]:
    results = results or run_suite(audit, Progress())
    return {check.id: check for check in run_checks(audit, results)}


@pytest.mark.parametrize("name", ZOO)
def test_sound_networks_pass(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=12)
    checks = checked(audit_of(make_audit, network, x, y, ZOO[name].task))
    failed = [check.id for check in checks.values() if check.kind == "check" and check.status == "failed"]
    assert not failed
    assert (checks["rescaling-neurons"].status == "passed") == (name in HOMOGENEOUS)
    assert checks["hessian-probe"].status == "passed"
    assert checks["duality-exact"].status == "passed"


@pytest.mark.parametrize("name", ["relu", "lenet", "binary", "tanh", "gelu-dropout", "layernorm"])
def test_rescaling_is_tried_in_single_precision_where_it_is_in_double(make_audit: AuditMaker, name: str) -> None:
    network, x, y = build(name, n=12)
    data = (x.numpy(), y.numpy(), x.numpy(), y.numpy(), ZOO[name].task)
    double, single = (
        [check.status for check in check_rescaling(make_audit(network, *data, precision=precision))]
        for precision in ("float64", "float32")
    )
    assert single == double == ["passed" if name in HOMOGENEOUS else "skipped"] * 2


def test_rescaling_says_why_it_was_not_tried(make_audit: AuditMaker) -> None:
    network, x, y = build("tanh", n=12)
    curved = checked(audit_of(make_audit, network, x, y))["rescaling-layers"]
    assert "does not grow in proportion to what it is given" in curved.explanation
    network, x, y = build("linear", n=12)
    lone = checked(audit_of(make_audit, network, x, y))["rescaling-layers"]
    assert lone.explanation == "The network has a single dense layer: there is nothing to rescale it against."


def test_a_number_that_is_not_invariant_is_caught(make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, y = build("relu", n=12)
    audit = audit_of(make_audit, network, x, y)
    monkeypatch.setattr(arithmetic, "LAYER_WISE", ("trace",))  # plain curvature moves with the scale
    checks = checked(audit)
    assert checks["rescaling-layers"].status == "failed"
    assert checks["rescaling-neurons"].status == "passed"


def test_kappa_is_not_claimed_to_survive_single_neurons(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x, y = build("relu", n=12)
    audit = audit_of(make_audit, network, x, y)
    monkeypatch.setattr(arithmetic, "NEURON_WISE", ("kappa_tau",))
    assert checked(audit)["rescaling-neurons"].status == "failed"


def test_a_wrong_hessian_is_caught(make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, y = build("relu", n=12)
    audit = audit_of(make_audit, network, x, y)
    results = run_suite(audit, Progress())
    right = LayerHessian.times
    monkeypatch.setattr(LayerHessian, "times", lambda self, V: 1.0001 * right(self, V))
    assert checked(audit, results)["hessian-probe"].status == "failed"


def surest(times: float) -> tuple[nn.Module, Tensor, Tensor]:
    """A network with `times` the scores of a plain one, its 12 surest samples of 200, and its answers to them."""
    network, x, _ = build("relu", n=200)
    network.get_parameter("4.weight").mul_(times)
    scores: Tensor = network(x)
    first, second = scores.topk(2).values.T
    kept = (first - second).argsort()[-12:]
    return network, x[kept], scores[kept].argmax(1)


@pytest.mark.parametrize(("precision", "factor"), [("float32", 0.8), ("float64", 0.95)])
@pytest.mark.parametrize("times", [1.0, 60.0, 200.0])
def test_a_wrong_hessian_of_a_sure_network_is_caught_in_both_precisions(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch, precision: str, factor: float, times: float
) -> None:
    network, x, y = surest(times)
    audit = make_audit(network, x.numpy(), y.numpy(), x.numpy(), y.numpy(), precision=precision)
    sound = check_curvature(audit)
    assert sound.status == "passed" and sound.value is not None
    right = LayerHessian.times
    monkeypatch.setattr(LayerHessian, "times", lambda self, V: factor * right(self, V))
    wrong = check_curvature(audit)
    assert wrong.status == "failed"
    assert wrong.value == pytest.approx(1 - factor, rel=1e-3)


def test_where_double_differentiation_loses_its_digits_no_hessian_passes(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x, y = surest(200.0)
    audit = make_audit(network, x.numpy(), ((y + 1) % 3).numpy(), x.numpy(), y.numpy())  # sure and wrong
    right = LayerHessian.times
    for factor in (1.0, 0.95, 0.0):
        monkeypatch.setattr(LayerHessian, "times", lambda self, V, factor=factor: factor * right(self, V))
        check = check_curvature(audit)
        assert check.status == "skipped" and check.value is None
        assert check.explanation.startswith("Double differentiation loses too many digits here to tell")


def test_a_sum_that_does_not_close_and_a_broken_bound_are_caught(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=12)
    audit = audit_of(make_audit, network, x, y)
    results = run_suite(audit, Progress())
    duality, sensitivity = results.measurements["duality"], results.measurements["sensitivity"]
    spoilt = {name: replace(block, mean_term=block.mean_term + 1e-3) for name, block in duality.layers.items()}
    bounds = [replace(bound, holds=False) for bound in sensitivity.network.bounds]
    broken = {
        **results.measurements,
        "duality": Measurement(spoilt),
        "sensitivity": Measurement({}, replace(sensitivity.network, bounds=bounds)),
    }
    checks = checked(audit, Results(broken, results.tails))
    assert checks["decomposition-closes"].status == "failed"
    assert checks["bounds-hold"].status == "failed"
    assert "Broken: prop-3.4" in checks["bounds-hold"].explanation


def test_a_network_that_throws_dice_is_caught(make_audit: AuditMaker) -> None:
    network, x, y = build("relu", n=12)
    audit = audit_of(make_audit, network, x, y)
    results = run_suite(audit, Progress())
    audit.network.add_module("1", nn.Dropout(0.5).train())
    torch.manual_seed(0)
    assert checked(audit, results)["determinism"].status == "failed"


def test_shared_weights_have_no_hessian_of_their_own(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(12, 6, dtype=torch.float64), torch.arange(12) % 3
    checks = checked(audit_of(make_audit, Tied().double(), x, y))
    assert checks["hessian-probe"].status == "passed"  # of the head, which is not shared


def test_assumptions_are_looked_at(make_audit: AuditMaker) -> None:
    network, x, _ = build("tanh", n=100)
    network[4].weight.mul_(50)
    answers = network(x).argmax(1)
    fitted = checked(audit_of(make_audit, network, x, answers))
    assert fitted["interpolation"].status == "passed"
    assert fitted["piecewise-linear"].status == "failed"
    assert fitted["piecewise-linear"].explanation.endswith("Curved behind: 0, 2.")
    unfitted = checked(audit_of(make_audit, network, x, (answers + 1) % 3))
    assert unfitted["interpolation"].status == "failed"
    assert unfitted["gradient-small"].status == "failed"


def test_a_quick_audit_looks_for_the_minimum_in_its_layer_alone(make_audit: AuditMaker) -> None:
    network, x, y = build("tanh", n=12)
    audit = audit_of(make_audit, network, x, y)
    results = run_suite(audit, Progress())
    assert checked(audit, results)["gradient-small"].title == "The model is near a minimum"
    quick = replace(audit, plan=replace(audit.plan, quick=True))
    assert checked(quick, results)["gradient-small"].title == "The last dense layer is near a minimum"
