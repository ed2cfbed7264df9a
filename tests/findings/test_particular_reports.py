"""What the rules say about reports of which the answer is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import example

from audit.findings import add_findings
from audit.findings.rule import guesses
from audit.maths.resample import Bootstrap
from audit.measures import Report
from audit.measures.gap.measure import measure_gap
from audit.network.records import Outcome
from audit.report import Finding, NotJudged
from audit.run.reader_warnings import chance_warning


def findings(report: Report) -> dict[str, Finding]:
    return {finding.id: finding for finding in add_findings(report).findings}


def open_questions(report: Report) -> dict[str, NotJudged]:
    return {question.what: question for question in add_findings(report).not_judged}


def with_hygiene(**blocks: Any) -> Report:
    """The classification example with fields of a block of its data hygiene changed."""
    report = example("example")
    changed = {
        name: replace(getattr(report.hygiene, name), **change) if isinstance(change, dict) else change
        for name, change in blocks.items()
    }
    return replace(report, hygiene=replace(report.hygiene, **changed))


def with_errors(train: int, test: int, n: int = 1000) -> Report:
    """The example with so many wrong answers of n on either split, counted as an audit would."""
    report = example("example")
    labels = np.arange(n) % 10
    splits = [
        Outcome(np.zeros((n, 10)), labels, np.full(n, 0.1) + (np.arange(n) < wrong), (np.arange(n) < wrong) * 1.0)
        for wrong in (train, test)
    ]
    gap = measure_gap(*splits, [str(digit) for digit in range(10)], Bootstrap(200, 0))
    sizes = {split: replace(getattr(report.data, split), samples=n) for split in ("train", "test")}
    return replace(report, gap=gap, data=replace(report.data, **sizes))


@pytest.mark.parametrize(
    ("train", "test", "title"),
    [
        (0, 70, "On unseen samples the model is wrong more often than on its train samples, by 7.00 percentage points"),
        (
            300,
            100,
            "On unseen samples the model is wrong less often than on its train samples, by 20.00 percentage points",
        ),
        (0, 0, "These samples do not show whether the model is wrong more often on unseen samples"),
        (50, 52, "These samples do not show whether the model is wrong more often on unseen samples"),
    ],
)
def test_the_title_of_the_gap_follows_its_interval(train: int, test: int, title: str) -> None:
    found = findings(with_errors(train, test))["gap"]
    assert (found.title, found.level) == (title, "note")
    assert ("On train it makes no mistake" in found.explanation) == (train == 0)


def test_a_gap_that_cannot_be_seen_is_an_open_question_with_its_size() -> None:
    assert "Whether there is a gap below 0.38 percentage points" in open_questions(with_errors(0, 0))
    assert not any(what.startswith("Whether there is a gap") for what in open_questions(with_errors(0, 70)))


def test_an_underfit_is_told_apart_from_a_fit() -> None:
    assert "underfit" in findings(with_errors(300, 320))
    assert "underfit" not in findings(with_errors(5, 8))
    assert "underfit" not in findings(with_errors(50, 400))


def test_a_model_that_is_mostly_wrong_on_its_own_train_data_is_told_so_on_the_first_page() -> None:
    assert findings(with_errors(300, 320))["underfit"].level == "note"
    mostly = findings(with_errors(520, 530))["underfit"]
    assert mostly.level == "watch" and mostly.first_page


def test_few_test_samples_are_named_by_their_number() -> None:
    report = example("example")
    small = replace(report, data=replace(report.data, test=replace(report.data.test, samples=1)))
    assert findings(small)["few-test-samples"].title == "1 test sample is too few to rely on"
    assert "few-test-samples" not in findings(report)


def test_a_leaked_test_split_silences_what_rests_on_the_gap() -> None:
    leaked = with_hygiene(leaked={"void": True, "why": "all test samples are in train", "copies": 1000, "share": 1.0})
    found = findings(leaked)
    assert next(iter(found)) == "leaked" and found["leaked"].level == "concern"
    assert found["leaked"].explanation.startswith("All test samples are in train. 1,000 of 1,000 test samples are in ")
    assert not {"gap", "steep-gap", "flat-gap", "underfit", "gap-layers", "gap-classes", "worse-than-guessing"} & set(
        found
    )
    assert open_questions(leaked)["How the model does on unseen data"].why.startswith("These test samples are also in")


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"copies": 3, "share": 0.003, "coincidences": 0}, "watch"),
        ({"copies": 3, "share": 0.003, "coincidences": 3}, "note"),
        ({}, "good"),
        ({"searched": 0.1}, "note"),
    ],
)
def test_copies_weigh_by_what_is_known_of_them(change: dict[str, Any], level: str) -> None:
    assert findings(with_hygiene(leaked=change))["leaked"].level == level


def test_an_input_in_both_splits_with_another_label_is_not_called_absent() -> None:
    assert "leaked" not in findings(with_hygiene(duplicates_across_splits=2))


def test_a_failed_self_check_silences_what_rests_on_it() -> None:
    report = example("example")
    checks = [replace(check, status="failed") if check.id == "duality-exact" else check for check in report.checks]
    found = findings(replace(report, checks=checks))
    assert found["trust"].level == "concern" and found["trust"].title.startswith("1 self-check failed")
    assert not {"steep-gap", "flat-gap", "gap-layers"} & set(found)
    assert open_questions(replace(report, checks=checks))["Where the gap comes from"].why.startswith("A self-check")


def test_wrong_labels_weigh_more_where_the_gap_has_their_shape() -> None:
    seen = {"estimated_rate": 0.2, "estimated_rate_ci95": (0.15, 0.25)}
    steep = with_hygiene(suspected_mislabels=seen)
    assert findings(steep)["mislabelled"].level == "watch"
    flat = replace(steep, layers=[with_share(layer, 0.15) for layer in steep.layers])
    found = findings(flat)["mislabelled"]
    assert found.level == "concern" and found.title == "About 20 % of the train labels are probably wrong"
    assert "directions hold 15 % of the gap" in found.explanation
    clean = with_hygiene(suspected_mislabels={"estimated_rate": 0.01, "estimated_rate_ci95": (0.0, 0.03)})
    assert "mislabelled" not in findings(clean)


def with_share(layer: Any, share: float) -> Any:
    block = layer.duality
    fixed = replace(block.fixed, share=share)
    interval = replace(block.ci95, sharp_share=(share - 0.02, share + 0.02))
    return replace(layer, duality=replace(block, fixed=fixed, basis_complete=True, ci95=interval))


def test_the_shape_of_the_gap_is_not_named_within_its_own_uncertainty() -> None:
    report = with_hygiene(suspected_mislabels={"estimated_rate": 0.0, "estimated_rate_ci95": (0.0, 0.01)})
    found = {
        share: set(findings(replace(report, layers=[with_share(layer, share) for layer in report.layers])))
        & {"steep-gap", "flat-gap"}
        for share in (0.4, 0.49, 0.51, 0.6)
    }
    assert found == {0.4: {"flat-gap"}, 0.49: set(), 0.51: set(), 0.6: {"steep-gap"}}


@pytest.mark.parametrize(("share", "id"), [(0.2, "flat-gap"), (0.8, "steep-gap")])
def test_the_shape_of_the_gap_names_its_layers_and_advises_nothing_where_the_study_does_not_apply(share, id) -> None:  # type: ignore[no-untyped-def]
    report = with_hygiene(suspected_mislabels={"estimated_rate": 0.0, "estimated_rate_ci95": (0.0, 0.01)})
    report = replace(report, layers=[with_share(layer, share) for layer in report.layers])
    held = [replace(check, status="passed") for check in report.checks]
    found = findings(replace(report, checks=held))[id]
    assert found.title.startswith("In layer") and report.layers[0].name in found.title
    assert found.advice.startswith("If you train again")
    moving = [replace(check, status="failed" if check.id == "gradient-small" else "passed") for check in held]
    assert findings(replace(report, checks=moving))[id].advice.startswith("Rest no change of the training on this")


def test_units_that_never_act_are_counted_by_layer() -> None:
    report = example("example")
    first = replace(report.layers[0].sensitivity, units_active=[0, 0, 5, 4000])
    changed = replace(report, layers=[replace(report.layers[0], sensitivity=first), *report.layers[1:]])
    found = findings(changed)["dead-units"]
    assert found.title == "2 of 4 units never act on the train samples"
    assert "in fc1 (2). 1 more does on fewer than 1 % of them." in found.explanation
    assert found.evidence == {"layers[0].sensitivity.units_active": [0, 0, 5, 4000]}


def test_a_class_that_was_never_trained_is_a_concern() -> None:
    found = findings(with_hygiene(class_balance={"missing_in_train": ["7", "8"], "missing_in_test": ["8"]}))
    assert found["class-balance"].title == "A class is tested but not trained: 7"
    assert found["class-balance"].level == "concern"


def test_layers_that_share_a_reason_share_a_line() -> None:
    report = example("example")
    passed = [replace(report.passed_by[0], name=f"conv{n}", why="a convolution") for n in range(5)]
    lines = open_questions(replace(report, passed_by=passed))
    assert lines["Everything about layers conv0, conv1, conv2 and 2 more"].why == "A convolution."


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5), skill=st.sampled_from([0.0, 0.1, 0.5]))
def test_guessing_means_the_same_as_in_the_warning(seed: int, classes: int, skill: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rng.integers(20, 400))
    answers = np.where(rng.random(len(labels)) < skill, labels, rng.integers(classes, size=len(labels)))
    train = Outcome(np.eye(classes)[answers], labels, np.zeros(len(labels)), (answers != labels).astype(float))
    names = [str(name) for name in range(classes)]
    report = example("example")
    gap = measure_gap(train, train, names, Bootstrap(10, 0))
    audited = replace(report, gap=gap, data=replace(report.data, classes=classes))
    assert guesses(audited) == (chance_warning(train, names) is not None)
    assert guesses(audited) == ("wrong-input" in findings(audited))
