"""What `write_report` leaves behind beyond the pages themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reports import classification

from audit.api import Report
from audit.render import write
from audit.render.write import PageOptions, PdfUnavailable, write_report


def unrendered() -> Report:
    """A report that has just been measured: nothing was drawn yet."""
    values = classification()
    values["timings"].pop("render", None)
    return Report.from_json(json.dumps(values))


def test_the_json_says_how_long_the_pages_took(tmp_path: Path) -> None:
    written = write_report(unrendered(), tmp_path, ["json", "html", "md"])
    assert written.files == ("report.json", "report.html", "report.md")
    timings = json.loads((tmp_path / "report.json").read_text())["timings"]
    assert timings.pop("render") > 0
    assert timings == unrendered().timings


def test_a_report_that_is_drawn_again_keeps_its_times_and_its_page(tmp_path: Path) -> None:
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
    write_report(unrendered(), tmp_path / "first", ["html", "json"])
    text = (tmp_path / "first" / "report.json").read_text()
    write_report(Report.from_json(text), tmp_path / "again", ["html", "json"])
    for file in ("report.json", "report.html"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_saving_a_second_format_keeps_the_first(tmp_path: Path) -> None:
    report = Report.from_json(json.dumps(classification()))
    report.save(tmp_path, "json")
    assert report.save(tmp_path, "md") == [tmp_path / "report.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]


@pytest.mark.parametrize(
    ("formats", "short", "told"),
    [
        (["md", "html", "json"], False, "report.html and report.json have the rest."),
        (["md", "pdf", "html"], False, "report.html and report.pdf have the rest."),
        (["json", "md", "html"], True, "report.json has the rest."),
        (["md", "pdf"], True, "gen-audit report -f html,json writes the rest."),
    ],
)
def test_the_summary_names_only_files_that_were_written(
    formats: list[str], short: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "write_pdf", lambda page, path: path.write_text(page))  # its layout takes long
    write_report(unrendered(), tmp_path, formats, options=PageOptions(short=short))
    assert (tmp_path / "report.md").read_text().endswith(f"; {told}\n")


def test_a_page_that_could_not_be_drawn_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(page: str, path: Path) -> None:
        raise PdfUnavailable("no Pango")

    monkeypatch.setattr(write, "write_pdf", unable)
    assert write_report(unrendered(), tmp_path, ["md", "pdf"]).missing == ("no Pango",)
    assert (tmp_path / "report.md").read_text().endswith("; gen-audit report -f html,json writes the rest.\n")
