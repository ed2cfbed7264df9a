"""A baseline beside the report: a section of its own, only where one is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import reports
from drawn import render_html
from pages import Page

from audit.compare import SCHEMA, ChangedSample, ChangedSamples, Comparison, Number, Side

NUMBER = {
    "key": "gap.test_error", "name": "Wrong answers on test", "section": "observed", "kind": "percent", "old": 0.08,
    "new": 0.072, "difference": -0.008, "ci95": [-0.02, 0.004], "samples": 1000, "paired": True,
    "verdict": "cannot tell", "seeds_share": None, "matched": False, "skipped": None,
}  # fmt: skip


def comparison(**changes) -> Comparison:
    made = {"created": ["2026"], "data": "d", "data_sha256": "", "train_samples": 1, "test_samples": 1, "parameters": 1}
    told = {"findings": [], "warnings": []}
    side = Side(name="old", reports=["old/report.json"], model_sha256=["ab" * 32], **made, **told)
    values = {
        "schema": SCHEMA, "created": "2026", "version": "0", "command": "c", "about": "models",
        "old": side, "new": side, "void": None, "primary": "gap.test_error", "verdict": "cannot tell",
        "headline": ["These test samples cannot tell <which>."], "numbers": [Number(**NUMBER)],
        "notes": ["Read it so."],
        "appeared": ["Watch: a new one"], "disappeared": [],
    }  # fmt: skip
    return Comparison(**values | changes)


def test_section_says_verdict_difference_and_interval():
    html = render_html(reports.classification(), comparison=comparison())
    words = Page(html).text
    assert "Verdict on this model: cannot tell. These test samples cannot tell <which>." in words
    assert "Wrong answers on test the verdict rests on this number 8.00 % 7.20 % −0.80 points −2.00 to +0.40" in words
    assert "Against the baseline: cannot tell. The verdict rests on the wrong answers alone" in words
    assert "New finding: Watch: a new one" in words and 'href="#comparison"' in html


def test_void_comparison_says_so():
    words = Page(render_html(reports.classification(), comparison=comparison(void="Other test samples."))).text
    assert "Void. Other test samples." in words and "Against the baseline: void." in words


def test_there_is_no_section_without_a_baseline():
    html = render_html(reports.classification())
    assert "Comparison with the baseline" not in html and "Against the baseline" not in html


def test_render_takes_a_baseline(tmp_path: Path):
    command = [sys.executable, "-m", "audit", "render", str(reports.EXAMPLE), "-o", str(tmp_path)]
    subprocess.run([*command, "--baseline", str(reports.EXAMPLE)], check=True, capture_output=True)
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "Comparison with the baseline" in words and "Mean loss on test" in words


def test_nobody_is_told_to_compare_who_has() -> None:
    bare, beside = (render_html(reports.classification(), comparison=given) for given in (None, comparison()))
    assert "gen-audit compare" in Page(bare).text and "gen-audit compare" not in Page(beside).text


def test_better_and_worse_are_told_by_word_and_sign_not_by_colour_alone() -> None:
    sample = ChangedSample(index=7, old_loss=0.1, new_loss=2.5, old_wrong=False, new_wrong=True)
    words = Page(
        render_html(
            reports.classification(),
            comparison=comparison(
                numbers=[Number(**NUMBER | {"verdict": "worse"})],
                verdict="worse",
                samples=ChangedSamples(worse=[sample]),
            ),
        )
    ).text
    assert "Verdict on this model: ▲ worse." in words
    assert "▲ Test samples that got worse Test 7: right before, wrong now.Loss 0.1 before, 2.5 now." in words
