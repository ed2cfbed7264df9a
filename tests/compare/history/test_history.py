"""Audits over time: lines, regressions, bands."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_reports import answers, leaked, made, split

from audit.compare import Named, read_folder
from audit.compare.history.timeline import reference_band, trace_history
from audit.errors import UsageError
from audit.render.comparison_pages import write_history

N = 500


def audit(day: int, share: float, **changes: object) -> Named:
    """An audit of a model that is wrong on the first `share` of the samples, and on a few of its own."""
    wrong = np.maximum(np.arange(N) < share * N, answers(N, 0.01, day))
    created = f"2026-01-{day:02}T00:00:00Z"
    return made(f"runs/{day}.json", test=split(wrong + 0.1, wrong), created=created, **changes)


def history(*audits: Named):
    return trace_history(audits, Path("runs"), "gen-audit history runs")


def test_the_first_regression_is_named():
    (line,) = history(audit(1, 0.1), audit(2, 0.1), audit(3, 0.2), audit(4, 0.3)).lines
    assert line.first_regression == "runs/3.json"
    assert [step.regression for step in line.steps] == [False, False, True, True]
    assert line.headline[0].startswith(
        "First regression: 3.json. Its test error differs from that of the audit before it"
    )


def test_a_slow_decay_is_found_beside_the_best():
    """No step is a regression beside the one before it, but in the end the best is out of reach."""
    (line,) = history(*(audit(day, 0.10 + 0.006 * day) for day in range(1, 9))).lines
    assert all(step.previous is None or step.previous.verdict != "worse" for step in line.steps)
    worse = next(step for step in line.steps if step.regression)
    assert worse.best is not None and worse.best.verdict == "worse"
    assert "the best audit before it" in line.headline[0]


def test_without_regression_it_says_so():
    (line,) = history(audit(1, 0.2), audit(2, 0.1), audit(3, 0.1)).lines
    assert line.first_regression is None and line.headline[0].startswith("No regression: in 3 audits")


def test_a_void_audit_is_no_yardstick():
    good = audit(2, 0.0)
    (line,) = history(audit(1, 0.2), Named(good.name, leaked(good.report)), audit(3, 0.2)).lines
    assert line.steps[1].void is not None and line.first_regression is None
    assert line.steps[2].previous.against == "runs/1.json"


def test_other_test_samples_make_another_line():
    other = made("runs/2.json", test=split(np.ones(9), np.ones(9), "else"))
    other = Named(other.name, replace(other.report, data=replace(other.report.data, sha256="else")))
    assert [len(line.steps) for line in history(audit(1, 0.1), other, audit(3, 0.1)).lines] == [2, 1]


def test_numbers_from_inside_are_drawn_beside_the_latest_train_loss_only():
    apart = audit(1, 0.1)
    apart = Named(apart.name, replace(apart.report, gap=replace(apart.report.gap, train_loss=9.0)))
    (line,) = history(apart, audit(2, 0.1), audit(3, 0.1)).lines
    by_key = {trend.key: trend for trend in line.trends}
    assert by_key["network.flatness.kappa_tau_sum"].comparable == [False, True, True]
    assert by_key["gap.test_loss"].comparable == [True, True, True]


def test_train_numbers_are_drawn_beside_the_latest_train_samples_only():
    other = audit(1, 0.1)
    outcomes = replace(other.report.outcomes, train=split(np.ones(4), np.ones(4), "other"))
    (line,) = history(Named(other.name, replace(other.report, outcomes=outcomes)), audit(2, 0.1)).lines
    by_key = {trend.key: trend.comparable for trend in line.trends}
    assert (by_key["gap.test_error"], by_key["gap.error_gap"]) == ([True, True], [False, True])


def test_the_folder_is_read_in_order_and_other_files_are_passed_over(tmp_path):
    for name, each in (("b/report.json", audit(1, 0.1)), ("a.json", audit(2, 0.1))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(each.report.to_json(), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"schema": "else"}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    assert [Path(each.name).name for each in read_folder(tmp_path)] == ["report.json", "a.json"]


def test_a_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no report of gen-audit; put report.json files into it"):
        read_folder(tmp_path)
    with pytest.raises(UsageError, match=r"is no folder; name the one that holds the report.json files"):
        read_folder(tmp_path / "missing")


def test_the_page_is_one_file_without_script(tmp_path):
    told = history(audit(1, 0.1), audit(2, 0.1), audit(3, 0.3))
    assert write_history(told, tmp_path, ("html", "json", "md")).files == ("history.html", "history.json", "history.md")
    page = (tmp_path / "history.html").read_text(encoding="utf-8")
    assert "<script" not in page and page.count("<svg") >= 6 and "First regression: 3.json" in page
    assert json.loads((tmp_path / "history.json").read_text(encoding="utf-8"))["lines"][0]["first_regression"]


def test_the_band_holds_other_models_of_this_architecture_on_these_data():
    past = [audit(day, share) for day, share in ((1, 0.1), (2, 0.2), (3, 0.3))]
    stranger = replace(past[0].report, model=replace(past[0].report.model, parameters=7))
    new = audit(4, 0.5)
    band = reference_band(new.report, [*past, Named("stranger", stranger), new], Path("runs"))
    assert (band.reports, band.passed_over) == (3, 2)
    error = next(number for number in band.numbers if number.key == "gap.test_error")
    errors = sorted(each.report.gap.test_error for each in past)
    assert (error.low, error.median, error.high) == tuple(errors)
    assert error.value == new.report.gap.test_error


def test_the_band_of_what_follows_the_train_loss_needs_that_loss():
    past = audit(1, 0.1)
    past = Named(past.name, replace(past.report, gap=replace(past.report.gap, train_loss=9.0)))
    band = reference_band(audit(2, 0.1).report, [past], Path("runs"))
    inside = [number.key for number in band.numbers if number.key.startswith("network.")]
    assert inside == ["network.sensitivity.dimensionality"]


def test_no_band_says_why():
    band = reference_band(audit(1, 0.1).report, [], Path("runs"))
    assert band.numbers == [] and "no report in the folder is of another model" in band.skipped


def test_no_band_names_what_keeps_each_report_out():
    new, old = audit(1, 0.1), audit(2, 0.1).report
    larger = replace(old, model=replace(old.model, parameters=7))
    task = replace(old, model=replace(old.model, task="binary"))
    moved = replace(old, outcomes=replace(old.outcomes, train=split(np.ones(4), np.ones(4), "other")))
    conv = replace(old, settings={**old.settings, "conv": True}, layers=[*old.layers, old.layers[0]])
    past = [Named("past", each) for each in (new.report, larger, task, moved, conv, conv)]
    assert reference_band(new.report, past, Path("runs")).skipped == (
        "no report in the folder is of another model with this architecture on these train and test samples "
        "(of this very model: 1; of another architecture: 1; of another task: 1; on other samples: 1; "
        "audited with --conv, unlike this one: 2)"
    )


def lucky(day: int, rng: np.random.Generator) -> Named:
    """An audit of a model that is wrong on one in ten samples, whichever they are: nothing changes but chance."""
    wrong = (rng.random(N) < 0.1).astype(float)
    return made(f"runs/{day}.json", test=split(wrong + 0.1, wrong), created=f"2026-01-{day:02}T00:00:00Z")


def test_where_nothing_changes_at_most_one_audit_in_twenty_is_called():
    """Ten audits in a row, twenty times; the best before, taken as if it had been chosen blindly, called 9 %."""
    rng = np.random.default_rng(5)
    lines = [history(*(lucky(day, rng) for day in range(1, 11))).lines[0] for _ in range(20)]
    called = [step.regression for line in lines for step in line.steps[1:]]
    assert np.mean(called) <= 0.05
    late = [step.best for line in lines for step in line.steps[5:] if step.best is not None]
    assert late and all(change.level > 0.95 for change in late)
    assert np.mean([change.verdict == "worse" for change in late]) <= 0.025


def test_some_common_samples_do_not_make_one_line():
    """A line is drawn and trended on one test set; a draw of other samples from the same folder is another."""
    losses = np.ones(10)
    one = made("runs/1.json", test=split(losses, losses, "x", range(10)))
    two = made("runs/2.json", test=split(losses, losses, "y", range(4, 14)))
    assert [len(line.steps) for line in history(one, two).lines] == [1, 1]


def test_what_is_no_report_is_neither_waited_for_nor_a_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "long.json").write_text('{"n": ' + "9" * 5000 + "}")
    with pytest.raises(UsageError, match="holds no report of gen-audit"):
        read_folder(tmp_path)
    (tmp_path / "damaged.json").write_text('{"schema": "gen-audit/1", "n": ' + "9" * 5000 + "}")
    with pytest.raises(UsageError, match=r"damaged\.json: "):
        read_folder(tmp_path)


def test_a_file_without_end_is_not_read_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.settings.limits.LARGEST_REPORT", 1000)
    (tmp_path / "large.json").write_text(" " * 1001)
    with pytest.raises(UsageError, match=r"large\.json: is larger than 128 MB, which no report is"):
        read_folder(tmp_path)
