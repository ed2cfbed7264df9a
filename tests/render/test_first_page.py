"""The first page: question, answer, findings by weight, what stays open; understood without the rest."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import reports
from drawn import render_html, report_of
from pages import Page

from audit.measures.catalogue import CATALOGUE
from audit.render.summary import LEVELS


def first_page(report: dict[str, Any]) -> str:
    html = render_html(report)
    start = html.index('<div class="first-page">')
    return html[start : html.index("<nav ")]


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "id": "x", "level": "watch", "title": "Half of it is flat", "explanation": "Why.", "evidence": {},
        "advice": "Look at `labels`.", "source": "Feng & Tu 2022", "first_page": True,
    } | changes  # fmt: skip


def test_it_says_what_was_audited_when_and_by_hash():
    report = reports.classification()
    words = Page(first_page(report)).text
    for part in (report["model"]["sha256"][:16], report["data"]["sha256"][:16], "2026-11-16 10:00:00 UTC", "24,790"):
        assert part in words
    assert "samples/healthy.onnx: classification" in words


def test_question_answer_and_findings_come_in_this_order():
    page = first_page(reports.classification())
    assert page.index('id="summary"') < page.index('id="findings"')
    assert page.index('<div class="answer">') < page.index("<figure") < page.index('id="findings"')
    assert page.count("<figure") == 1


@pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())
def test_the_bottom_line_answers_the_question_and_is_not_said_twice(report):
    line = report["bottom_line"]
    page = Page(render_html(report)).text
    assert page.count(line["sentence"]) == 1
    said = f"{LEVELS[line['level']]}: {line['sentence']} {line['because']} What to do next: "
    assert page.index("Does it hold up on data it has not seen?") < page.index(said) < page.index("What was found")


def test_the_picture_of_the_bottom_line_shows_model_weakest_class_and_constant_answer():
    words = [Page(first_page(report)).text for report in reports.both().values()]
    assert "This model 93 (91 to 94) Weakest: class 5 85 (77 to 91) Always the commonest class 10" in words[0]
    assert "This model, on test 0.848 On train 0.551 Always the mean 0.935" in words[1]


def test_an_older_report_gets_its_bottom_line_when_it_is_drawn():
    report = reports.classification()
    assert render_html(report | {"bottom_line": None}) == render_html(report)


def test_where_nothing_can_be_said_there_is_no_picture():
    report = reports.with_changes(bottom_line=None)
    report["hygiene"]["leaked"]["void"] = True
    page = first_page(report)
    assert "Nothing can be said about new samples: these test samples are also in the train data" in page
    assert "<figure" not in page


def test_every_finding_is_on_the_page_once_the_heavy_ones_first():
    report = reports.classification()
    page = Page(render_html(report)).text
    named = report["bottom_line"]["advice"]
    assert all(page.count(one["title"]) == 1 + (one["title"] in named) for one in report["findings"])
    later = [one["title"] for one in report["findings"] if not one["first_page"]]
    assert later and all(page.index(title) > page.rindex("Lesser findings") for title in later)


def test_a_heavy_finding_beyond_the_first_page_stays_out_of_the_appendix():
    many = [finding(id=str(place), title=f"Fault {place}", first_page=place < 6) for place in range(8)]
    page = Page(render_html(reports.with_changes(findings=many, bottom_line=None))).text
    assert page.rindex("Further findings") < page.index("Fault 7") < page.rindex("Appendix for experts")
    assert "Lesser findings" not in page


def article_of(level: str) -> str:
    html = render_html(reports.with_changes(findings=[finding(level=level)]))
    return html[html.index(f'<article class="finding {level}">') :].partition("</article>")[0]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_word_a_shape_and_a_colour(level):
    article = article_of(level)
    assert f'<span class="level">{LEVELS[level]}:</span> Half of it is flat' in article
    assert f'<svg class="icon {level}"' in article and 'aria-hidden="true"' in article
    shapes = re.search(r"<svg.*?</svg>", article, re.S)[0]
    others = [article_of(other) for other in LEVELS if other != level]
    assert not any(re.sub(r'class="[^"]*"', "", shapes) in re.sub(r'class="[^"]*"', "", other) for other in others)


def test_a_finding_shows_advice_evidence_and_source():
    evidence = {
        "gap.loss_gap": 0.389,
        "gap.loss_gap_ci95": [0.27, 0.52],
        "layers[1].duality.sharp.share": 0.54,
        "x": "y",
    }
    report = reports.with_changes(findings=[finding(evidence=evidence)])
    html = render_html(report)
    assert (
        "Watch: Half of it is flat Why. What to do: Look at labels. Evidence: loss gap 0.389; loss gap, 95 % interval "
        "0.27 to 0.52; sharp share in fc2 0.54. Source: Feng & Tu 2022."
    ) in Page(html).text
    assert 'title="layers[1].duality.sharp.share"' in html


def test_a_report_without_findings_still_has_a_first_page():
    report = reports.with_changes(findings=[], not_judged=[])
    assert "What was found" not in first_page(report)
    assert "nothing in these data can tell" in render_html(report)


def test_what_could_not_be_judged_stands_with_its_reason():
    rows = [{"what": "Whether it rains", "why": "Nobody looked (`--window`)."}]
    assert "<strong>Whether it rains.</strong> Nobody looked (<code>--window</code>)." in render_html(
        reports.with_changes(not_judged=rows)
    )


def test_no_grade_and_no_compliance_is_claimed():
    for report in reports.both().values():
        words = Page(render_html(report)).text
        assert not re.search(r"\b(compliant|complies|certif\w+|grade [A-F]|\d+ out of 10|score of \d)\b", words)
        assert "evidence towards" in words.lower() and "not a statement of compliance" in words
        for place in ("NIST AI RMF 1.0, MEASURE 2.5", "NIST AI RMF 1.0, MEASURE 1.1", "EU AI Act, Annex IV 2(g)"):
            assert place in words


def test_sign_off_lines_name_the_hashes():
    report = reports.classification()
    words = Page(render_html(report)).text
    signed = words[words.index("Signed for model") :]
    assert report["model"]["sha256"][:16] in signed
    assert all(role in signed for role in ("Prepared by", "Reviewed by", "Decided by"))


BODY = ["gap", "calibration", "failures", "consequences", "hygiene", "open", "glossary", "sign-off"]
APPENDIX = [
    *("appendix", "lesser", "duality", "flatness", "fisher", "sensitivity"),
    *("checks", "layers", "evidence", "cards", "again"),
]


def headings(report: dict[str, Any], **options: Any) -> list[str | None]:
    page = Page(render_html(report, **options))
    return [attributes["id"] for tag, attributes in page.elements if tag == "h2" and "id" in attributes]


def test_sections_come_in_the_agreed_order():
    assert headings(reports.classification()) == ["summary", "findings", "contents", *BODY, *APPENDIX]
    measured = {entry.key for entry in CATALOGUE if entry.block(report_of(reports.classification())) is not None}
    assert measured <= {*BODY, *APPENDIX}


@pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())
def test_a_short_page_has_no_appendix_and_no_link_into_it(report):
    html = render_html(report, short=True)
    page = Page(html)
    assert not set(APPENDIX) & set(headings(report, short=True))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {attributes["href"].removeprefix("#") for tag, attributes in page.elements if tag == "a"} <= ids
    assert "For the decision" not in page.text


def test_every_section_of_the_appendix_opens_with_what_it_changes_for_the_decision():
    html = render_html(reports.classification())
    for key in APPENDIX[1:]:
        opening = html[html.index(f'<h2 id="{key}">') :].partition("</h2>")[2].lstrip()
        assert opening.startswith('<p class="decision"><strong>For the decision:</strong> '), key
    body = html[: html.index('<h2 id="appendix">')]
    assert "For the decision" not in body


@pytest.mark.parametrize("report", reports.both().values(), ids=reports.both())
def test_numbers_that_tell_nothing_alone_stand_in_the_appendix_only(report):
    words = Page(render_html(report, short=True)).text
    assert not [word for word in ("PAC-Bayes", "extrapolated", "ightness", "γ") if word in words]


def test_levels_never_change_the_page_but_for_themselves():
    report = reports.classification()
    other = copy.deepcopy(report)
    for one in other["findings"]:
        one["level"] = "note"
    words = [re.sub(r"\b(Concern|Watch|Note|Good):", "", Page(render_html(one)).text) for one in (report, other)]
    assert words[0].split() == words[1].split()
