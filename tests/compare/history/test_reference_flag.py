"""`gen-audit report --reference DIR`: a new audit beside the past ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from formats import QUICK, data_of, example_of, trained, write_onnx

from audit.cli import main

FLAGS = [part for key, value in QUICK.items() for part in (f"--{key.replace('_', '-')}", str(value))]


def report(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["gen-audit", "report", *map(str, arguments), "-q", "-f", "json,html", *FLAGS])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0


def test_the_band_is_in_the_json_and_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, example = data_of("relu").save(tmp_path / "data"), example_of("relu")
    network = trained("relu")
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.fc3.weight += 0.3
    old, new = (
        write_onnx(each, example, tmp_path / f"{place}.onnx", 17) for place, each in enumerate((network, other))
    )
    report(monkeypatch, old, data, "-o", tmp_path / "past" / "1")
    report(monkeypatch, new, data, "-o", tmp_path / "out", "--reference", tmp_path / "past")
    past, now = (json.loads((tmp_path / place / "report.json").read_text()) for place in ("past/1", "out"))
    assert past["reference"] is None and now["reference"]["reports"] == 1
    (error,) = [number for number in now["reference"]["numbers"] if number["key"] == "gap.test_error"]
    assert (error["low"], error["value"]) == (past["gap"]["test_error"], now["gap"]["test_error"])
    pages = [(tmp_path / place / "report.html").read_text(encoding="utf-8") for place in ("past/1", "out")]
    assert ["Beside past audits" in page for page in pages] == [False, True]
