"""What the theory's numbers foretell of small changes, and which inputs can be changed at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from formats import QUICK
from made_audits import AuditMaker
from masked_networks import Masked, Tagged, folder, scenes, sentences, written
from torch import Tensor, nn

from audit import Report, audit_model
from audit.maths.intervals import score_bounds
from audit.measures.consequences.block import Consequence, Theory
from audit.measures.consequences.changes import NO_PLACE
from audit.measures.consequences.measure import Effort, measure_consequences
from audit.measures.consequences.samples import draw_error
from audit.measures.consequences.theory import OWN_UNITS, foretell
from audit.report.paths import find

LARGEST = "0-weights-noise-5"


def changes(report: Report) -> dict[str, Consequence]:
    assert report.consequences is not None
    return {change.id: change for change in report.consequences.changes}


def theory(report: Report, id: str) -> Theory:
    found = changes(report)[id].theory
    assert found is not None
    return found


def linear(outputs: int = 1, n: int = 40) -> Report:
    """One dense layer and ½‖f − y‖²: both orders of Taylor's series are the whole of it."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    y = rng.normal(size=(n, outputs)).astype(np.float32)
    network = nn.Sequential(nn.Linear(6, outputs, bias=False)).eval()
    return audit_model(network, (x, y), (x, y), task="regression", **QUICK)


def test_where_taylors_series_is_exact_its_formulas_are_met() -> None:
    report = linear()
    worst = theory(report, "input-worst-1")
    assert worst.ratio == pytest.approx(1.0, rel=1e-6) and worst.verdict == "as foretold"
    small, large = (theory(report, f"0-weights-noise-{percent}") for percent in (1, 5))
    assert large.measured == pytest.approx(25 * small.measured, rel=1e-6)
    assert small.ratio == pytest.approx(large.ratio, rel=1e-6)
    assert large.foretold_most is not None and large.measured <= large.foretold_most * (1 + 1e-9)


def test_the_mean_over_many_directions_is_the_trace(make_audit: AuditMaker) -> None:
    """½ δᵀ H δ over directions of norm ε ‖W‖ has the mean ½ ε² κ_τ/(in·out), κ_τ = ‖W‖² mean ‖x‖² of a linear one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 6)), rng.normal(size=(30, 1))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 1))
    kappa_tau = float(network[0].weight.detach().square().sum()) * float((x**2).sum(1).mean())
    rises = []
    effort = Effort(sizes=(0.05,), neurons=(), draws=1, pairs=16)
    for seed in range(15):
        audit = make_audit(network, x, y, x, y, task="regression", seed=seed, bootstrap=20)
        rises += [each.loss_change for each in measure_consequences(audit, effort).changes if each.id == LARGEST]
    expected, error = 0.05**2 / 2 * kappa_tau / 6, float(np.std(rises)) / np.sqrt(len(rises))
    assert abs(np.mean(rises) - expected) < 4 * error and error < 0.1 * expected


def test_noise_lies_between_its_bounds_for_a_linear_network() -> None:
    found = theory(linear(outputs=4, n=256), "input-noise-5")
    assert found.foretold_most == pytest.approx(2 * found.foretold)
    assert 0.7 <= found.ratio <= 2.1 and found.verdict == "as foretold"


def test_columns_with_units_of_their_own_have_no_sensitivity_in_common(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)) * [1, 10, 100], rng.integers(0, 2, 40)
    for split in ("train", "test"):
        rows = "\n".join(",".join(map(str, [*row, label])) for row, label in zip(x, y, strict=True))
        (tmp_path / f"{split}.csv").write_text(f"a,b,c,label\n{rows}\n")
    found = theory(audit_model(nn.Sequential(nn.Linear(3, 2)).eval(), tmp_path, **QUICK), "input-noise-5")
    assert found.foretold is None and found.skipped == OWN_UNITS


def text(n: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    arrays = sentences(n, seed)
    return {name: arrays[name] for name in ("input_ids", "attention_mask")}, arrays["y"]


def test_of_tokens_the_embedding_is_changed() -> None:
    torch.manual_seed(0)
    report = audit_model(Masked().eval(), text(48, 0), text(24, 1), **QUICK)
    block = report.consequences
    assert block.changed_place == "the answer of the embedding words" and block.skipped is None
    noise, worst = (changes(report)[id] for id in ("input-noise-1", "input-worst-1"))
    assert noise.score_change > 0 and noise.theory is None
    assert worst.loss_change > abs(noise.loss_change)


@pytest.mark.parametrize("form", ["onnx", "onnx-fixed"])
def test_the_embedding_of_a_file_is_found_too(form: str, tmp_path: Path) -> None:
    path, data = written("masked", form, tmp_path), folder("masked", tmp_path / "data")
    report = audit_model(path, data, **QUICK)
    assert report.consequences.changed_place == "the answer of the embedding words"
    assert changes(report)["input-worst-1"].loss_change > 0


class Counting(nn.Module):
    """Token ids without an embedding: counted, then classified."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(9, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(nn.functional.one_hot(ids, 9).to(self.head.weight.dtype).mean(1))


def test_without_an_embedding_the_report_says_why_nothing_was_changed() -> None:
    rng = np.random.default_rng(0)
    ids, y = rng.integers(0, 9, (30, 4)), rng.integers(0, 2, 30)
    report = audit_model(Counting().eval(), (ids, y), (ids, y), **QUICK)
    assert report.consequences.skipped == NO_PLACE
    assert any(about == "What small changes of the input do" for about, _ in _open(report))
    assert not any(change.kind.startswith("input") for change in report.consequences.changes)


def _open(report: Report) -> list[tuple[str, str]]:
    return [(each.what, each.why) for each in report.not_judged]


def test_of_several_inputs_only_the_continuous_one_is_changed() -> None:
    torch.manual_seed(0)
    arrays = {**sentences(48, 0), "table": scenes(48, 0)["table"]}
    y = arrays.pop("y")
    block = audit_model(Tagged().eval(), (arrays, y), (arrays, y), **QUICK).consequences
    assert block.numbers == 4 and block.changed_place == "the input"
    assert block.spread == pytest.approx(float(np.sqrt(arrays["table"].var(0).mean())), rel=1e-6)


def test_a_number_that_is_missing_foretells_nothing() -> None:
    report = linear()
    bare = type(report)(**{**vars(report), "network": type(report.network)()})
    found = foretell(bare.consequences, lambda path: find(path, bare)[0])
    skipped = {change.id: change.theory.skipped for change in found.changes if change.theory}
    assert skipped["input-noise-5"] == "this report has no network.sensitivity"


def test_intervals_hold_the_mean_over_draws_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.gamma(2.0, size=(4000, 4, 1)) + rng.normal(size=(4000, 4, 1)) * np.array([1.0, -1.0])  # slopes cancel
    missed = [abs(row.mean() - 2.0) > draw_error(row.ravel()) for row in pairs]
    assert 0.02 < np.mean(missed) < 0.10  # four skewed pairs: nearly the nominal 5 %


def test_shares_of_answers_that_change_back_and_forth_need_not_be_whole_numbers() -> None:
    low, high = score_bounds(2.5, 1.25, 200)
    assert score_bounds(2, 1, 200)[0] < low < 1.25 / 200 < high < score_bounds(3, 1, 200)[1]
