"""What the tests of the Python interface share: samples in memory, audits of them, and reports held side by side."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from formats import QUICK, data_of, trained
from tolerances import EXACT
from torch.utils.data import TensorDataset

from audit import Report, audit_model

OF_THE_FILE = ("created", "timings", "plan", "command", "settings", "data", "model", "tool")


def pairs(name: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    data = data_of(name)
    return (data.x_train, data.y_train), (data.x_test, data.y_test)


def tensors(name: str) -> list[TensorDataset]:
    return [TensorDataset(*map(torch.from_numpy, pair)) for pair in pairs(name)]


def audited(model: Any, train: Any, test: Any = None, **settings: Any) -> Report:
    return audit_model(model, train, test, **(QUICK | settings))


def numbers(report: Report | dict[str, Any]) -> dict[str, Any]:
    values = json.loads(report.to_json()) if isinstance(report, Report) else report
    return {key: value for key, value in values.items() if key not in OF_THE_FILE}


def assert_same(a: Any, b: Any, path: str = "") -> None:
    """Every word alike, and every number to EXACT."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for index, each in enumerate(zip(a, b, strict=True)):
            assert_same(*each, f"{path}.{index}")
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=EXACT, abs=EXACT), path
    else:
        assert a == b, path


@cache
def wine() -> Report:
    """The audit of a small network for wines, made once."""
    return audited(trained("relu"), *pairs("relu"))
