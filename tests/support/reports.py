"""Example reports, as audits wrote them, and variants of them.

The bundled healthy sample, and a tanh network on scikit-learn's diabetes data. Long lists were cut: directions beyond
the twentieth of a layer are in its remainder. A layer that was passed by is added to the first, whose data hygiene is
that of the bundled sample with wrong labels: there is more to show. The calibration and the Fisher information of the
second are those of a network of the same shape on the same data, its errors scaled to the RMSE of the report: the
network itself is not kept.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from places import EXAMPLE, REGRESSION

from audit.measures import Report


def classification() -> dict[str, Any]:
    return read(EXAMPLE)


def regression() -> dict[str, Any]:
    return read(REGRESSION)


def read(path: Path) -> dict[str, Any]:
    """The values of a report file with every key that a report has today, as `gen-audit render` sees them."""
    return json.loads(Report.from_json(path.read_text(encoding="utf-8")).to_json())


def both() -> dict[str, dict[str, Any]]:
    return {"classification": classification(), "regression": regression()}


def with_changes(**changes: Any) -> dict[str, Any]:
    """The classification example with top-level blocks updated: dictionaries merged, anything else replaced."""
    report = copy.deepcopy(classification())
    for key, value in changes.items():
        report[key] = report[key] | value if isinstance(value, dict) else value
    return report
