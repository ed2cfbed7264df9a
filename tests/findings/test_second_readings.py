"""What the rules say where only a part was used, and where a number has a second reading."""

from __future__ import annotations

from dataclasses import replace

from mutations import example
from test_particular_reports import findings, open_questions, with_hygiene

from audit.findings import judge
from audit.report import Report


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
    failed = [
        row.what for row in judge(replace(report, checks=checks)).not_judged if row.why.startswith("A self-check")
    ]
    order = ["Where the gap comes from", "Flatness", "Fisher information", "Sensitivity and volume"]
    assert len(failed) > 2 and failed == [name for name in order if name in failed]
