"""A weight that acts in two places is one weight in every format: it is counted once, and its gradients add up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from formats import FORMATS, audited, differences
from tolerances import SINGLE
from whole_cases import SETTINGS, Case, trained
from whole_networks import KeptTransposed

FILES = ("onnx", pytest.param("onnx-13", marks=pytest.mark.slow), "pt2", "torchscript")
NAMING = re.compile(
    r"layers\.0\.(tied_with\.0|flatness\.skipped): "
    r"|network\.(flatness\.notes\.0|sensitivity\.sharpness_trace_skipped): "
    r"|passed_by\.\d\.(name|op): |not_judged\.\d\.what: |consequences\.changes\.\d+\.theory\.skipped: "
)
"""Where a report names the second place of a weight, which each format calls by another name."""
NUMBERS = (("fisher", "gamma"), ("sensitivity", "sharpness"), ("sensitivity", "adaptive_sharpness"))


@pytest.mark.parametrize("name", ["there_and_back", "shared_weights", "tied_words"])
@pytest.mark.parametrize("form", FILES)
def test_a_file_says_what_the_network_itself_says(name: str, form: str, tmp_path: Path) -> None:
    case = Case(name, (), settings={"dtype": "int64"} if name == "tied_words" else {})
    file, write = FORMATS[form]
    model = write(trained(name, case.task), torch.from_numpy(case.data.x_train[:4]), tmp_path / file)
    report = audited(model, case.data.save(tmp_path / "data"), **SETTINGS, **case.settings)
    expected = case.report(tmp_path)
    assert report["model"]["parameters"] == sum(value.numel() for value in trained(name, case.task).parameters())
    for measure, number in NUMBERS:
        found = report["network"][measure][number]
        assert found == pytest.approx(expected["network"][measure][number], rel=SINGLE)


@pytest.mark.parametrize("form", FILES)
def test_it_does_not_matter_which_way_round_a_weight_is_kept(form: str, tmp_path: Path) -> None:
    case = Case("there_and_back", ())
    network = KeptTransposed.like(trained(case.network, case.task))
    file, write = FORMATS[form]
    model = write(network, torch.from_numpy(case.data.x_train[:4]), tmp_path / file)
    report = audited(model, case.data.save(tmp_path / "data"), **SETTINGS)
    assert report["model"]["parameters"] == sum(value.numel() for value in network.parameters())
    found = differences(report, case.report(tmp_path))
    assert [one for one in found if not NAMING.match(one)] == []
