"""A report that a caller holds: it saves itself and shows itself in a notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn import render_notebook
from in_memory import assert_same, numbers, wine

from audit import Report
from audit.errors import UsageError


def test_a_report_saves_itself(tmp_path: Path) -> None:
    paths = wine().save(tmp_path / "out", "json, md,hf")
    assert [path.name for path in paths] == ["report.json", "report.md", "report.model-index.yml"]
    assert_same(numbers(Report.from_json(paths[0].read_text(encoding="utf-8"))), numbers(wine()))
    with pytest.raises(UsageError, match=r"^formats: 'docx' is no format that exists; choose among html, pdf,"):
        wine().save(tmp_path / "out", ["docx"])


def test_a_notebook_shows_text_as_text() -> None:
    values = json.loads(wine().to_json())
    values["model"]["path"] = values["findings"][0]["title"] = "<script>alert(1)"
    values["warnings"] = ["<b>void</b>"]
    shown = render_notebook(values)
    assert "<script>" not in shown and "&lt;b&gt;void" in shown
    assert shown.count("&lt;script&gt;") == 2
    assert shown.count("<details") == len(values["findings"])
    assert "3.33 %" in wine()._repr_html_()
