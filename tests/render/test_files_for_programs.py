"""What every file for other programs has in common: its name, and bytes that depend on the audit alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reports import classification, with_changes

from audit.measures import Report
from audit.render import FILES
from audit.render.write import write_report

KINDS = ("junit", "sarif", "cyclonedx", "hf")
LATER = {"created": "2031-02-03T04:05:06Z", "timings": {"load": 77.0}, "tool": {"platform": "elsewhere"}}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_audit_gives_the_same_bytes_but_for_its_date(kind: str, tmp_path: Path) -> None:
    texts = []
    for name, values in (("first", classification()), ("later", with_changes(**LATER))):
        (tmp_path / name).mkdir()
        written = write_report(Report.from_json(json.dumps(values)), tmp_path / name, [kind])
        assert written.files == (FILES[kind],)
        texts.append((tmp_path / name / FILES[kind]).read_bytes().decode("utf-8"))
    assert texts[0].replace(classification()["created"], LATER["created"]) == texts[1]
    assert "\r" not in texts[0] and texts[0].endswith("\n")


def test_no_two_formats_share_a_file() -> None:
    assert len(set(FILES.values())) == len(FILES)
