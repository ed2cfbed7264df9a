"""What the pages say beside a number is about that number: readings that once were wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import reports
from drawn import gap_sentences, made, render_html, report_of
from pages import Page

from audit.findings.bottom_line import draw_bottom_line
from audit.measures import LayerReport
from audit.render.sections import split_sentence
from audit.render.summary import evidence
from audit.report import Finding

INPUT = "the input of f1, the first dense layer: no dense layer is fed by the model's input"


def text(report: dict[str, Any]) -> str:
    return Page(render_html(report)).text


def test_a_void_gap_is_void_in_the_bottom_line_too() -> None:
    report = reports.with_changes(bottom_line=None)
    report["hygiene"]["leaked"]["void"] = True
    assert draw_bottom_line(report_of(report)).sentence.startswith("Nothing can be said about new samples: ")
    assert all("void, since these test samples are in the train data." in each for each in gap_sentences(report))


def test_a_model_that_guesses_on_train_is_not_called_better_on_test() -> None:
    report = reports.classification()
    report["gap"] |= {"error_gap_ci95": [-0.06, -0.01], "loss_gap_ci95": [-0.3, -0.1]}
    assert "strong regularisation" in " ".join(gap_sentences(report))
    report["findings"][0]["id"] = "wrong-input"
    words = " ".join(gap_sentences(report))
    assert "strong regularisation" not in words and "better" not in words.replace("no better than guessing", "")


def test_every_number_of_a_regression_has_its_interval() -> None:
    report = reports.regression()
    report["gap"] |= {"test_r2": -0.0727, "test_r2_ci95": [-0.413, 0.178], "test_rmse_ci95": [66.3, 85.3]}
    words = text(report)
    assert "−0.413 to 0.178" in words and "66.3 to 85.3" in words
    assert "of the variance on train and none (R² −0.0727) on test" in words


def test_the_bound_names_the_layer_whose_input_it_is_about() -> None:
    report = reports.classification()
    assert "Sensitivity to the input, by sharpness" in text(report)
    network = report["network"]["sensitivity"]
    network["bounds_input"] = INPUT
    for bound in network["bounds"]:
        bound["about"] = INPUT
    words = text(report)
    assert "Sensitivity to the input of f1, by sharpness" in words and "A: at the input of f1" in words


@pytest.mark.parametrize(("layout", "there"), [("npz", True), ("memory", False)])
def test_verify_is_offered_where_there_are_files(layout: str, there: bool) -> None:
    report = reports.classification()
    report["data"]["layout"] = layout
    assert ("gen-audit verify report.json MODEL DATA" in text(report)) == there


def test_one_direction_is_not_called_them() -> None:
    layer = copy.deepcopy(reports.classification()["layers"][0])
    layer["duality"]["sharp"] |= {"count": 1, "elbow": True, "ratio": 4.0}
    assert "Behind it the steepness drops by a factor of 4" in split_sentence(made(LayerReport, layer))


def shown(report: dict[str, Any], cited: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The evidence of a finding that cites this."""
    return evidence(report_of(report), made(Finding, {**report["findings"][0], "evidence": cited}))


def test_evidence_is_named_for_a_reader() -> None:
    report = reports.classification()
    report["layers"][0]["name"] = "0"
    title = report["checks"][0]["title"]
    cited = {
        "layers[0].duality.fixed.share": 0.164,
        "layers[0].duality.ci95.sharp_share": [0.488, 0.504],
        "checks[0].value": 0.995,
        "checks[0].tolerance": 0.01,
    }
    assert [(words, value) for words, _, value in shown(report, cited)] == [
        ("fixed share in layer 0", "0.164"),
        (f"{title}: measured", "0.995"),
        (f"{title}: limit", "0.01"),
    ]
    own = {"layers[0].duality.sharp.share": 0.49, "layers[0].duality.ci95.sharp_share": [0.488, 0.504]}
    assert shown(report, own)[1][0] == "sharp share in layer 0, 95 % interval"
    sample = {"network.duality.samples[0].index": 214}
    assert shown(report, sample)[0][0] == "position of the costliest test sample"


def test_layers_named_by_a_number_are_called_layers_in_sentences() -> None:
    report = reports.classification()
    report["layers"][0]["name"] = "2"
    words = text(report)
    assert "The steepest directions of layer 2" in words and " layer 2: " in words


def test_an_assumption_that_is_not_met_shows_its_number() -> None:
    report = reports.classification()
    check = next(check for check in report["checks"] if check["id"] == "interpolation")
    check |= {"status": "failed", "value": 0.32, "tolerance": 0.01}
    assert "assumes “the model fits its train data” (measured 0.32, limit 0.01)." in text(report)
