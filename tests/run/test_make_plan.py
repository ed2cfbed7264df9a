"""The plan: everything exact where it fits, the same on every run, and within time and memory where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.measures.workload import LayerSizes, Workload
from audit.report.conduct import Plan
from audit.run.plan import STAGES, budget_seconds, make_plan
from audit.settings import Settings

SPEEDS = (2.0**35, 2.0**36)
MEMORY = 4 << 30
QUICKLY = {"consequences", "fisher", "sensitivity", "checks"}


def dense(into: int, out: int, tokens: int = 1) -> LayerSizes:
    return LayerSizes(in_features=into, out_features=out, tokens=tokens, cut_point=True)


def workload(operations: float, samples: int = 4000, outputs: int = 10, width: int = 30, tokens: int = 1) -> Workload:
    return Workload(
        samples=samples,
        tests=samples // 4,
        outputs=outputs,
        operations=operations,
        numbers=operations / 100,
        behind=operations / 2,
        layers=(dense(width, width, tokens),),
        curved=tokens > 1,
        beyond=1000,
        formed=0.0,
        input_numbers=784,
        convolves=False,
    )


def plan(work: Workload, **settings: object) -> Plan:
    return make_plan(work, Settings(**settings), MEMORY, SPEEDS)  # type: ignore[arg-type]


def test_a_small_network_is_exact_in_double_precision() -> None:
    found = plan(workload(1e5))
    assert all(stage.form == "exact" for stage in found.stages) and found.arithmetic == "float64"


def test_a_large_network_is_sampled_and_every_stage_says_why() -> None:
    found = plan(workload(1e10))
    assert found.samples_some and found.arithmetic == "float32"
    assert all(stage.why for stage in found.stages if stage.form == "sampled")


def test_no_budget_measures_everything() -> None:
    found = plan(workload(1e10), budget="none")
    assert found.budget is None and all(stage.form == "exact" for stage in found.stages)


def test_what_does_not_fit_into_memory_is_sampled_however_long_it_may_take() -> None:
    work = workload(1e5, width=20_000)
    assert not make_plan(work, Settings(budget="none"), 1 << 30, SPEEDS).is_exact("flatness")
    assert make_plan(work, Settings(budget="none"), 1 << 40, SPEEDS).is_exact("flatness")


@example(1785480.0, 511, 6, 64, "10s")  # all 127 test samples are taken, which are no power of two
@given(
    st.floats(1e3, 1e12),
    st.integers(2, 100_000),
    st.integers(1, 2000),
    st.sampled_from([1, 16, 64]),
    st.sampled_from(["10s", "5m", "1h"]),
)
def test_whatever_the_network_the_plan_holds_together(
    operations: float, samples: int, outputs: int, tokens: int, budget: str
) -> None:
    work = workload(operations, samples, outputs, tokens=tokens)
    found = plan(work, budget=budget)
    assert found == plan(work, budget=budget)
    for stage in found.stages:
        if stage.form != "sampled" or stage.name == "duality":
            continue
        assert 0 < stage.samples <= samples
        assert stage.samples == samples or stage.samples & (stage.samples - 1) == 0
    if not found.is_exact("flatness"):  # without full records nothing can be exact that is folded from them
        assert not found.is_exact("fisher") and not found.is_exact("sensitivity") and not found.is_exact("duality")
    less = plan(work, budget="1s")
    for name in (name for name, demand in STAGES.items() if demand.sampled):
        if found.stage(name).form == less.stage(name).form == "sampled":
            assert less.stage(name).samples <= found.stage(name).samples


def test_quick_leaves_out_what_takes_long() -> None:
    found = plan(workload(1e5), quick=True)
    assert {stage.name for stage in found.stages if stage.form == "skipped"} == QUICKLY


@pytest.mark.parametrize("text", ["", "5 parsecs", "0m", "-3s", "m5"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write it like 90s, 5m, 1h or none"):
        budget_seconds(text)


def test_small_changes_are_planned_beside_the_others() -> None:
    """They take their own share of the budget: whatever they look at, no other stage is done otherwise."""
    small, middling, large = (plan(workload(operations)) for operations in (1e5, 1e7, 1e10))
    assert small.stage("consequences").form == "exact" and small.stage("consequences").tests == 1000
    assert middling.stage("consequences").form == "sampled" and not middling.samples_some
    assert all(stage.form == "exact" for stage in middling.stages if stage.name != "consequences")
    many = plan(workload(1e5, samples=40_000)).stage("consequences")
    assert many.tests == 1024 and many.form == "sampled" and many.why == "as many tell it closely enough"
    assert large.stage("consequences").form == "skipped"
    assert large.stage("consequences").why == "16 samples would take about 47 s, more than --budget leaves"


@given(st.floats(1e3, 1e12), st.integers(8, 100_000), st.sampled_from(["10s", "5m", "1h"]))
def test_small_changes_keep_to_a_tenth_of_the_budget(operations: float, samples: int, budget: str) -> None:
    found = plan(workload(operations, samples), budget=budget)
    stage = found.stage("consequences")
    assert stage.seconds <= max(0.1 * (found.budget or 0), 1.0)
    assert stage.form == "skipped" or 0 < stage.tests <= samples // 4 + 1


def test_what_looks_at_samples_alone_is_planned_too() -> None:
    """Neighbours are looked for among all train samples around each test sample: twice the tests, more time."""
    few, many = (plan(replace(workload(1e5), tests=tests)) for tests in (1000, 40_000))
    for name in ("gap", "calibration", "hygiene"):
        assert many.stage(name).form == "exact" and many.stage(name).seconds > 5 * few.stage(name).seconds > 0


def test_time_that_neighbours_take_is_not_there_for_the_network() -> None:
    work = workload(1e6)
    assert plan(work, budget="2m").arithmetic == "float64"
    assert plan(replace(work, tests=10**7), budget="2m").arithmetic == "float32"


def test_every_stage_says_what_memory_it_takes_and_none_more_than_it_may() -> None:
    for work in (workload(1e5), workload(1e10, width=2000)):
        found = plan(work)
        for stage in found.stages:
            assert (0 < stage.bytes <= MEMORY) if stage.form != "skipped" else stage.bytes == 0
    few, many = (plan(workload(1e5, samples=n)).stage("flatness").bytes for n in (1000, 100_000))
    assert few < many


def test_a_head_of_many_scores_is_exact_where_random_signs_would_take_longer() -> None:
    head = replace(workload(1e10, samples=200, outputs=1000, width=1000), curved=False)
    head = replace(head, behind=0.0)
    found = plan(head, budget="5m")
    assert found.samples_some and found.is_exact("flatness") and found.is_exact("duality")
    assert found.stage("checks").seconds < 0.1 * 300


def test_what_the_checks_of_a_curved_network_take_grows_with_its_layers() -> None:
    few, many = (replace(workload(5e8, tokens=16), layers=(dense(30, 30, 16),) * count) for count in (1, 24))
    one, other = (plan(each, budget="5m").stage("checks") for each in (few, many))
    assert one.form == other.form == "sampled" and other.samples < one.samples
