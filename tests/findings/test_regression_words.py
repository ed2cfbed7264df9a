"""Findings about a regression speak of targets and outputs; evidence is quoted where it speaks for the finding."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from mutations import example, with_share
from test_particular_reports import findings, open_questions, with_hygiene

from audit.measures import Report
from audit.report import Finding

OF_CLASSES = re.compile(r"\b(labels?|classe?s?|logits?|confident|scores?|--classes)\b")
STUDIED = "In the 110 networks studied for this tool fewer samples doubled the part of the gap in the steepest"


def regression(outputs: int = 1, **of_gap: float) -> Report:
    """The regression example with a real gap that few samples carry, a unit that never acts, and other outputs."""
    report = example("regression")
    gap = replace(report.gap, loss_gap_ci95=(0.1, 0.2), **of_gap)
    carriers = replace(report.network.duality, samples_share=0.8, pairs=1000)
    first = replace(report.layers[0].sensitivity, units_active=[0, 5])
    layers = [replace(layer, duality=with_share(layer.duality, 0.1)) for layer in report.layers]
    layers[0] = replace(layers[0], sensitivity=first)
    network = replace(report.network, duality=carriers)
    return replace(report, gap=gap, network=network, layers=layers, model=replace(report.model, outputs=outputs))


def said(finding: Finding) -> str:
    return f"{finding.title}. {finding.explanation} {finding.advice}"


@pytest.mark.parametrize("outputs", [1, 3])
def test_no_finding_about_a_regression_speaks_of_classes(outputs: int) -> None:
    found = findings(regression(outputs)) | findings(regression(outputs, train_r2=-0.5))
    assert {"gap-samples", "flat-gap", "dead-units", "sensitive-inputs", "trust", "wrong-input"} <= set(found)
    for finding in found.values():
        assert not OF_CLASSES.search(said(finding)), said(finding)


def test_samples_that_carry_the_gap_are_told_in_the_words_of_the_task() -> None:
    found = findings(regression())["gap-samples"]
    assert "A mean loss can be ruled by a few large errors." in found.explanation
    assert "wrong test targets, odd samples" in found.advice
    report = example("example")
    few = replace(report.network, duality=replace(report.network.duality, samples_share=0.8, pairs=1000))
    of_classes = findings(replace(report, network=few))["gap-samples"]
    assert "a few confident mistakes." in of_classes.explanation and "wrong test labels" in of_classes.advice
    assert found.source == of_classes.source and "with classes, the nearest of its own" in found.source


def test_one_output_is_spoken_of_as_one() -> None:
    found = findings(regression())
    assert "moves the output by about" in found["sensitive-inputs"].title
    assert "Its output agrees with" in found["trust"].explanation
    several = findings(regression(3))
    assert "moves the outputs by about" in several["sensitive-inputs"].title
    assert "Its outputs agree with" in several["trust"].explanation
    assert "moves the scores by about" in findings(example("example"))["sensitive-inputs"].title


def test_wrong_targets_are_the_open_question_of_a_regression() -> None:
    assert "Whether train targets are wrong" in open_questions(regression())


def fitted(share: float) -> Report:
    """The classification example with a fit, a gap, labels beyond doubt, and one share in the steepest directions."""
    report = with_hygiene(suspected_mislabels={"estimated_rate": 0.0, "estimated_rate_ci95": (0.0, 0.01)})
    gap = replace(report.gap, train_error=0.0, error_gap=0.07, error_gap_ci95=(0.05, 0.09))
    layers = [replace(layer, duality=with_share(layer.duality, share)) for layer in report.layers]
    return replace(report, gap=gap, layers=layers)


@pytest.mark.parametrize(("share", "quoted"), [(0.9, True), (0.5, True), (0.45, False), (0.02, False)])
def test_what_fewer_samples_did_elsewhere_is_quoted_where_this_gap_looks_alike(share: float, quoted: bool) -> None:
    assert (STUDIED in findings(fitted(share))["few-train-samples"].explanation) == quoted


def test_it_is_not_quoted_where_the_directions_are_not_known_or_not_to_be_trusted() -> None:
    report = fitted(0.9)
    two = replace(report, data=replace(report.data, classes=2))
    unknown = replace(report, layers=[replace(layer, duality=None) for layer in report.layers])
    checks = [replace(check, status="failed") if check.id == "duality-exact" else check for check in report.checks]
    for changed in (two, unknown, replace(report, checks=checks)):
        assert STUDIED not in findings(changed)["few-train-samples"].explanation
