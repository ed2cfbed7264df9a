"""The first page: question, answer, findings by weight, what stays open; understood without the rest."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import reports
from drawn import render_html
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


def test_question_answer_findings_and_what_stays_open_come_in_this_order():
    page = first_page(reports.classification())
    places = [page.index(f'id="{key}"') for key in ("summary", "findings", "open")]
    assert places == sorted(places)
    assert page.index('<div class="answer">') < page.index("<figure") < page.index('id="findings"')


def test_the_gap_is_the_headline_and_not_said_twice():
    report = reports.classification()
    title = next(one["title"] for one in report["findings"] if one["id"] == "gap")
    page = Page(render_html(report)).text
    assert page.count(title) == 1
    assert page.index("Does it hold up on data it has not seen?") < page.index(title) < page.index("What was found")


def test_every_finding_is_on_the_page_once_the_heavy_ones_first():
    report = reports.classification()
    page = Page(render_html(report)).text
    assert all(page.count(one["title"]) == 1 for one in report["findings"])
    later = [one["title"] for one in report["findings"] if not one["first_page"]]
    assert later and all(page.index(title) > page.index("Further findings") for title in later)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_a_word_a_shape_and_a_colour(level):
    html = render_html(reports.with_changes(findings=[finding(level=level)]))
    article = html[html.index(f'<article class="finding {level}">') :].partition("</article>")[0]
    assert f'<span class="level">{LEVELS[level]}:</span> Half of it is flat' in article
    assert f'<svg class="icon {level}"' in article and 'aria-hidden="true"' in article
    shapes = re.search(r"<svg.*?</svg>", article, re.S)[0]
    others = [render_html(reports.with_changes(findings=[finding(level=other)])) for other in LEVELS if other != level]
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
    page = first_page(reports.with_changes(findings=[], not_judged=[]))
    assert "What was found" not in page
    assert "nothing in these data can tell" in page


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


def test_sections_come_in_the_agreed_order():
    page = Page(render_html(reports.classification()))
    headings = [attributes["id"] for tag, attributes in page.elements if tag == "h2" and "id" in attributes]
    assert headings == [
        *("summary", "findings", "open", "contents", "further"),
        *(entry.key for entry in CATALOGUE),
        *("checks", "layers", "evidence", "cards", "again", "sign-off"),
    ]
    assert headings[5:8] == ["gap", "calibration", "duality"]


def test_levels_never_change_the_page_but_for_themselves():
    report = reports.classification()
    other = copy.deepcopy(report)
    for one in other["findings"]:
        one["level"] = "note"
    words = [re.sub(r"\b(Concern|Watch|Note|Good):", "", Page(render_html(one)).text) for one in (report, other)]
    assert words[0].split() == words[1].split()
