"""The part of the gap that no change of weights stands for is drawn and told where there is one."""

from __future__ import annotations

import re

import reports
from drawn import render_html, render_markdown


def page(*terms: float | None) -> str:
    report = reports.classification()
    for layer, term in zip(report["layers"], terms, strict=False):
        layer["duality"]["target_term"] = term
    return render_html(report)


def test_the_term_has_its_column_and_its_part_of_the_bar() -> None:
    html = page(12.5, None, None)
    assert len(re.findall(r'<tr><th scope="row">fc1</th>(?:(?!</tr>).)*12\.5(?:(?!</tr>).)*</tr>', html)) == 1
    assert "Same input, other target" in html and "common shift, other target" in html
    block = reports.classification()["layers"][0]["duality"]
    whole = block["sharp"]["contribution"] + block["flat"]["contribution"] + block["mean_term"] + 12.5
    assert f">{whole:.1f}</text>" in html


def test_pages_without_the_term_do_not_speak_of_it() -> None:
    assert "other target" not in page(None, None, None)
    assert "other target" not in page(0.0, 0.0, 0.0)  # partners share their label: there is none


def test_the_running_sum_claims_no_origin_of_the_gap() -> None:
    assert "the gap arises" not in page()


def test_a_class_named_as_a_team_calls_nobody() -> None:
    report = reports.classification()
    report["model"]["path"] = report["layers"][0]["name"] = "@org/team"
    text = render_markdown(report)
    assert "@&#8203;org/team" in text and not re.search(r"@\w", text)
