"""The page: complete, honest about what is missing, safe to open, the same every time."""

from __future__ import annotations

import re

import pytest
import reports
from drawn import render_html
from pages import Page

from audit.measures import Report


@pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())
def test_page_is_well_formed_and_accessible(report):
    html = render_html(report)
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == tags.count("main") == tags.count("title") == 1
    assert page.elements[0] == ("html", {"lang": "en"})
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        assert attributes.get("aria-labelledby", ids[0]) in ids
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")


def test_page_needs_no_script_and_no_network():
    html = render_html(reports.classification())
    page = Page(html)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert pictures and all(picture["src"].startswith("data:image/png;base64,") for picture in pictures)
    without = re.sub(r"data:image/png;base64,[\w+/=]+", "", html)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bon\w+=", without)
    assert "default-src 'none'" in html


def test_same_values_give_the_same_bytes():
    assert render_html(reports.classification()) == render_html(reports.classification())


def test_page_of_a_report_equals_the_page_of_its_json():
    report = Report.from_json(reports.EXAMPLE.read_text(encoding="utf-8"))
    assert render_html(reports.classification()) == render_html(
        reports.json.loads(Report.from_json(report.to_json()).to_json())
    )


def test_every_number_of_the_gap_is_on_the_page_in_full():
    report = reports.classification()
    values = Page(render_html(report)).values()
    gap = report["gap"]
    for name in ("train_loss", "test_loss", "loss_gap", "train_error", "test_error", "error_gap", "test_accuracy"):
        assert str(gap[name]) in values, name
    for row in gap["per_class"]:
        assert {str(row["test_loss"]), str(row["loss_gap"]), str(row["test_error"])} <= values


def test_gap_is_told_in_words_with_its_interval():
    text = Page(render_html(reports.classification())).text
    assert "wrongly on 0.00 % of 4,000 train samples and on 7.20 % of 1,000 test samples: a gap of +7.20 points" in text
    assert (
        "(95 % interval +5.60 to +8.80 points); worse on test than chance alone would explain on these samples." in text
    )


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([-0.01, 0.02], "the interval includes zero, so these samples cannot tell a gap from none."),
        (
            [-0.05, -0.02],
            "better on test than on train, which strong regularisation or an easier test split can cause.",
        ),
        (None, "there is no interval, so chance cannot be told from a real difference."),
    ],
)
def test_words_claim_no_more_than_the_interval_allows(bounds, words):
    text = Page(render_html(reports.with_changes(gap={"error_gap_ci95": bounds, "loss_gap_ci95": bounds}))).text
    assert text.count(words) == 2
    assert "worse on test than chance" not in text


def test_regression_shows_rmse_and_r2_and_says_why_there_is_no_error():
    page = Page(render_html(reports.regression()))
    assert "root mean squared error is 0.551 on 330 train samples and 0.848 on 112 test samples" in page.text
    assert "explains 70.88 % of the variance on train and 17.53 % on test" in page.text
    assert "Not shown: error and accuracy do not exist for regression." in page.text
    assert "answers wrongly" not in page.text
    assert "Class by class" not in page.text


def test_warnings_stand_before_everything_else():
    warning = "Train accuracy is at chance: preprocessing or class order is probably wrong."
    text = Page(render_html(reports.with_changes(warnings=[warning]))).text
    assert text.index(warning) < text.index("Does it hold up")
    assert "Read this first" not in Page(render_html(reports.classification())).text


def test_class_without_a_gap_says_why():
    report = reports.classification()
    nothing = dict.fromkeys(("test_error", "test_loss", "loss_gap", "loss_gap_ci95"))
    report["gap"]["per_class"][3] |= {**nothing, "test_samples": 0, "skipped": "no test sample of this class"}
    text = Page(render_html(report)).text
    assert "no test sample of this class" in text
    assert "None" not in text[: text.index("gen-audit explain NAME")]  # the cards say "None: …" in words


def test_unchecked_parity_says_why():
    text = Page(render_html(reports.with_changes(model={"parity": None}))).text
    assert "not checked: the file has no runtime of its own to compare with" in text


def test_own_split_is_called_no_evidence():
    text = Page(render_html(reports.with_changes(data={"split_is_ours": True}))).text
    assert "gen-audit made this split itself" in text
    assert "no evidence about the release" in text


def test_layers_that_were_passed_by_stand_with_their_reason():
    text = Page(render_html(reports.classification())).text
    assert "3 dense layers were captured, 1 layer with weights passed by." in text
    assert "features.0.conv nothing a convolution, not a dense layer: its weights are shared between positions." in text
    assert "fc1 Where the gap comes from, Flatness, Fisher information, Sensitivity and volume –" in text


def test_particular_layers_are_remarked_upon():
    report = reports.classification()
    report["layers"][0] |= {"tokens": 16, "calls": 2, "tied_with": ["decoder"], "cut_point": False}
    text = Page(render_html(report)).text
    assert (
        "applied to 16 vectors per sample; used 2 times with the same weights; shares its weights with decoder; "
        "bypassed by another path"
    ) in text


def test_hostile_names_are_shown_not_run():
    hostile = "<script>alert('x')</script>&\"'"
    report = reports.with_changes(command=hostile, warnings=[hostile], model={"path": hostile, "notes": [hostile]})
    report["gallery"] |= {"about": hostile, "thumbnails": []}
    report["findings"][0] |= {"title": hostile, "explanation": hostile, "advice": hostile, "source": hostile}
    report["not_judged"] = [{"what": hostile, "why": hostile}]
    report["gap"]["confusion"]["most"][0]["label"] = hostile
    report["layers"][0]["name"] = report["gap"]["per_class"][0]["name"] = hostile
    report["passed_by"][0] |= {"name": hostile, "why": hostile}
    report["settings"]["label"] = hostile
    report["layers"][1]["duality"] |= {"sharp": None, "skipped": hostile}
    report["network"]["duality"]["samples"][0]["label"] = report["network"]["duality"]["classes"][0]["name"] = hostile
    report["hygiene"]["suspected_mislabels"]["suspects"][0] |= {"label": hostile, "neighbours_label": hostile}
    report["hygiene"]["class_balance"] |= {"missing_in_test": [hostile]}
    report["checks"][0] |= {"title": hostile, "explanation": hostile, "status": "failed"}
    html = render_html(report)
    page = Page(html)
    assert "script" not in {tag for tag, _ in page.elements}
    assert "<script" not in html.lower()
    assert page.text.count(hostile) >= 21  # twice or more for each of the places above
