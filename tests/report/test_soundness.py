"""Reports that have every field and still are none: each is refused with the place of the damage."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import both, classification, regression

from audit.compare import read_folder
from audit.errors import UsageError
from audit.measures import Report


def with_outcomes(**changes: Any) -> dict[str, Any]:
    split = {"sha256": "s", "samples": 3, "positions": [0, 4, 7], "loss": [0.1, 0.2, 0.3], "wrong": [0, 1, 0]}
    return {**classification(), "outcomes": {"train": split, "test": split | changes}}


def changed(report: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(report)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    node: Any = document
    for step in way:
        node = node[step]
    node[last] = value
    return document


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        Report.from_json(json.dumps(document), "r.json")
    return str(caught.value)


def test_sound_reports_are_read() -> None:
    for report in (*both().values(), with_outcomes()):
        assert Report.from_json(json.dumps(report)).schema == "gen-audit/1"


def test_a_report_of_another_schema_is_refused() -> None:
    assert refusal(classification() | {"schema": "gen-audit/99"}) == (
        "r.json: is a gen-audit/99 report, not a gen-audit/1 one; read it with what made it."
    )


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model/task", "ranking", "model.task is 'ranking', not one of classification, binary, regression, tagging"),
        ("model/loss", "hinge", "model.loss is 'hinge', not one of cross_entropy, bce, mse"),
        ("findings/0/level", "awful", "findings[0].level is 'awful', not one of good, note, watch, concern"),
        ("checks/1/status", "q", "checks[1].status is 'q', not one of passed, failed, skipped"),
        ("checks/1/kind", "z", "checks[1].kind is 'z', not one of check, assumption"),
        ("gap/test_error", None, "gap.test_error is null, though the task is classification"),
        ("gap/test_loss", 1e308, "gap.test_loss cannot be 1e+308"),
        ("doctor/better", 7, "doctor.better is not a place in doctor.trials"),
        ("layers", [], "findings[3] rests on layers[2].duality.fixed.share: this report has no layers"),
    ],
)
def test_damage_is_named(path: str, value: Any, words: str) -> None:
    expected = f"r.json: is damaged ({words}); make it anew with `gen-audit report`."
    assert refusal(changed(classification(), path, value)) == expected


@pytest.mark.parametrize(("path", "value"), [("model/outputs", 0), ("gap/train_loss", -2.0)])
def test_a_squared_error_is_a_square_over_outputs(path: str, value: float) -> None:
    assert path.replace("/", ".") in refusal(changed(regression(), path, value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("gap/test_loss", "gap.test_loss"),
        ("layers/1/duality/sigma_g/3", "layers[1].duality.sigma_g[3]"),
        ("findings/0/evidence/x", "findings[0].evidence.x"),
    ],
)
def test_a_number_that_is_none_is_refused_wherever_it_stands(path: str, place: str, text: str) -> None:
    damaged = json.dumps(changed(classification(), path, 12345.5)).replace("12345.5", text)
    with pytest.raises(UsageError, match="is damaged") as caught:
        Report.from_json(damaged)
    assert f"({place} is not a finite number)" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": [0.1, 0.2]}, "outcomes.test: positions, loss and wrong are not of one length"),
        ({"wrong": [0, 1, 0, 0]}, "outcomes.test: positions, loss and wrong are not of one length"),
        ({"positions": [0, 4, 4]}, "outcomes.test.positions are not those of different samples"),
        ({"positions": [-5, 4, 7]}, "outcomes.test.positions are not those of different samples"),
        ({"samples": 2}, "outcomes.test.positions are not those of different samples"),
        ({"positions": [0, 4, 10**30]}, "outcomes.test.positions: no split has"),
        ({"loss": [0.1, 0.2, 1e308]}, "outcomes.test.loss is too large to be one"),
        ({"samples": 0, "positions": [], "loss": [], "wrong": []}, "outcomes.test.positions: List should have"),
        ({"wrong": None}, "outcomes.test.wrong is null, though the task is classification"),
        ({"wrong": [0, 1, 7]}, "outcomes.test.wrong holds something other than 0 and 1"),
    ],
)
def test_outcomes_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    assert f"r.json: is damaged ({words}" in refusal(with_outcomes(**changes))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_positions_are_read_exactly_where_each_is_another_one_in_order(positions: list[int]) -> None:
    count = len(positions)
    split = {"positions": positions, "loss": [0.5] * count, "wrong": [1] * count, "samples": count}
    if positions == sorted(set(positions)):
        assert Report.from_json(json.dumps(with_outcomes(**split))).outcomes is not None
    else:
        assert "ascending order" in refusal(with_outcomes(**split))


def test_a_history_does_not_pass_over_a_report_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(classification() | {"schema": "gen-audit/99"}))
    with pytest.raises(UsageError, match=r"r\.json: is a gen-audit/99 report, not a gen-audit/1 one"):
        read_folder(tmp_path)
