"""The bottom line: one sentence that stays true, and a level that follows from its rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_reports import example, leaked
from mutations import mutated

from audit.findings import add_findings
from audit.findings.bottom_line import FAR_BETTER, MOSTLY_WRONG, draw_bottom_line
from audit.measures import Report
from audit.measures.gap.block import ClassGap
from audit.report import Finding, Level


def found(*levels: Level) -> list[Finding]:
    words: dict[str, Any] = {"title": "It leaks", "explanation": "Why.", "evidence": {}, "source": "Counting"}
    return [Finding(id=str(place), level=level, advice="Mend it.", **words) for place, level in enumerate(levels)]


def of_classes(rows: list[tuple[int, float]], **gap: Any) -> Report:
    """A healthy report of classes with so many test samples, and shares of them answered wrongly."""
    report = example("classification")
    total = sum(samples for samples, _ in rows)
    error = sum(samples * wrong for samples, wrong in rows) / total
    half = 2 * (error * (1 - error) / total) ** 0.5
    classes = [
        ClassGap(
            **dict.fromkeys(("train_error", "train_loss", "test_loss", "loss_gap", "loss_gap_ci95")),
            name=f"c{place}", train_samples=100, test_samples=samples, test_error=wrong,
        )
        for place, (samples, wrong) in enumerate(rows)
    ]  # fmt: skip
    classes = [replace(row, train_error=0.0) for row in classes]
    counts = {f"c{place}": samples for place, (samples, _) in enumerate(rows)}
    data = replace(
        report.data,
        classes=len(rows),
        train=replace(report.data.train, class_counts=counts),
        test=replace(report.data.test, samples=total, class_counts=counts),
    )
    ends = (max(error - half, 0.0), min(error + half, 1.0))
    numbers = {"test_error": error, "test_error_ci95": ends, "per_class": classes} | gap
    return replace(report, data=data, gap=replace(report.gap, **numbers), findings=[], checks=[])


def test_it_says_how_good_against_what_where_weakest_and_how_sure() -> None:
    assert draw_bottom_line(example("classification")).sentence == (
        "Right on about 93 of 100 new samples like these (91 to 94); always answering the commonest class would be "
        "right on 10. Weakest: class 5, wrong on 15 of 100 (9 to 23)."
    )
    assert draw_bottom_line(example("regression")).sentence == (
        "Typically off by 0.848, in the target's units, on new samples like these; always answering the mean would be "
        "off by 0.935. Large errors: off by more than 1.16 on 15 of 100 (10 to 23), and on 5 of 100 train samples."
    )


def test_the_example_reports_have_their_own() -> None:
    for task in ("classification", "regression"):
        assert example(task).bottom_line == draw_bottom_line(example(task))


@pytest.mark.parametrize(
    ("levels", "level", "because"),
    [
        (("concern", "concern", "note"), "concern", "2 concerns among the findings."),
        (("concern", "watch"), "concern", "1 concern and 1 watch among the findings."),
        (("watch", "watch", "good"), "watch", "2 watches among the findings."),
        (("note", "good"), "good", "Far better than a constant answer, and nothing to watch among the findings."),
    ],
)
def test_the_level_is_that_of_the_heaviest_finding(levels: tuple[Level, ...], level: Level, because: str) -> None:
    line = draw_bottom_line(replace(example("classification"), findings=found(*levels)))
    assert (line.level, line.because) == (level, because)


def test_what_to_do_is_what_the_heaviest_finding_says() -> None:
    report = replace(example("classification"), findings=found("note", "watch", "concern"))
    assert draw_bottom_line(report).advice == "It leaks. Mend it."
    long = [replace(finding, advice="Look at " + "1, " * 60) for finding in found("concern")]
    assert draw_bottom_line(replace(report, findings=long)).advice == (
        "It leaks. What to do about it stands with that finding."
    )
    assert "gen-audit check" in draw_bottom_line(replace(report, findings=[])).advice
    underfit = [replace(finding, id="underfit", title="It underfits") for finding in found("note")]
    assert draw_bottom_line(replace(report, findings=underfit)).advice == "It underfits. Mend it."
    assert draw_bottom_line(replace(report, findings=[*found("watch"), *underfit])).advice == "It underfits. Mend it."
    assert draw_bottom_line(replace(report, findings=[*found("concern"), *underfit])).advice == "It leaks. Mend it."


def test_no_better_than_a_constant_answer_is_no_good_news() -> None:
    line = draw_bottom_line(of_classes([(900, 0.02), (100, 0.8)]))
    assert line.guess == 0.9 and line.level == "watch"
    assert line.because == "Not shown to be better than a constant answer; class c1 is mostly answered wrongly."
    assert draw_bottom_line(of_classes([(900, 0.04), (100, 0.04)])).level == "note"


def test_one_class_that_is_mostly_wrong_is_watched_and_never_good() -> None:
    rows = [(200, 0.0)] * 9
    assert draw_bottom_line(of_classes([*rows, (200, 0.7)])).level == "watch"
    assert draw_bottom_line(of_classes([*rows, (20, MOSTLY_WRONG + 0.05)])).level == "note"
    assert draw_bottom_line(of_classes([*rows, (20, MOSTLY_WRONG - 0.05)])).level == "good"


def test_a_tiny_class_is_not_called_the_weakest_and_a_lucky_one_may_be_chance() -> None:
    line = draw_bottom_line(of_classes([(200, 0.1), (200, 0.12), (5, 1.0)]))
    assert line.weakest is not None and line.weakest.name == "c1" and line.weakest.may_be_chance
    assert line.sentence.endswith("Weakest: class c1, wrong on 12 of 100 (8 to 17), which may be chance.")
    assert draw_bottom_line(of_classes([(50, 0.0), (50, 0.0)])).weakest is None


def test_a_regression_is_good_from_a_quarter_of_the_squared_error() -> None:
    report = replace(example("regression"), findings=[])
    for part, level in ((FAR_BETTER * 0.99, "good"), (FAR_BETTER * 1.01, "note"), (1.01, "watch")):
        error = part**0.5
        gap = replace(report.gap, test_rmse=error, test_rmse_ci95=(error, error), test_rmse_guess=1.0)
        assert draw_bottom_line(replace(report, gap=gap)).level == level


def test_nothing_is_said_about_new_samples_where_nothing_can_be() -> None:
    line = draw_bottom_line(leaked(example("classification")))
    assert line.level == "concern" and line.value is None and line.number == "none"
    assert line.sentence.startswith("Nothing can be said about new samples: these test samples are also in the train")


def test_a_split_of_our_own_is_not_called_new_samples() -> None:
    report = example("classification")
    line = draw_bottom_line(replace(report, data=replace(report.data, split_is_ours=True)))
    assert "new samples" not in line.sentence and "that the model may have been trained on" in line.sentence


@pytest.mark.parametrize("seed", range(0, 600, 3))
def test_for_any_report_it_is_there_and_no_lighter_than_the_findings(seed: int) -> None:
    report = add_findings(mutated(seed))
    line = report.bottom_line
    assert line is not None and line.sentence.endswith(".") and line.because.endswith(".") and line.advice
    heaviest = {finding.level for finding in report.findings}
    if "concern" in heaviest:
        assert line.level == "concern"
    if "watch" in heaviest:
        assert line.level in ("watch", "concern")
    assert line.number == "none" or (line.number == "rmse") == (report.model.task == "regression")
