"""Weak classes, constant answers, negative gaps, validation splits and constant inputs: when each rule speaks."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mutations import APART, example
from places import SAMPLES
from twin_sets import block

from audit.findings.rules import classes, feeding, guessing, splits, too_little
from audit.findings.rules.gap import NEGATIVE_GAP, find_negative_gap
from audit.maths.shares import difference_interval, wilson
from audit.measures import Report
from audit.report.conduct import ConstantInputs
from audit.report.twins import Curve, CurvePoint, HeldOut


def with_classes(errors: Any, samples: int) -> Report:
    """The example with one class for each share of wrong answers."""
    report = example("example")
    row = report.gap.per_class[0]
    rows = [replace(row, name=str(k), test_samples=samples, test_error=float(e)) for k, e in enumerate(errors)]
    return replace(report, gap=replace(report.gap, per_class=rows, test_error=float(np.mean(errors))))


def test_equally_hard_classes_are_hardly_ever_called_weak_and_a_weak_one_mostly_is() -> None:
    rng = np.random.default_rng(0)
    draws, n = 2000, 100
    chances = rng.choice([0.02, 0.1, 0.3], draws)
    equal = [classes.find_weak_class(with_classes(rng.binomial(n, [p] * 10) / n, n)) is not None for p in chances]
    assert np.mean(equal) < 0.01
    weak = [classes.find_weak_class(with_classes(rng.binomial(n, [0.4] + [0.1] * 9) / n, n)) for _ in range(300)]
    assert np.mean([one is not None for one in weak]) > 0.9
    assert all("class 0 than on the whole" in one.title for one in weak if one is not None)


@pytest.mark.parametrize("samples", [5, 9])
def test_a_class_of_few_samples_is_not_judged(samples: int) -> None:
    assert classes.find_weak_class(with_classes([1.0] + [0.05] * 9, samples)) is None


def test_hardly_better_follows_the_commonest_class_and_leaves_guessers_to_their_own_rule() -> None:
    report = example("example")
    counts = {"0": 800, "1": 200}

    def of(accuracy: float) -> Report:
        gap = replace(report.gap, test_accuracy=accuracy, test_accuracy_ci95=wilson(accuracy, 1000), per_class=[])
        return replace(report, gap=gap, data=replace(report.data, test=replace(report.data.test, class_counts=counts)))

    assert guessing.find_hardly_better(of(0.95)) is None
    assert guessing.find_hardly_better(of(0.805)).level == "watch"  # type: ignore[union-attr]
    assert "would be right on 80 %" in guessing.find_hardly_better(of(0.805)).explanation  # type: ignore[union-attr]


def test_a_gap_below_zero_is_watched_and_one_around_zero_is_not() -> None:
    report = example("example")
    gaps = {(-0.05, -0.01): True, (-0.02, 0.01): False, (0.01, 0.2): False}
    for bounds, speaks in gaps.items():
        gap = replace(report.gap, error_gap=sum(bounds) / 2, error_gap_ci95=bounds)
        assert (find_negative_gap(replace(report, gap=gap)) is not None) == speaks


def test_the_rates_that_negative_gap_quotes() -> None:
    rows = json.loads((SAMPLES / "finding_rates.json").read_text(encoding="utf-8"))["networks"]
    sizes = {"mnist": 5000, "mnist-3": 1500, "mnist-5": 2500, "digits": 1797, "breast-cancer": 569}

    def below(row: dict[str, Any]) -> bool:
        test = sizes[row["data"]] // 5
        train = (sizes[row["data"]] - test) // (4 if row["recipe"] == "few" else 1)
        ends = wilson(row["test_error"], test), wilson(row["train_error"], train)
        found = difference_interval(row["test_error"], row["train_error"], *ends)
        return found is not None and found[1] < 0

    clean = [row for row in rows if "wrong" not in row["recipe"]]
    stopped = [row for row in rows if row["recipe"] == "short-wrong-25"]
    origin = NEGATIVE_GAP.origin
    assert f"{sum(map(below, clean))} of {len(clean)} with clean train labels" in origin
    assert f"for {sum(map(below, stopped))} of {len(stopped)} that were stopped" in origin


def test_a_validation_split_is_told_by_its_name() -> None:
    report = example("example")
    assert splits.find_validation_split(report) is None
    found = splits.find_validation_split(replace(report, data=replace(report.data, test_is_validation=True)))
    assert found is not None and found.level == "watch"


@pytest.mark.parametrize(
    ("constant", "varying", "level"), [(0, 0, None), (1, 0, None), (1, 1, "watch"), (4, 0, "note")]
)
def test_constant_inputs(constant: int, varying: int, level: str | None) -> None:
    report = example("example")
    assert report.doctor is not None
    block = ConstantInputs(features=9, constant=constant, varying_in_test=varying, names=["a"] * constant)
    found = feeding.find_constant_inputs(replace(report, doctor=replace(report.doctor, constant_inputs=block)))
    assert (None if found is None else found.level) == level


def test_one_cause_is_named_once() -> None:
    """Where another preprocessing explains all, neither class order nor BatchNorm nor range nor guessing is told."""
    report = example("example")
    doctor = report.doctor
    assert doctor is not None and doctor.class_order is not None and doctor.first_layer is not None
    sick = replace(
        doctor,
        better=1,
        best_as_fed=False,
        class_order=replace(doctor.class_order, moved=["0", "1"], cure="--classes 1,0"),
        batch_norms=[replace(doctor.batch_norms[0], shift=9.0)],
        first_layer=replace(doctor.first_layer, spread=500.0),
    )
    report = replace(report, doctor=sick)
    fed = (feeding.PREPROCESSING, feeding.CLASS_ORDER, feeding.BATCH_NORM, feeding.INPUT_RANGE)
    rules = (*fed, guessing.WRONG_INPUT)
    assert [rule.id for rule in rules if rule.find(report) is not None] == ["preprocessing"]
    assert "Say --mean 0.5 --std 0.5 and audit again" in feeding.find_preprocessing(report).advice  # type: ignore[union-attr]


def test_inputs_that_are_told_apart_are_a_watch_and_errors_that_differ_a_concern() -> None:
    report = example("example")
    assert report.hygiene is not None and report.twins is None
    apart = replace(report, hygiene=replace(report.hygiene, told_apart=APART))
    alike, unlike = (splits.find_shifted(each) for each in (report, apart))
    assert alike is not None and (alike.level, alike.title) == ("good", "Test inputs were not told from train inputs")
    assert unlike is not None and unlike.level == "watch" and "in 71 of 100 cases" in unlike.title
    assert (
        "by chance it would be 47 to 53" in unlike.explanation and "would say whether that costs" in unlike.explanation
    )
    nearly = replace(apart.hygiene, told_apart=replace(APART, accuracy=0.998)) if apart.hygiene else None
    found = splits.find_shifted(replace(apart, hygiene=nearly))
    assert found is not None and "in 99 of 100 cases" in found.title
    same = HeldOut(held_out=0.10, test=0.11, difference=0.01, ci95=(-0.01, 0.03), samples=900, twins=6, verdict="same")
    for held, level, words in (
        (same, "watch", "costs these networks no answers"),
        (replace(same, verdict="shifted"), "concern", "in 71 of 100 cases"),
        (replace(same, verdict="cannot tell", why="labels"), "watch", "Labels."),
    ):
        twins = replace(block(apart, random.Random(0)), held_out=held)
        found = splits.find_shifted(replace(apart, twins=twins))
        assert found is not None and found.level == level and words in found.explanation
        assert set(found.evidence) >= {"hygiene.told_apart.accuracy", "twins.held_out.test"}
    quiet = replace(report, hygiene=replace(report.hygiene, told_apart=None))
    assert splits.find_shifted(quiet) is None
    void = replace(apart.hygiene, leaked=replace(apart.hygiene.leaked, void=True)) if apart.hygiene else None
    assert splits.find_shifted(replace(apart, hygiene=void)) is None


def test_that_more_data_help_is_a_watch_only_where_it_is_more_than_chance_moves_the_gap_by() -> None:
    report = example("example")
    assert report.gap.error_gap_ci95 is not None
    low, high = report.gap.error_gap_ci95
    half = (high - low) / 2
    assert 0.015 < half < 0.02
    for gain, train_error, level in ((1.3, 0.0, "watch"), (1.1, 0.0, "note"), (0.9, 0.0, "note"), (1.3, 0.2, "note")):
        curve = Curve(
            points=[CurvePoint(train_samples=n, test=0.1, test_ci95=(0.09, 0.11), twins=6) for n in (250, 500, 1000)],
            change=-gain * half,
            change_ci95=(-2 * gain * half, -0.001),
            verdict="helps",
        )
        twins = replace(block(report, random.Random(0)), curve=curve)
        found = too_little.find_few_train(
            replace(report, twins=twins, gap=replace(report.gap, train_error=train_error))
        )
        assert found is not None and found.level == level
