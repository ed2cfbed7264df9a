"""Networks that answer at every position, audited whole: against the slow way, in every format, and in words."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import taggers
import torch
from formats import FORMATS, QUICK, audited, differences
from references import calibration as slow_calibration
from references import fisher as slow_fisher
from references import flatness as slow_flatness
from references import gap as slow_gap
from references import tagging as slow
from safetensors.numpy import save_file
from taggers import LENGTH, TAGS, Masked, folder, split, trained
from tolerances import AUDITED, CANCELS, EXACT, SINGLE_PASS
from torch import Tensor, nn

from audit import audit_model
from audit.errors import DataError, ModelError
from audit.maths.resample import Bootstrap
from audit.measures.calibration.measure import measure_calibration
from audit.measures.gap.measure import measure_gap
from audit.network.records import Outcome

SAMPLED = 0.1  # of the width of an interval: 2,000 draws each of two generators


def report_of(network: nn.Module, **settings: Any) -> Any:
    """The report on a network in Python, as its JSON says it."""
    train, test = ((split(which)["x"], split(which)["y"]) for which in ("train", "test"))
    return json.loads(audit_model(network, train, test, **(QUICK | settings)).to_json())


def scores(name: str, which: str) -> Tensor:
    """[n, T, C] in float64."""
    return copy.deepcopy(trained(name)).double()(torch.from_numpy(split(which)["x"])).detach()


def outcome(which: str, name: str = "plain") -> Outcome:
    """What the audit keeps of the split, made without it."""
    f, y = scores(name, which), split(which)["y"]
    wrong = [float(sum(own)) for own in slow.mistakes(f.tolist(), y.tolist())]
    asked = (y >= 0).sum(1).astype(float)
    return Outcome(f.flatten(1).numpy(), y, np.array(slow.losses(f.tolist(), y.tolist())), np.array(wrong), asked)


@pytest.fixture(scope="module")
def plain() -> Any:
    return report_of(trained("plain"))


def test_losses_errors_and_classes_are_those_of_the_slow_way(plain: Any) -> None:
    for which in ("train", "test"):
        f, y = scores("plain", which).tolist(), split(which)["y"].tolist()
        losses, mistakes = slow.losses(f, y), slow.mistakes(f, y)
        assert plain["outcomes"][which]["loss"] == pytest.approx(losses, rel=EXACT)
        assert plain["outcomes"][which]["wrong"] == list(map(sum, mistakes))
        assert plain["outcomes"][which]["answers"] == list(map(len, mistakes))
        assert plain["gap"][f"{which}_loss"] == pytest.approx(slow_gap.mean(losses), rel=EXACT)
        assert plain["gap"][f"{which}_error"] == pytest.approx(slow.share(mistakes), rel=EXACT)
        assert plain["gap"][f"{which}_positions"] == sum(map(len, mistakes))
        for tag, row in enumerate(plain["gap"]["per_class"]):
            own = [(f_t, y_t) for rows, tags in zip(f, y, strict=True) for f_t, y_t in zip(rows, tags, strict=True)]
            mine = [(f_t, y_t) for f_t, y_t in own if y_t == tag]
            assert row[f"{which}_samples"] == plain["data"][which]["class_counts"][str(tag)] == len(mine)
            assert row[f"{which}_loss"] == pytest.approx(slow_gap.mean([slow_gap.cross_entropy(*one) for one in mine]))
            wrong = slow_gap.mean([float(f_t.index(max(f_t)) != y_t) for f_t, y_t in mine])
            assert row[f"{which}_error"] == pytest.approx(wrong, abs=EXACT)
    assert sum(map(sum, plain["gap"]["confusion"]["counts"])) == plain["gap"]["test_positions"]


def test_intervals_draw_samples_and_never_positions() -> None:
    train, test = outcome("train"), outcome("test")
    gap = measure_gap(train, test, ["a", "b", "c"], Bootstrap(2000, 0))
    f, y = scores("plain", "test").tolist(), split("test")["y"].tolist()
    low, high = slow.percentiles(slow.share_draws(slow.mistakes(f, y), 2000))
    assert gap.test_error_ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))
    low, high = slow_gap.percentile_interval(train.loss.tolist(), test.loss.tolist(), 2000)
    assert gap.loss_gap_ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))
    for tag, row in enumerate(gap.per_class):
        by_sample = [
            [f_t.index(max(f_t)) != tag for f_t, y_t in zip(*own, strict=True) if y_t == tag]
            for own in zip(f, y, strict=True)
        ]
        low, high = slow.percentiles(slow.share_draws([own for own in by_sample if own], 2000))
        assert row.test_error_ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))


def test_repeating_every_position_makes_no_interval_narrower() -> None:
    """Three times the same evidence is no more evidence, unlike three times as many samples."""
    once = [outcome(which) for which in ("train", "test")]
    thrice = [
        Outcome(
            np.tile(part.scores.reshape(len(part.loss), LENGTH, TAGS), (1, 3, 1)).reshape(len(part.loss), -1),
            np.tile(np.asarray(part.labels), (1, 3)),
            part.loss,
            3 * np.asarray(part.wrong),
            3 * np.asarray(part.asked),
        )
        for part in once
    ]
    gaps = [measure_gap(*splits, ["a", "b", "c"], Bootstrap(200, 0)) for splits in (once, thrice)]
    assert gaps[1].test_error_ci95 == pytest.approx(gaps[0].test_error_ci95, rel=EXACT)
    assert gaps[1].error_gap_ci95 == pytest.approx(gaps[0].error_gap_ci95, rel=EXACT)
    for one, three in zip(gaps[0].per_class, gaps[1].per_class, strict=True):
        assert three.loss_gap_ci95 == pytest.approx(one.loss_gap_ci95, rel=EXACT)
    found = [measure_calibration(*splits, Bootstrap(200, 0)).test for splits in (once, thrice)]
    assert found[0] is not None and found[1] is not None
    assert found[1].accuracy_ci95 == pytest.approx(found[0].accuracy_ci95, rel=EXACT)
    assert found[1].brier_ci95 == pytest.approx(found[0].brier_ci95, rel=EXACT)
    unaware = measure_calibration(*(replace(part.by_position, sample=None) for part in thrice), Bootstrap(200, 0)).test
    assert unaware is not None and _width(found[1].overconfidence_ci95) > 1.3 * _width(unaware.overconfidence_ci95)
    assert _width(found[1].ece_ci95) > 1.3 * _width(unaware.ece_ci95)


def _width(bounds: Any) -> float:
    return float(bounds[1] - bounds[0])


def test_calibration_is_on_positions_with_intervals_by_sample() -> None:
    train, test = outcome("train"), outcome("test")
    found = measure_calibration(train, test, Bootstrap(2000, 0)).test
    assert found is not None
    f, y = scores("plain", "test").tolist(), split("test")["y"].tolist()
    flat = [
        (f_t, y_t, i) for i, own in enumerate(zip(f, y, strict=True)) for f_t, y_t in zip(*own, strict=True) if y_t >= 0
    ]
    p = [slow_calibration.softmax(f_t) for f_t, _, _ in flat]
    c, r = [max(row) for row in p], [float(f_t.index(max(f_t)) == y_t) for f_t, y_t, _ in flat]
    cut = slow_calibration.bins(c)
    assert found.samples == len(flat)
    assert found.accuracy == pytest.approx(np.mean(r), rel=EXACT)
    assert found.ece == pytest.approx(slow_calibration.ece(c, r, cut), rel=EXACT)
    assert found.brier == pytest.approx(slow_calibration.brier(p, [y_t for _, y_t, _ in flat]), rel=EXACT)
    place = {i: bin for bin, own in enumerate(cut) for i in own}
    excess = [[(place[k], c[k] - r[k]) for k, (_, _, i) in enumerate(flat) if i == sample] for sample in range(len(y))]
    drawn = slow.wild_errors(excess, len(cut), 2000)
    assert found.ece_if_calibrated == pytest.approx(np.mean(drawn), rel=SAMPLED)
    hits = [[bool(r[k]) for k, (_, _, i) in enumerate(flat) if i == sample] for sample in range(len(y))]
    low, high = slow.percentiles(slow.share_draws(hits, 2000))
    assert found.accuracy_ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))


def test_no_mistake_at_any_position_is_no_certainty() -> None:
    """The interval is that of as many answers as there are samples, however many positions they have."""
    f, y = np.zeros((20, 4, 2)), np.zeros((20, 4), dtype=np.int64)
    f[:, :, 0], y[:, 2:] = 9.0, -100
    perfect = Outcome(f.reshape(20, -1), y, np.full(20, 1e-4), np.zeros(20), np.full(20, 2.0))
    gap = measure_gap(perfect, perfect, ["a", "b"], Bootstrap(50, 0))
    assert (
        gap.test_error == 0
        and gap.test_error_ci95 is not None
        and gap.test_error_ci95[1] == pytest.approx(0.161, abs=1e-3)
    )


@pytest.mark.parametrize("name", ["plain", "recurrent"])
def test_flatness_is_that_of_the_hessian_by_autograd(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = report_of(trained(name))
    network = copy.deepcopy(trained(name)).double()
    data = {key: torch.from_numpy(value) for key, value in split("train").items()}
    monkeypatch.setattr(
        slow_flatness, "mean_loss", lambda f, y, task: slow.mean_loss(f.reshape(len(y), LENGTH, TAGS), y)
    )
    for layer in found["layers"]:
        H = slow_flatness.hessian(network, layer["name"], data["x"], data["y"])
        expected = slow_flatness.layer_numbers(network.get_submodule(layer["name"]).weight.detach(), H)
        for key, value in expected.items():
            assert layer["flatness"][key] == pytest.approx(value, rel=AUDITED, abs=CANCELS), (layer["name"], key)
    assert [layer["name"] for layer in found["layers"]][-1] == "head"


def test_the_fisher_determinant_is_that_of_samples_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report_of(trained("plain"), subset_size=TAGS * LENGTH, subsets=1, samples=TAGS * LENGTH)
    rows = found["outcomes"]["train"]["positions"]
    x, y = (torch.from_numpy(split("train")[key][rows]) for key in ("x", "y"))
    monkeypatch.setattr(slow_fisher, "sample_loss", lambda network, x, y, *_: slow.mean_loss(network(x[None]), y[None]))
    G = slow_fisher.gradients(copy.deepcopy(trained("plain")).double(), x, y, "tagging")
    assert found["network"]["fisher"]["gamma"] == pytest.approx(slow_fisher.log_determinant(G), rel=AUDITED)
    assert found["network"]["fisher"]["robustness"] is None
    assert "many positions" in found["network"]["fisher"]["robustness_skipped"]


def test_the_duality_pairs_whatever_the_labels_and_adds_up(plain: Any) -> None:
    block = report_of(trained("recurrent"))["layers"][-1]["duality"]
    assert "whatever its positions' labels" in block["partner_rule"]
    assert block["skipped"] is None and block["max_residual"] <= block["tolerance"]
    total = sum(block["contribution"]) + block["mean_term"] + block["target_term"]
    assert total + block["remainder"]["contribution"] == pytest.approx(block["gap"], abs=1e-9)
    equal_padding = plain["layers"][-1]["duality"]  # rows that repeat have no dual weights
    assert equal_padding["skipped"].startswith("the layer's tokens depend on each other")


def test_what_has_no_meaning_at_positions_is_left_out_with_its_reason(plain: Any) -> None:
    assert plain["network"]["sensitivity"] is None
    stage = next(stage for stage in plain["plan"]["stages"] if stage["name"] == "sensitivity")
    assert stage["form"] == "skipped" and "positions without a label" in stage["why"]
    assert "those of positions" in plain["hygiene"]["suspected_mislabels"]["skipped"]
    assert not [check for check in plain["checks"] if check["status"] == "failed" and check["kind"] == "check"]


@pytest.mark.parametrize("name", ["plain", pytest.param("recurrent", marks=pytest.mark.slow)])
def test_every_format_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    data, found = folder(tmp_path / "data"), {}
    example = torch.from_numpy(split("train")["x"][:4])
    for form, (file, write) in FORMATS.items():
        arch = {"arch": f"{taggers.__file__}:{name}"} if form in ("state_dict", "safetensors") else {}
        found[form] = audited(write(trained(name), example, tmp_path / file), data, **arch)
    first = found.pop("onnx")
    assert first["model"]["task"] == "tagging" and first["model"]["outputs"] == LENGTH * TAGS
    for form, other in found.items():
        parts = ([report[key] for key in ("gap", "calibration", "hygiene", "layers")] for report in (first, other))
        assert differences(*map(_same_words, parts)) == [], form


def _same_words(found: Any) -> Any:
    """Without what exporters call an operator."""
    if isinstance(found, dict):
        return {key: _same_words(value) for key, value in found.items() if key != "op"}
    return [_same_words(value) for value in found] if isinstance(found, list) else found


def test_a_final_softmax_over_each_position_is_taken_off(tmp_path: Path) -> None:
    example, data = torch.from_numpy(split("train")["x"][:4]), folder(tmp_path / "data")
    for form in ("onnx-13", "pt2"):
        file, write = FORMATS[form]
        found = audited(write(trained("softmax"), example, tmp_path / file), data)
        assert found["model"]["head"] == "softmax"
        f = copy.deepcopy(trained("softmax")).double()(torch.from_numpy(split("test")["x"])).log()
        losses = slow.losses(f.tolist(), split("test")["y"].tolist())
        assert found["outcomes"]["test"]["loss"] == pytest.approx(losses, rel=SINGLE_PASS)


def test_layouts_and_inputs_by_name_give_the_same_gap(tmp_path: Path) -> None:
    path = FORMATS["onnx-13"][1](trained("plain"), torch.from_numpy(split("train")["x"][:4]), tmp_path / "model.onnx")
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    for which in ("train", "test"):
        save_file(split(which), arrays / f"{which}.safetensors")
    first, second = (audited(path, data) for data in (folder(tmp_path / "data"), arrays))
    assert first["gap"] == second["gap"] and first["calibration"] == second["calibration"]


def test_words_and_a_mask_by_name() -> None:
    network = trained("masked")
    train, test = (
        ({"input_ids": data["x"], "attention_mask": (data["x"] > 0).astype(np.int64)}, data["y"])
        for data in (split("train"), split("test"))
    )
    found = audit_model(network, train, test, **QUICK)
    f = network.tagger(torch.from_numpy(split("test")["x"])).detach()
    losses = slow.losses(f.double().tolist(), split("test")["y"].tolist())
    assert isinstance(network, Masked) and found.gap.test_loss == pytest.approx(slow_gap.mean(losses), rel=SINGLE_PASS)


def test_pages_speak_of_positions(tmp_path: Path) -> None:
    train, test = ((split(which)["x"], split(which)["y"]) for which in ("train", "test"))
    report = audit_model(trained("plain"), train, test, **QUICK)
    report.save(tmp_path, "html,md,junit,sarif,hf,cyclonedx")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    positions = report.gap.test_positions
    assert f"of {positions} test positions (in {taggers.TEST} samples)" in page
    assert "never over the positions within one" in page and "Train positions" in page
    assert "Wilson's and Newcombe's formulas" not in page.split('id="cards"')[0]
    assert "token-classification" in (tmp_path / "report.model-index.yml").read_text(encoding="utf-8")


def test_a_tiny_budget_samples_what_it_cannot_measure() -> None:
    found = report_of(trained("recurrent"), budget="0.00001s")
    forms = {stage["name"]: stage["form"] for stage in found["plan"]["stages"]}
    assert forms["flatness"] == "sampled"
    exact = report_of(trained("recurrent"), budget="none")
    head, whole = (report["layers"][-1]["flatness"] for report in (found, exact))
    low, high = head["lambda_max_bounds"]
    assert low <= whole["lambda_max"] * (1 + 1e-3) and whole["lambda_max"] <= high * 1.5
    assert abs(head["trace"] - whole["trace"]) <= 2 * _width(head["trace_ci95"])


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (
            np.zeros(TRAINED := taggers.TRAIN, np.int64),
            "there is one label per sample; store y as whole numbers [n, 5]",
        ),
        (np.zeros((TRAINED, 4), np.int64), "the labels have shape [n, 4]; store y as whole numbers [n, 5]"),
        (np.full((TRAINED, LENGTH), 0.5), "the labels are not whole numbers"),
        (
            np.full((TRAINED, LENGTH), 3),
            "has the label 3 but the model gives scores of 3 classes at each of 5 positions",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused_in_a_sentence(y: np.ndarray, words: str) -> None:
    x = split("train")["x"]
    with pytest.raises(DataError) as refused:
        audit_model(trained("plain"), (x, y), (x, y), **QUICK)
    assert words in str(refused.value)


def test_a_sample_without_any_label_is_named() -> None:
    train, test = split("train"), split("test")
    y = train["y"].copy()
    y[7] = -100
    with pytest.raises(DataError) as refused:
        audit_model(trained("plain"), (train["x"], y), (test["x"], test["y"]), **QUICK)
    assert "train sample 7 (counted from 0) has no labelled position" in str(refused.value)


def test_any_negative_label_is_padding() -> None:
    train, test = split("train"), split("test")
    other = np.where(test["y"] < 0, -1, test["y"])
    found = audit_model(trained("plain"), (train["x"], train["y"]), (test["x"], other), **QUICK)
    assert found.gap.test_positions == int((other >= 0).sum())


class Pixels(nn.Module):
    """Scores for every pixel of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Conv2d(1, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.see(x)


def test_segmentation_is_refused_in_a_sentence() -> None:
    x, y = np.zeros((12, 1, 4, 4), np.float32), np.arange(12) % 3
    with pytest.raises(ModelError) as refused:
        audit_model(Pixels(), (x, y), (x, y), **QUICK)
    assert "has shape [n, 3, 4, 4], not one row of scores per sample, which a loss needs, nor one per position" in str(
        refused.value
    )
    assert "export the model with an output [n, classes]" in str(refused.value)


def test_boxes_are_refused_by_their_labels() -> None:
    """[n, boxes, numbers] looks like positions; its labels do not."""
    x = split("train")["x"]
    boxes = np.random.default_rng(0).random((len(x), LENGTH))
    with pytest.raises(DataError, match="the labels are not whole numbers; store y as whole numbers"):
        audit_model(trained("plain"), (x, boxes), (x, boxes), **QUICK)
