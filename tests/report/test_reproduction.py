"""Numbers that come back, those that come back almost, and those that do not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import both, classification

from audit.report.numbers import RELATIVE, Difference, reproduction


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_report_reproduces_itself_to_the_last_bit(task: str) -> None:
    found = reproduction(both()[task], both()[task])
    assert found.reproduced and found.compared == found.identical > 500
    assert (found.largest, found.changed) == (None, ())


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    report = copy.deepcopy(classification())
    node: Any = report
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return report


def elsewhere(report: dict[str, Any]) -> dict[str, Any]:
    """The same report, made with another version of torch."""
    return {**report, "tool": {**report["tool"], "torch": "9.9"}}


def test_the_moment_the_machine_and_the_place_are_not_compared() -> None:
    for path in (["created"], ["command"], ["model", "path"], ["data", "notes"]):
        assert reproduction(classification(), changed(path, "other")).differences == ()
    other = reproduction(classification(), elsewhere(classification()))
    assert other.reproduced and other.changed == ("torch was 2.13.0+cpu, is 9.9",)


def test_a_sentence_may_read_differently_elsewhere_but_not_here() -> None:
    for path in (["checks", 0, "explanation"], ["findings", 0, "title"]):
        now = changed(path, "Other words.")
        assert not reproduction(classification(), now).reproduced
        assert reproduction(classification(), elsewhere(now)).reproduced


@pytest.mark.parametrize("there", [dict, elsewhere])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["findings", 0, "level"], "good"),
        (["findings", 0, "id"], "gap"),
        (["checks", 0, "status"], "failed"),
        (["checks", 0, "kind"], "assumption"),
        (["model", "task"], "binary"),
        (["hygiene"], None),
        (["hygiene", "leaked"], None),
        (["findings"], []),
        (["warnings"], ["The test split is void."]),
    ],
)
def test_a_falsified_report_is_not_reproduced(path: list[Any], value: Any, there: Any) -> None:
    assert not reproduction(changed(path, value), there(classification())).reproduced


@pytest.mark.parametrize("there", [dict, elsewhere])
@pytest.mark.parametrize("block", ["hygiene", "checks", "findings"])
def test_a_block_that_was_taken_out_is_missed(block: str, there: Any) -> None:
    falsified = {key: value for key, value in classification().items() if key != block}
    (found,) = reproduction(falsified, there(classification())).differences
    assert (found.path, found.before, found.now) == (block, None, "a block")


@given(st.floats(-3, 3))
def test_a_number_may_move_by_its_tolerance_and_no_further(times: float) -> None:
    before = 0.3912233695589492
    now = before * (1 + times * RELATIVE)
    found = reproduction({"tool": {}, "gap": {"test_loss": before}}, {"tool": {}, "gap": {"test_loss": now}})
    assert found.identical == (before == now)
    if abs(abs(times) - 1) > 1e-6:
        assert found.reproduced == (abs(times) < 1)


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        (["hygiene", "duplicates_across_splits"], 1, "hygiene.duplicates_across_splits"),  # a count is the same or not
        (["hygiene", "leaked", "void"], True, "hygiene.leaked.void"),
        (["gap", "error_gap"], None, "gap.error_gap"),
        (["gap", "train_rmse"], 0.5, "gap.train_rmse"),
        (["layers", 1, "duality", "sigma_g", 3], 1.0, "layers[1].duality.sigma_g[3]"),
        (["checks", 0, "value"], 1e-3, "checks[0].value"),  # beyond the tolerance beside it
    ],
)
def test_what_differs_is_named_by_its_path(path: list[Any], value: Any, name: str) -> None:
    found = reproduction(classification(), changed(path, value))
    assert not found.reproduced
    assert [(one.path, one.now) for one in found.differences] == [(name, value)]


def test_rounding_errors_may_be_other_rounding_errors() -> None:
    found = reproduction(classification(), changed(["model", "parity", "max_abs_diff"], 9e-6))
    assert found.reproduced and found.identical == found.compared - 1
    assert found.largest == Difference("model.parity.max_abs_diff", 6.127710108216888e-06, 9e-6, 0.003576125717163086)


def test_a_list_of_another_length_and_a_missing_block_differ() -> None:
    shorter = reproduction(classification(), changed(["gap", "per_class"], classification()["gap"]["per_class"][:9]))
    assert [(one.path, one.before, one.now) for one in shorter.differences] == [("gap.per_class (length)", 10, 9)]
    assert len(reproduction(classification(), changed(["hygiene"], None)).differences) > 20


def test_what_only_another_version_has_is_new() -> None:
    assert reproduction(classification(), elsewhere(changed(["gap", "brand_new"], 3.0))).reproduced
    assert not reproduction(classification(), changed(["gap", "brand_new"], 3.0)).reproduced


@pytest.mark.parametrize(("arithmetic", "reproduced"), [("float64", False), ("float32", True)])
def test_single_precision_brings_fewer_digits_back(arithmetic: str, reproduced: bool) -> None:
    before = changed(["plan"], {"stages": [], "arithmetic": arithmetic})
    now = copy.deepcopy(before)
    now["gap"]["test_loss"] *= 1 + 3e-5
    assert reproduction(before, now).reproduced is reproduced
