"""Example reports: one as an audit of the bundled sample writes it, and variants of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent / "example_report.json"


def classification() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text(encoding="utf-8"))


def regression() -> dict[str, Any]:
    report = classification()
    report["model"] |= {"task": "regression", "loss": "mse", "output": "scores", "outputs": 1, "parity": None}
    report["data"] |= {"classes": None, "class_names": None}
    for split in ("train", "test"):
        report["data"][split]["class_counts"] = None
        for name in ("error", "accuracy"):
            report["gap"][f"{split}_{name}"] = None
        report["gap"][f"{split}_error_ci95"] = None
    report["gap"] |= {"error_gap": None, "error_gap_ci95": None, "per_class": []}
    report["gap"] |= {"train_rmse": 2.5, "test_rmse": 3.25, "train_r2": 0.81, "test_r2": 0.42}
    report["gap"]["skipped"] = "error and accuracy do not exist for regression"
    return report


def both() -> dict[str, dict[str, Any]]:
    return {"classification": classification(), "regression": regression()}


def with_changes(**changes: Any) -> dict[str, Any]:
    """The classification example with top-level blocks updated: dictionaries merged, anything else replaced."""
    report = copy.deepcopy(classification())
    for key, value in changes.items():
        report[key] = report[key] | value if isinstance(value, dict) else value
    return report
