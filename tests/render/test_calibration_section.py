"""The section on calibration: its pictures, its words for every sign, and a reason for what is missing."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import reports
from drawn import render_html
from pages import Page

from audit.findings import add_findings
from audit.measures import Report
from audit.report.numbers import reproduction


def section(report: dict[str, Any]) -> Page:
    html = render_html(report)
    start = html.index('<section aria-labelledby="calibration">')
    return Page(html[start : html.index("</section>", start) + len("</section>")])


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    return [value] if isinstance(value, float) else []


def with_confidence(**changes: Any) -> dict[str, Any]:
    report = reports.classification()
    report["calibration"]["test"] |= changes
    return report


def test_every_number_is_there_in_full() -> None:
    report = reports.classification()
    block, shown = report["calibration"], section(report).values()
    for part in (block["test"], block["train"], block["scaling"]):
        assert {str(number) for number in numbers(part)} <= shown
    assert {str(bin["accuracy"]) for bin in block["test"]["bins"]} <= shown


def test_pictures_have_a_dot_for_each_bin_and_sample() -> None:
    for report, dots in ((reports.classification(), 10 + 10 + 10), (reports.regression(), 5 + 112 + 4)):
        page = section(report)
        assert sum(tag == "svg" for tag, _ in page.elements) == 2
        assert sum(tag == "circle" for tag, _ in page.elements) == dots


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([0.02, 0.06], "too sure, by more than chance explains"),
        ([-0.06, -0.02], "less sure than it could be, by more than chance explains"),
        ([-0.01, 0.02], "the interval includes zero, so that it can be chance"),
        (None, "there is no interval"),
    ],
)
def test_words_follow_the_interval(bounds: list[float] | None, words: str) -> None:
    assert words in section(with_confidence(overconfidence_ci95=bounds)).text


def test_the_bin_that_is_off_most_is_told_in_words() -> None:
    words = section(reports.classification()).text
    assert "Among 100 test samples of which it says 77 % on average it is right on 52 % (42 % to 62 %)" in words
    assert "of which it says" not in section(with_confidence(worst_bin=None)).text


def test_a_temperature_says_what_it_was_fitted_on_and_where_there_is_none_why() -> None:
    report = reports.classification()
    assert "the samples that it was fitted on; to use a temperature, fit it on others" in section(report).text
    assert "fits them as well within chance" not in section(report).text
    report["calibration"]["scaling"]["temperature_ci95"] = [0.9, 2.5]
    assert "and 1, as it is, fits them as well within chance" in section(report).text
    report["calibration"]["scaling"] |= {"temperature": None, "skipped": "no test sample is answered wrongly"}
    assert "No temperature would calibrate it: no test sample is answered wrongly." in section(report).text


def test_a_void_test_split_is_said_to_be_void_here_too() -> None:
    report = reports.classification()
    report["hygiene"]["leaked"]["void"] = True
    words = section(report).text
    assert "What this section says about test is void, since these test samples are in the train data." in words


def test_errors_of_a_regression_are_told_in_shares_of_samples() -> None:
    words = section(reports.regression()).text
    assert "An error that 4.85 % of the train samples exceed is exceeded by 15.18 % of the test samples" in words
    assert "more large errors on test than chance explains" in words
    assert "Output 1" not in words


def test_several_outputs_have_a_heading_each_and_those_left_out_are_counted() -> None:
    report = reports.regression()
    (own,) = report["calibration"]["outputs"]
    report["model"]["outputs"] = 9
    report["calibration"] |= {"outputs": [own | {"output": 0}, own | {"output": 1}], "outputs_left_out": 7}
    words = section(report).text
    assert "Output 1" in words and "Output 2" in words and "The first 2 of 9 outputs are shown." in words


def test_a_paper_leaves_out_the_table_of_bins() -> None:
    """The picture beside it has the same numbers."""
    report, words = reports.classification(), "The bins of the first picture"
    assert words in render_html(report) and words not in render_html(report, paper=True)


def older(report: dict[str, Any]) -> dict[str, Any]:
    """As it was written before there was this measure."""
    return {key: value for key, value in copy.deepcopy(report).items() if key != "calibration"}


@pytest.mark.parametrize("name", ["classification", "regression"])
def test_an_older_report_is_read_drawn_judged_and_reproduced_as_before(name: str) -> None:
    now = reports.both()[name]
    report = Report.from_json(json.dumps(older(now)))
    assert report.calibration is None
    assert 'id="calibration"' not in render_html(json.loads(report.to_json()))  # no heading without its table
    judged = add_findings(report)
    assert "calibration" not in {finding.id for finding in judged.findings}
    assert ("Calibration", "It was not part of this audit.") in {(open.what, open.why) for open in judged.not_judged}
    before = older(now) | {"tool": now["tool"] | {"version": "0.0.1"}}
    assert reproduction(before, now).reproduced
