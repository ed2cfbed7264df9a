"""Where the duality does not hold, or pairs are missing: measured, counted and said."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from duality_cases import AuditMaker, Tokenwise, grown, mlp, reference, run, samples
from tolerances import EXACT, ROUNDING, SOLVED
from torch import Tensor, nn
from zoo import build

from audit.measures.duality.block import GapOverPairs
from audit.measures.duality.measure import ALL_ZERO
from audit.measures.suite import run_suite
from audit.network import second_derivatives
from audit.run.progress import Progress

USED_TWICE = "the layer's weights are used more than once, so no single change of them stands for a sample"


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        return self.head(h + torch.relu(self.inner(h)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.again, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.again(torch.tanh(self.again(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


@pytest.mark.parametrize(
    ("build", "name", "sentence"),
    [
        (Residual, "inner", "another path leads round this layer, so its weights alone do not decide the loss"),
        (Twice, "again", USED_TWICE),
        (Tied, "a", USED_TWICE),
        (lambda: Tokenwise(2), "embed", "the layer's tokens depend on each other, so no weights answer to all of them"),
    ],
)
def test_where_the_duality_does_not_hold_it_is_measured_and_the_layer_left_out(
    make_audit: AuditMaker, build: Callable[[], nn.Module], name: str, sentence: str
) -> None:
    network = grown(build(), scale=2.0)
    shape = (3, 2) if isinstance(network, Tokenwise) else (6,)
    block = run(make_audit(network, *samples(shape, "classification", 3))).layers[name]
    assert block.max_residual > 1e-3
    assert block.skipped == f"{sentence}: with its dual weights the loss is off by up to {block.max_residual:.3g}"
    assert block.sigma_g == [] and block.sharp is None and block.ci95.gap is None


def test_the_measured_residual_is_the_real_one(make_audit: AuditMaker) -> None:
    network, data = grown(Residual(), scale=2.0), samples((6,), "classification", 3)
    block = run(make_audit(copy.deepcopy(network), *data)).layers["inner"]
    truth = reference(network, "inner", data, "classification")
    assert block.max_residual == pytest.approx(truth.max_residual, rel=SOLVED)


def test_float32_capture_still_checks_the_duality_in_float64(make_audit: AuditMaker) -> None:
    network, data = grown(mlp(6, 5, 3), scale=2.0).float(), samples((6,), "classification", 3)
    single, double = (run(make_audit(network, *data, precision=precision)) for precision in ("float32", "float64"))
    for name, block in single.layers.items():
        assert block.skipped is None and block.max_residual < 1e-12
        assert block.gap == pytest.approx(double.layers[name].gap, rel=ROUNDING)


def test_test_samples_without_a_partner_are_counted(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    y[y == 2] = 1
    found = run(make_audit(grown(mlp(6, 5, 3)), x, y, x_test, y_test))
    missing = int((y_test == 2).sum())
    assert missing and all(block.unpaired == missing for block in found.layers.values())
    assert found.network.classes[2].unpaired == missing and found.network.classes[2].mean_gap is None


def test_no_pair_at_all(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    found = run(make_audit(grown(mlp(6, 5, 3)), x, y * 0, x_test, y_test * 0 + 1))
    sentence = "no test sample has a train sample of its label, so there are no pairs to compare"
    assert {block.skipped for block in found.layers.values()} == {sentence}
    assert isinstance(found.network, GapOverPairs)
    assert (found.network.pairs, found.network.unpaired, found.network.skipped) == (0, 17, sentence)


def test_zero_activations_are_dropped_and_counted(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    x[:5] = 0
    y[:5] = y_test[:5] = np.arange(5) % 3
    x_test[:5] = 1e-3 * x_test[:5]
    network = grown(mlp(6, 5, 3), scale=2.0)
    block = run(make_audit(network, x, y, x_test, y_test)).layers["0"]
    truth = reference(network, "0", (x, y, x_test, y_test), "classification")
    assert block.dropped == 17 - len(truth.dw) >= 5 and block.pairs == len(truth.dw)
    assert block.gap == pytest.approx(truth.gap, rel=EXACT)


def test_a_dead_layer(make_audit: AuditMaker) -> None:
    network = grown(mlp(6, 5, 3))
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.fill_(-1)
    found = run(make_audit(network, *samples((6,), "classification", 3))).layers
    assert found["2"].skipped == ALL_ZERO and found["2"].dropped == 17
    assert found["0"].skipped is None and found["0"].total_w == 0 and found["0"].sharp.count == 0
    assert found["0"].sharp.note == "the effective gradients do not vary: there are no sharp directions"
    assert set(found["0"].c) == {None}


def test_test_samples_that_are_train_samples(make_audit: AuditMaker) -> None:
    x, y, _, _ = samples((6,), "classification", 3)
    block = run(make_audit(grown(mlp(6, 5, 3)), x, y, x[5:15], y[5:15])).layers["0"]
    assert abs(block.gap) < 1e-12 and block.total_w == 0 and block.share_skipped is not None


def test_a_negative_gap_has_no_shares_but_a_reason(make_audit: AuditMaker) -> None:
    x, y, x_test, _ = samples((6,), "classification", 3)
    network = grown(mlp(6, 3), scale=3.0)
    with torch.no_grad():
        y_test = network(torch.from_numpy(x_test)).argmax(1).numpy()
    block = run(make_audit(network, x, y, x_test, y_test)).layers["0"]
    assert block.gap < 0 and block.sharp.share is None and block.flat.share is None and block.ci95.sharp_share is None
    total = block.sharp.contribution + block.flat.contribution
    assert block.share_skipped == f"the directions' sum is not positive ({total:.3g}): it has no shares"


def test_one_pair_has_no_variance(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    y[:3] = [0, 1, 2]
    block = run(make_audit(grown(mlp(6, 5, 3)), x, y, x_test[:1], y_test[:1])).layers["0"]
    assert block.total_g == block.total_w == 0 and block.mean_term == pytest.approx(block.gap, rel=ROUNDING)


def test_regression_says_that_partners_have_no_label(make_audit: AuditMaker) -> None:
    found = run(make_audit(grown(mlp(6, 4, 2)), *samples((6,), "regression", 2), task="regression"))
    assert "whatever its target" in found.layers["0"].partner_rule
    assert found.layers["0"].fixed is None and found.network.classes is None


def test_carriers_add_up_to_the_gap(make_audit: AuditMaker) -> None:
    data = samples((6,), "classification", 3, k=60)
    carriers = run(make_audit(grown(mlp(6, 5, 3), scale=4.0), *data)).network
    assert sum(one.contribution for one in carriers.classes) == pytest.approx(carriers.gap, rel=ROUNDING)
    assert sum(one.pairs for one in carriers.classes) == carriers.pairs == 60
    gaps = [sample.gap for sample in carriers.samples]
    assert gaps == sorted(gaps, reverse=True) and len(gaps) == 20
    first = carriers.samples[0]
    assert data[3][first.index] == data[1][first.partner] == int(first.label)
    assert first.gap == pytest.approx(first.test_loss - first.partner_loss)


def test_a_curved_layer_over_many_tokens_keeps_its_leading_directions(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x, y = build("tokens")
    audit = make_audit(network, x.numpy(), y.numpy(), x.numpy(), y.numpy(), directions=3)
    whole = run_suite(audit, Progress()).measurements
    monkeypatch.setattr(second_derivatives, "EXACT_UNITS", 0)
    monkeypatch.setattr(second_derivatives, "EXACT_PRODUCTS", 0)
    few = run_suite(audit, Progress()).measurements
    before, after = (found["duality"].layers["embed"] for found in (whole, few))
    assert (before.basis_complete, after.basis_complete, after.directions) == (True, False, 3)
    assert sorted(after.eigenvalues) == pytest.approx(sorted(sorted(before.eigenvalues)[-3:]), rel=1e-5)
    assert after.trace_hessian == pytest.approx(few["flatness"].layers["embed"].trace, rel=EXACT)
    assert before.trace_hessian == pytest.approx(whole["flatness"].layers["embed"].trace, rel=EXACT)
