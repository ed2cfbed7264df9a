"""What a finding says must be true of the very number beside it: reports on which it once was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mutations import example
from test_particular_reports import findings, with_errors, with_hygiene

from audit.measures import Report


def with_checks(**statuses: str) -> Report:
    report = example("example")
    names = {name.replace("_", "-"): status for name, status in statuses.items()}
    checks = [replace(check, status=names.get(check.id, check.status)) for check in report.checks]
    return replace(report, checks=checks)


def with_gap(name: str, **changes: Any) -> Report:
    report = example(name)
    return replace(report, gap=replace(report.gap, **changes))


def test_a_model_that_only_guesses_on_test_is_told_so_and_gets_no_temperature() -> None:
    found = findings(with_errors(320, 920))["worse-than-guessing"]
    assert found.level == "concern"
    assert found.title == "On unseen samples the model is right no more often than a guess"
    assert "right on 8.00 % of 1,000 test samples; guessing among the classes gives 10 %" in found.explanation
    assert "temperature" not in found.advice
    assert "than a guess" not in str(findings(with_errors(320, 800)).get("worse-than-guessing"))


def test_a_handful_of_test_samples_does_not_show_a_guesser() -> None:
    report = with_errors(0, 9, n=10)  # one sample of each class: nobody could do clearly better
    assert "no more often than a guess" not in str(findings(report).get("worse-than-guessing"))


@pytest.mark.parametrize(
    ("bounds", "level", "words"),
    [
        ((-0.41, 0.18), "note", "The interval reaches above 0, so that it can be chance."),
        ((-0.41, -0.01), "watch", "more than chance in drawing the test samples would give."),
        (None, "note", "There is no interval for it"),
    ],
)
def test_a_negative_r2_is_read_by_its_interval(bounds: Any, level: str, words: str) -> None:
    found = findings(with_gap("regression", test_r2=-0.07, test_r2_ci95=bounds))["worse-than-guessing"]
    assert found.level == level and words in found.explanation
    assert ("worse than their mean" in found.title) == (level == "watch")
    assert "entropy or, in a regression" in found.source


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (("gradient_small",), "The model is not at rest in a minimum, so"),
        (("interpolation",), "The model does not fit its train data, so"),
        (("gradient_small", "interpolation"), "The model neither fits its train data nor is at rest in a minimum, so"),
    ],
)
def test_the_title_names_the_assumption_that_failed(failed: tuple[str, ...], words: str) -> None:
    statuses = dict.fromkeys(("gradient_small", "interpolation"), "passed") | dict.fromkeys(failed, "failed")
    assert findings(with_checks(**statuses))["not-at-minimum"].title.startswith(words)


def test_a_quick_audit_speaks_of_the_layer_that_it_looked_at() -> None:
    report = with_checks(gradient_small="failed", interpolation="failed")
    quick = findings(replace(report, plan=replace(report.plan, quick=True)))["not-at-minimum"]
    assert "neither fits its train data nor is at rest in a minimum in its last dense layer, so" in quick.title
    assert (
        "gradients in the weights of its last dense layer, the only one looked at, do not cancel: their mean is"
        in quick.explanation
    )


def test_a_bound_is_quoted_beside_its_own_left_side() -> None:
    report = example("example")
    block = report.network.sensitivity
    about = "the input of f1, the first dense layer: no dense layer is fed by the model's input"
    bounds = [
        replace(bound, left=2.69, right=9.09, tightness=0.296, about=about) if bound.id == "prop-3.8" else bound
        for bound in block.bounds
    ]
    changed = replace(report, network=replace(report.network, sensitivity=replace(block, bounds=bounds)))
    words = findings(changed)["sensitive-inputs"].explanation
    assert "For the input of f1 it is 2.69. The bound" in words and "allows 9.09 there; 30 % of it is used." in words
    assert "there;" not in findings(report)["sensitive-inputs"].explanation


@pytest.mark.parametrize(
    ("part", "title"),
    [
        (0.84, "20 test samples make up 84 % of the summed differences to their partners"),
        (1.57, "20 test samples cost more than the whole difference between test samples and partners"),
    ],
)
def test_shares_of_samples_say_what_they_are_shares_of(part: float, title: str) -> None:
    report = example("example")
    carriers = replace(report.network.duality, samples_share=part, pairs=594, gap=0.0481)
    changed = replace(report, network=replace(report.network, duality=carriers))
    found = findings(changed)["gap-samples"]
    assert found.title == title
    assert "whose mean over all pairs is 0.0481" in found.explanation


@pytest.mark.parametrize(("count", "words"), [(13, "may be wrong"), (40, "are probably wrong")])
def test_labels_are_called_wrong_only_beyond_chance(count: int, words: str) -> None:
    seen = {"estimated_rate": 0.05, "estimated_rate_ci95": (0.01, 0.1), "count": count}
    chance = {"expected_by_chance": 7.4, "expected_by_chance_ci95": (2.9, 18.6)}
    found = findings(with_hygiene(suspected_mislabels=seen | chance))["mislabelled"]
    assert found.title == f"About 5 % of the train labels {words}"
    assert "about 7 (95 % interval 2.9 to 18.6) would be" in found.explanation


def test_copies_are_counted_once() -> None:
    why = "594 of 594 test samples are in train with the same label, more than chance explains"
    found = findings(with_hygiene(leaked={"void": True, "why": why, "copies": 594, "share": 1.0}))["leaked"]
    assert found.explanation.count("594 of") == 1


def test_a_train_loss_too_high_for_its_mistakes_hints_at_the_scale() -> None:
    report = with_errors(96, 103)
    sure = replace(report, gap=replace(report.gap, train_loss=1.66, train_loss_ci95=(1.28, 2.06)))
    found = findings(sure)["underfit"]
    assert "Its train loss of 1.66 is above the 0.527 of a model" in found.explanation
    assert found.advice.startswith("Check first that the input is scaled as in training")
    assert "scaled" not in findings(report)["underfit"].explanation


def test_a_model_that_does_not_react_is_said_to_give_one_answer() -> None:
    report = with_errors(900, 900)
    two = replace(report.gap.confusion, counts=[[3, 1], [4, 0]])
    report = replace(report, gap=replace(report.gap, confusion=two))
    assert "the same" not in findings(report)["wrong-input"].explanation
    still = replace(report.network.sensitivity, mls=0.0)
    dead = replace(report, network=replace(report.network, sensitivity=still))
    assert "It gives the same scores to every input" in findings(dead)["wrong-input"].explanation
    one = replace(report.gap.confusion, counts=[[3, 0], [4, 0]])
    same = replace(report, gap=replace(report.gap, confusion=one))
    assert "It gives the same answer to every test sample." in findings(same)["wrong-input"].explanation


def test_a_layer_without_letters_in_its_name_is_called_a_layer() -> None:
    report = example("example")
    first = replace(report.layers[0].sensitivity, units_active=[0, 5])
    changed = [replace(report.layers[0], sensitivity=first, name="2"), *report.layers[1:]]
    assert "in layer 2 (1)." in findings(replace(report, layers=changed))["dead-units"].explanation
