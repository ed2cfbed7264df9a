"""The sections: every number, true words for every sign, a reason for everything that is missing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import reports
from drawn import render_html
from pages import Page

from audit.render.sections import SECTIONS

ONLY_IN_THE_JSON = {
    *("gamma_std", "gamma_norms_std", "gamma_angles_std", "frobenius_norm_std", "spectral_radius_std"),
    *("frobenius_norm_per_sample", "frobenius_norm_per_sample_std"),
}
BOTH = pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())


def text(report: dict[str, Any]) -> str:
    """The page up to the definition cards, which do not depend on the report."""
    return Page(render_html(report)).text.split("gen-audit explain NAME")[0]


@BOTH
def test_every_link_within_the_page_has_a_target(report):
    page = Page(render_html(report))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert {link.removeprefix("#") for link in links} <= ids


@BOTH
def test_every_picture_is_described(report):
    page = Page(render_html(report))
    pictures = [attributes for tag, attributes in page.elements if tag == "svg" and "aria-hidden" not in attributes]
    assert len(pictures) >= 9
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)
    assert sum(tag == "figcaption" for tag, _ in page.elements) == len(pictures)


def stay_within_their_frame(report: dict[str, Any]) -> None:
    for tag, attributes in Page(render_html(report)).elements:
        places = [attributes.get(name) for name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy")]
        if tag in {"rect", "line", "circle", "text"}:
            assert all(0 <= float(place) <= 700 for place in places if place is not None), (tag, attributes)
        if tag == "rect":
            assert float(attributes["x"]) + float(attributes["width"]) <= 440.1


@BOTH
def test_pictures_stay_within_their_frame(report):
    stay_within_their_frame(report)


@BOTH
def test_numbers_of_the_network_are_on_the_page_in_full(report):
    values = Page(render_html(report)).values()
    for key in ("flatness", "fisher", "sensitivity"):
        numbers = {name: value for name, value in report["network"][key].items() if isinstance(value, float)}
        assert {name for name, value in numbers.items() if str(value) not in values} <= ONLY_IN_THE_JSON
    for bound in report["network"]["sensitivity"]["bounds"]:
        assert {str(bound["left"]), str(bound["right"]), str(bound["tightness"])} <= values


def test_identity_is_called_an_identity():
    words = text(reports.classification())
    assert "an identity: it holds for every model and proves nothing" in words
    assert "fc1: 26 % (95 % interval 23 % to 29 %) comes from the 12 steepest directions, 74 % from all the" in words
    assert "This gap over pairs need not equal the loss gap of 0.389" in words


def test_approximate_layer_is_marked():
    report = reports.classification()
    report["layers"][0]["duality"] |= {"approximate": True, "approximation": "The dual weights are a fit."}
    words = text(report)
    assert words.count("Approximate: The dual weights are a fit.") == 1


def test_missing_border_is_told_not_hidden():
    report = reports.regression()
    assert "no clear border" in text(report)
    assert "No clear border: the steepness falls off smoothly" in text(report)


def test_negative_gap_reads_true():
    report = reports.classification()
    report["network"]["duality"] |= {"gap": -0.12, "samples_share": None}
    for row in report["network"]["duality"]["classes"]:
        row |= {"share": None, "contribution": -0.012}
    for layer in report["layers"]:
        layer["duality"] |= {"gap": -0.12, "share_skipped": "the directions' sum is not positive"}
        layer["duality"]["sharp"] |= {"contribution": -0.05, "share": None}
        layer["duality"]["flat"] |= {"contribution": -0.07, "share": None}
        layer["duality"]["ci95"] |= {"sharp_share": None, "flat_share": None}
    words = text(report)
    assert "a test sample costs 0.12 less than its train partner" in words
    assert "add −0.05 and −0.07; shares would mislead here (the directions' sum is not positive)" in words
    assert "so no sample can be said to carry a share of it" in words
    stay_within_their_frame(report)


def test_layer_that_cannot_be_split_says_why_in_both_places():
    report = reports.classification()
    why = "another path leads round this layer"
    report["layers"][1]["duality"] |= {"sharp": None, "flat": None, "skipped": why}
    words = text(report)
    assert f"fc2: {why}." in words
    assert f"fc2 Flatness, Fisher information, Sensitivity and volume Where the gap comes from: {why}." in words


def test_regression_says_why_there_are_no_probabilities_and_no_bound():
    words = text(reports.regression())
    assert "is not said here. A regression has no class probabilities, so that these have no slope." in words
    assert "is not applied here. The theorem is for a loss between 0 and 1." in words
    assert "Classes that carry the gap" not in words


def test_failed_check_marks_every_section_that_rests_on_it():
    report = reports.classification()
    check = next(check for check in report["checks"] if check["id"] == "hessian-probe")
    check |= {"status": "failed", "value": 0.3}
    words = text(report)
    assert words.count("A self-check that this section rests on failed: the Hessian agrees with plain") == 2
    assert "1 of 9 checks failed: the sections that rest on it are marked" in words
    assert "Failed 0.3 1 × 10⁻⁸" in words


def test_broken_assumption_is_no_failed_check():
    words = text(reports.regression())
    assert "Not met here: the source study assumes “the network is piecewise linear" in words
    assert "No check failed. 1 of 4 assumptions of the source studies does not hold" in words
    assert "A self-check that this section rests on failed" not in words


@pytest.mark.parametrize("key", ["duality", "flatness", "fisher", "sensitivity"])
def test_measure_that_was_left_out_is_said_to_be(key):
    report = reports.classification()
    report["network"][key] = None
    for layer in report["layers"]:
        layer[key] = None
    html = render_html(report)
    assert f'<h2 id="{key}">' not in html and f'href="#{key}"' not in html  # no heading without its table
    assert f"{SECTIONS[key]}: not part of this audit" in text(report)


def test_gradients_that_do_not_vary_are_not_drawn():
    """As where every test sample is in train: all steepness is zero, and a log scale has nothing to show."""
    report = reports.classification()
    for layer in report["layers"]:
        block = layer["duality"]
        zero = [0.0] * len(block["sigma_g"])
        block |= {"sigma_g": zero, "contribution": zero, "share_skipped": "the directions' sum is not positive"}
        note = "the effective gradients do not vary: there are no sharp directions"
        block["sharp"] |= {"count": 0, "contribution": 0.0, "share": None, "elbow": False, "ratio": None, "note": note}
        block["flat"] |= {"contribution": 0.0, "share": None}
    assert text(report).count("The effective gradients do not vary: there are no sharp directions.") == 3
    stay_within_their_frame(report)


def test_exceeded_bound_must_not_be_quoted():
    words = text(reports.classification())
    assert "The measured test loss of 0.391 is above it: the theorem's assumptions do not hold here" in words
    report = reports.classification()
    report["network"]["fisher"]["pac_bayes"] |= {"exceeded": False, "vacuous": True}
    assert "It exceeds the loss of guessing, so it says nothing about this model" in text(report)


def test_thousand_classes_and_a_hundred_layers_stay_small():
    report = reports.classification()
    report["layers"] = [copy.deepcopy(report["layers"][index % 3]) | {"name": f"layer {index}"} for index in range(100)]
    classes = report["network"]["duality"]["classes"]
    report["network"]["duality"]["classes"] = [classes[index % 10] | {"name": str(index)} for index in range(1000)]
    html = render_html(report)
    assert len(html.encode()) < 1_000_000
    assert "The 20 classes that add most, of 1,000" in Page(html).text
    assert "The first 8 of 100 layers are drawn" in Page(html).text


def test_one_layer_is_not_compared_with_itself():
    report = copy.deepcopy(reports.classification())
    compared = ("In which layer the loss is most curved", "Fisher determinant by layer")
    assert all(words in render_html(report) for words in compared)
    report |= {"layers": report["layers"][:1], "passed_by": [], "findings": []}
    page = render_html(report)
    assert not any(words in page for words in compared) and "Scale-free curvature, layer by layer" in page
