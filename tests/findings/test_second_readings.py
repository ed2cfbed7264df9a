"""What the rules say where only a part was used, and where a number has a second reading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mutations import example
from test_particular_reports import findings, open_questions, with_hygiene

from audit.findings import add_findings
from audit.findings.rule import guesses
from audit.findings.rules.steep import find_gap_layers
from audit.maths.resample import Bootstrap
from audit.measures import Report
from audit.measures.gap.measure import measure_gap
from audit.network.records import Outcome
from audit.run.reader_warnings import chance_warning


def test_several_untrained_classes_are_spoken_of_as_several() -> None:
    two = findings(with_hygiene(class_balance={"missing_in_train": ["7", "8"], "missing_in_test": []}))["class-balance"]
    assert two.explanation.startswith("The test split has samples of them, the train split none.")


def with_capped_train(report: Report, total: int = 30_000) -> Report:
    """The report as if so many train samples lay on disk."""
    return replace(report, data=replace(report.data, train=replace(report.data.train, total=total)))


def test_a_class_that_the_used_part_of_train_lacks_is_not_called_untrained() -> None:
    found = findings(with_capped_train(with_hygiene(class_balance={"missing_in_train": ["7"], "missing_in_test": []})))[
        "class-balance"
    ]
    assert found.level == "note"
    assert found.title == "A class is tested but not in the part of train that was used: 7"
    assert found.explanation.startswith("4,000 of 30,000 train samples were used, and none of it is among them.")


def test_a_class_without_a_gap_is_an_open_question_about_the_part_that_was_used() -> None:
    report = example("example")
    rows = [replace(row, loss_gap=None) if row.name in "12" else row for row in report.gap.per_class]
    report = replace(report, gap=replace(report.gap, per_class=rows))
    what = "The gap of classes 1 and 2"
    assert open_questions(report)[what].why == "There are no samples of them in one of the splits."
    capped = open_questions(with_capped_train(report))[what].why
    assert capped == "There are no samples of them in the part of one of the splits that was used."


def test_failed_self_checks_are_told_in_the_order_of_the_report() -> None:
    report = example("example")
    checks = [replace(check, status="failed") for check in report.checks]
    found = add_findings(replace(report, checks=checks))
    failed = [row.what for row in found.not_judged if row.why.startswith("A self-check")]
    order = ["Where the gap comes from", "Flatness", "Fisher information", "Sensitivity and volume"]
    assert len(failed) > 2 and failed == [name for name in order if name in failed]


def test_too_little_data_counts_what_the_model_was_trained_on() -> None:
    clean = with_hygiene(suspected_mislabels={"estimated_rate": 0.0, "estimated_rate_ci95": (0.0, 0.01)})
    fitted = replace(clean, gap=replace(clean.gap, train_error=0.0, error_gap=0.07, error_gap_ci95=(0.05, 0.09)))
    said = findings(with_capped_train(fitted))["few-train-samples"].explanation
    assert said.startswith("30,000 train samples (4,000 of them used here), about 3,000 a class, stand against ")


def with_targets(outputs: int = 3, **volume: float | int | None) -> Report:
    """The regression example with several targets and another volume."""
    report = example("regression")
    block = replace(report.network.sensitivity, rank_deficient_samples=0, rank_deficient_samples_centred=0, **volume)
    network, model = replace(report.network, sensitivity=block), replace(report.model, outputs=outputs)
    return replace(report, network=network, model=model)


def test_the_volume_of_a_regression_is_that_of_all_its_targets() -> None:
    found = findings(with_targets(mean_log_volume=3 * np.log(2), mean_log_volume_centred=9.0))["volume"]
    assert found.explanation.startswith(
        "In a typical one of the 3 directions in which the answer can change, a small change of the input comes out 2 "
    )
    assert "on the units of the input and on those of the targets" in found.explanation
    assert "network.sensitivity.mean_log_volume" in found.evidence


def test_targets_that_only_change_together_are_not_called_classes() -> None:
    report = with_targets()
    block = replace(report.network.sensitivity, rank_deficient_samples=report.layers[0].samples)
    found = findings(replace(report, network=replace(report.network, sensitivity=block)))["volume"]
    assert "fewer than the 3 directions" in found.explanation
    assert "class" not in f"{found.title} {found.explanation} {found.advice}"


def test_a_model_that_answers_the_largest_class_is_told_by_the_mean_over_classes() -> None:
    report = example("example")
    rows = [replace(row, train_error=float(row.name != "1")) for row in report.gap.per_class]
    gap = replace(report.gap, per_class=rows, train_accuracy=0.9, train_error=0.1)
    said = findings(replace(report, gap=gap))["wrong-input"].explanation
    assert said.startswith(
        "It is right on 90.00 % of the 4,000 train samples and, as a mean over the classes, on 10.00 %, where any "
        "guess gives 10 %."
    )
    assert "a model that answers one class only" in said and "or one that was never trained" in said


@pytest.mark.parametrize(("count", "level"), [(10, "note"), (15, "note"), (16, "watch")])
def test_near_twins_are_natural_up_to_the_interval_of_those_within_train(count: int, level: str) -> None:
    near = {"within_train": 0.012, "within_train_ci95": (0.009, 0.015)}
    found = findings(with_hygiene(near=near, near_duplicates=count))["near-copies"]
    assert found.level == level
    assert "Within train, 1.20 % of the samples (95 % interval 0.90 % to 1.50 %) have" in found.explanation


def test_layers_of_a_regression_are_not_ranked() -> None:
    report = example("example")
    steep = replace(report, gap=replace(report.gap, error_gap_ci95=(0.05, 0.09)))
    assert find_gap_layers(steep) is not None
    assert find_gap_layers(replace(steep, model=replace(steep.model, task="regression"))) is None


def test_units_stuck_at_a_ceiling_are_not_said_to_be_superfluous() -> None:
    report = example("example")
    first = replace(report.layers[0].sensitivity, units_active=[0, 4000])
    changed = replace(report, layers=[replace(report.layers[0], sensitivity=first), *report.layers[1:]])
    found = findings(changed)["dead-units"]
    assert "works without them" not in found.explanation and "leaving them out" not in found.advice
    assert "stuck at it" in found.explanation and "folded into the bias of the next layer" in found.advice


def test_a_class_of_one_sample_answered_wrongly_makes_no_guesser() -> None:
    labels = np.append(np.arange(2000) % 2, 2)
    for answers, guessed in ((np.arange(2001) % 2, False), (np.zeros(2001, int), True)):
        train = Outcome(np.eye(3)[answers], labels, np.zeros(2001), (answers != labels).astype(float))
        gap, report = measure_gap(train, train, ["a", "b", "c"], Bootstrap(10, 0)), example("example")
        assert guesses(replace(report, gap=gap, data=replace(report.data, classes=3))) is guessed
        assert (chance_warning(train, ["a", "b", "c"]) is not None) is guessed
