"""What is said of confidence: in words, by limits that are stated, and never where chance explains it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from calibration_cases import measured, outcome
from made_reports import leaked
from mutations import example
from test_particular_reports import findings, open_questions

from audit.measures import Report
from audit.report import Finding


def sure(**changes: Any) -> Report:
    """The example with another confidence on test."""
    report = example("example")
    assert report.calibration is not None and report.calibration.test is not None
    return replace(report, calibration=replace(report.calibration, test=replace(report.calibration.test, **changes)))


def errors(**changes: Any) -> Report:
    """The regression with another coverage by its 95 % limit."""
    report = example("regression")
    assert report.calibration is not None
    (own,) = report.calibration.outputs
    coverage = [replace(part, **changes) if part.id == "share-95" else part for part in own.coverage]
    return replace(report, calibration=replace(report.calibration, outputs=[replace(own, coverage=coverage)]))


def said(report: Report) -> Finding | None:
    return findings(report).get("calibration")


def test_a_model_that_is_too_sure_is_told_by_the_bin_that_shows_it() -> None:
    found = said(example("example"))
    assert found is not None and found.level == "note"
    assert found.title == "Too sure of itself: when the model says 77 %, it is right in 52 of 100 cases"
    assert found.explanation.endswith("Its scores divided by 2.39 (95 % interval 2.14 to 2.67) fit these samples best.")
    assert found.evidence["calibration.test.bins[0].accuracy"] == 0.52


@pytest.mark.parametrize(
    ("bounds", "error", "level", "title"),
    [
        ((0.051, 0.09), (0.05, 0.09), "watch", "Too sure of itself"),
        ((0.049, 0.09), (0.04, 0.09), "note", "Too sure of itself"),
        ((-0.3, -0.2), (0.2, 0.3), "note", "Less sure than it could be"),
        ((-0.01, 0.02), (0.01, 0.03), "note", "Sure in the wrong places"),
        ((-0.01, 0.02), (0.0, 0.03), "good", "The model is right about as often as it says"),
    ],
)
def test_levels_follow_the_stated_limits(bounds: tuple, error: tuple, level: str, title: str) -> None:
    found = said(sure(overconfidence_ci95=bounds, ece_ci95=error))
    assert found is not None and found.level == level and found.title.startswith(title)


@pytest.mark.parametrize("bounds", [None, (-0.06, 0.02), (-0.02, 0.06)])
def test_too_few_samples_to_tell_are_no_praise(bounds: tuple[float, float] | None) -> None:
    assert said(sure(overconfidence_ci95=bounds, ece_ci95=(0.0, 0.1))) is None


def test_a_bin_that_is_off_to_the_other_side_does_not_speak_for_the_whole() -> None:
    found = said(sure(overconfidence_ci95=(-0.03, -0.01), confidence=0.906, accuracy=0.928))
    assert found is not None
    title = "Less sure than it could be: on average the model says 91 % and is right in 93 of 100 cases"
    assert found.title == title


def test_nothing_is_said_where_the_test_split_is_void_or_a_check_failed() -> None:
    assert said(leaked(sure(overconfidence_ci95=(0.2, 0.3)))) is None
    report = sure(overconfidence_ci95=(0.2, 0.3))
    broken = replace(report.checks[0], kind="check", status="failed", affects=["calibration"])
    report = replace(report, checks=[broken])
    assert said(report) is None
    assert open_questions(report)["Calibration"].why == "A self-check that its numbers rest on failed."


def test_calibration_is_no_open_question_where_it_was_measured() -> None:
    for name in ("example", "regression"):
        assert not any("alibration" in what or "onfidence" in what for what in open_questions(example(name)))


@pytest.mark.parametrize(
    ("bounds", "level"),
    [((-0.2, -0.06), "watch"), ((-0.2, -0.04), "note"), ((-0.02, 0.03), "good"), ((-0.2, 0.1), None)],
)
def test_errors_of_a_regression_have_the_same_limits(bounds: tuple[float, float], level: str | None) -> None:
    found = said(errors(difference_ci95=bounds))
    assert (found and found.level) == level


def test_errors_of_a_regression_are_told_in_shares() -> None:
    found = said(example("regression"))
    assert found is not None
    assert found.title == "Errors that 5 % of train samples exceed are exceeded by 15 % of test samples"


def test_of_several_outputs_the_worst_is_named_and_chance_is_said_to_have_had_more_tries() -> None:
    report = errors()
    assert report.calibration is not None
    (own,) = report.calibration.outputs
    better = [replace(part, difference_ci95=(-0.01, 0.01)) for part in own.coverage]
    outputs = [replace(own, coverage=better), replace(own, output=1)]
    report = replace(report, model=replace(report.model, outputs=2))
    found = said(replace(report, calibration=replace(report.calibration, outputs=outputs)))
    assert found is not None and found.title.startswith("Errors of output 2 that 5 % of train samples exceed")
    assert "the worst of 2 outputs" in found.explanation
    assert "calibration.outputs[1].coverage[3].difference" in found.evidence


@pytest.mark.parametrize("n", [60, 400])
def test_calibrated_models_are_rarely_called_off_and_never_watched(n: int) -> None:
    """Of 60 made-up models; either interval may miss one in twenty."""
    report, levels = example("example"), Counter[str | None]()
    for seed in range(60):
        found = said(replace(report, calibration=measured(outcome(n, seed), draws=100)))
        levels[found and found.level] += 1
    assert levels["watch"] == 0 and levels["note"] <= 10
    assert n < 400 or levels["good"] >= 20
