"""The same network gives the same numbers from every file format."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats import FORMATS, NETWORKS, TASKS, Report, audited_as, differences, independent
from tolerances import EXACT

FIVE = [form for form in FORMATS if form != "safetensors"]
MERGED = "The exporter has merged a BatchNorm into fc1: the weights audited there are not the ones that were trained."
SLOW = ("pointwise", "tied", "tokens", "tanh", "bias_free", "regressions", "gelu_dropout")


def check_against_torch(report: Report, name: str, tolerance: float) -> None:
    """Losses and accuracies are those of a plain evaluation in float64."""
    truth = independent(name)
    assert {key: report["gap"][key] for key in truth} == pytest.approx(truth, rel=tolerance, abs=0)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NETWORKS])
def test_five_files_of_one_network_agree_in_every_number(name: str, tmp_path: Path) -> None:
    forms = [form for form in FIVE if (name, form) != ("tokens", "onnx-13")]  # its attention needs opset 14
    reports = {form: audited_as(form, name, tmp_path) for form in forms}
    own = reports["state_dict"]
    assert own["model"]["task"] == TASKS.get(name, "classification")
    check_against_torch(own, name, EXACT)
    for form, report in reports.items():
        check_against_torch(report, name, 1e-6)
        if merged := [note for note in report["model"]["notes"] if "BatchNorm" in note]:
            assert (name, form, merged) == ("batch_norm", "onnx", [MERGED])
        else:
            assert differences(own, report) == [], form
