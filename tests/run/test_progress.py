"""How far an audit is: the whole plan, and the time left in every stage."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.report.conduct import EXACT, Plan, PlannedStage
from audit.run.progress import Ahead, LineProgress, Progress, progress_for, stage_seconds

NAMES = ("forward", "flatness", "duality", "fisher", "sensitivity", "checks")
STAGES = ("forward", "capture", *(f"measure {name}" for name in NAMES[1:5]), "checks")
seconds = st.lists(st.floats(0, 1e4), min_size=6, max_size=6)
forms = st.lists(st.sampled_from(["exact", "sampled", "skipped"]), min_size=6, max_size=6)


def plan_of(times: Sequence[float], how: Sequence[str] = ("exact",) * 6) -> Plan:
    parts = zip(NAMES, how, times, strict=True)
    return Plan(stages=[PlannedStage(name=name, form=form, seconds=time) for name, form, time in parts])


@given(seconds, forms)
def test_the_stages_of_the_work_share_out_all_of_the_plan(times: list[float], how: list[str]) -> None:
    weights = stage_seconds(plan_of(times, how))
    assert set(weights) <= set(STAGES)
    assert sum(weights.values()) == pytest.approx(sum(times))


@given(seconds, st.floats(0.2, 5))
def test_the_bar_only_advances_and_ends_full_with_nothing_left(times: list[float], pace: float) -> None:
    ahead, weights = Ahead(plan_of(times)), stage_seconds(plan_of(times))
    reached = [ahead.completed]
    for name in STAGES:
        ahead.begin(name)
        ahead.step(0.5)
        reached.append(ahead.completed)
        ahead.end(pace * weights.get(name, 0.0))
        reached.append(ahead.completed)
    assert reached == sorted(reached)
    assert reached[-1] == pytest.approx(ahead.total) and ahead.left(0.0) == 0.0


@given(st.floats(0.2, 5))
def test_the_time_left_follows_the_pace_and_counts_down_within_a_stage(pace: float) -> None:
    ahead = Ahead(plan_of([10, 20, 0, 30, 0, 40], ["exact", *["sampled"] * 5]))
    assert ahead.left(0.0) == pytest.approx(100)
    for name, weight in (("forward", 10), ("measure duality", 20)):
        ahead.begin(name)
        ahead.end(pace * weight)
    ahead.begin("measure fisher")
    assert ahead.left(0.0) == pytest.approx(70 * pace)
    assert ahead.left(10 * pace) == pytest.approx(60 * pace)
    assert ahead.left(1e6) == pytest.approx(40 * pace)
    ahead.step(0.25)
    assert ahead.left(3.0) == pytest.approx(9 + 40 * pace)


def test_a_plan_without_predictions_has_no_time_left() -> None:
    ahead = Ahead(EXACT)
    ahead.begin("forward")
    assert (ahead.total, ahead.completed, ahead.left(3.0)) == (0, 0, 0)


def test_a_log_gets_one_line_per_stage_from_the_plan_on(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LineProgress()
    sampled = PlannedStage(name="flatness", form="sampled", samples=1024, seconds=40)
    plan = Plan(stages=[sampled, PlannedStage(name="fisher", form="skipped")])
    for name in ("load", "follow", "capture", "measure gap", "measure flatness", "measure fisher"):
        if name == "follow":
            progress.follow(plan, 4000)
            continue
        with progress.stage(name, "words"):
            pass
    assert capsys.readouterr().err.splitlines() == [
        "plan: about 40 s in all",
        "gap: exact on all 4,000 samples",
        "flatness: sampled on 1,024 of 4,000 samples, about 40 s",
        "fisher: left out",
    ]


def test_each_of_several_audits_is_named_and_what_measures_nothing_is_exact_on_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = LineProgress()
    for name in ("old: a.onnx", "new: b\x1b.onnx"):
        progress.about(name)
        for stage in ("load", "read", "parity", "plan"):
            progress.begin(stage, "words")
        progress.follow(plan_of([0.2] * 6), 800)
        for stage in ("doctor", "forward"):
            progress.begin(stage, "words")
    told = ["plan: about 1 s in all", "forward: exact on all 800 samples, under 1 s"]
    assert capsys.readouterr().err.splitlines() == ["old: a.onnx", *told, "new: b?.onnx", *told]


def test_nobody_who_asked_for_silence_is_told_anything(capsys: pytest.CaptureFixture[str]) -> None:
    progress = progress_for(quiet=True)
    assert type(progress) is Progress and isinstance(progress_for(quiet=False), LineProgress)
    progress.follow(EXACT, 10)
    with progress.stage("forward", "Running both splits"):
        assert list(progress.steps([1, 2], 2)) == [1, 2]
    assert list(progress.timings) == ["forward"] and capsys.readouterr() == ("", "")
