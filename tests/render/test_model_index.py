"""The model index: YAML that reads back as what was meant, whatever the names and numbers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from drawn import render_model_index
from hypothesis import given
from hypothesis import strategies as st
from reports import both, with_changes
from verdicts import ODD

from audit.render.model_cards import number, quoted


def read(report: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and result, as the hub takes them out."""
    (entry,) = yaml.safe_load(render_model_index(report))["model-index"]
    (result,) = entry["results"]
    return entry["name"], result


@given(ODD)
def test_any_text_reads_back(text: str) -> None:
    assert yaml.safe_load(f"key: {quoted(text)}") == {"key": text}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_reads_back_as_a_number(value: float) -> None:
    assert yaml.safe_load(f"key: {number(value)}") == {"key": value}


@pytest.mark.parametrize("name", both())
def test_metrics_are_those_of_the_test_split(name: str) -> None:
    gap = both()[name]["gap"]
    found = {metric["type"]: metric["value"] for metric in read(both()[name])[1]["metrics"]}
    kinds = {"loss": "loss", "error": "error", "accuracy": "accuracy", "rmse": "rmse", "r_squared": "r2"}
    assert found == {kind: gap[f"test_{key}"] for kind, key in kinds.items() if gap[f"test_{key}"] is not None}


def test_intervals_stand_in_the_names() -> None:
    error = next(metric for metric in read(with_changes())[1]["metrics"] if metric["type"] == "error")
    assert error["name"] == "test error, 95 % interval 0.056 to 0.088"


def test_names_come_from_the_files() -> None:
    report = with_changes(model={"path": "runs/#1: yes.onnx"}, data={"path": "data/My set é", "layout": "images"})
    name, result = read(report)
    assert name == "#1: yes.onnx"
    assert result["task"] == {"type": "image-classification"}
    assert result["dataset"] == {"name": "My set é", "type": "My-set", "split": "test"}
