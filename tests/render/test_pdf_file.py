"""The PDF: the same page with bookmarks and metadata, and a clear line where it cannot be drawn."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import reports
from drawn import render_html, report_of

from audit.measures import Report
from audit.render import pdf
from audit.render.pdf import remedy, write_pdf
from audit.render.summary import appendix, body

WITHOUT_PANGO = """
import sys, pathlib
import cffi
def refuse(self, name, flags=0):
    raise OSError(f"cannot load library {name!r}")
cffi.FFI.dlopen = refuse
from audit.render.write import write_report
from audit.measures import Report
report = Report.from_json(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
written = write_report(report, pathlib.Path(sys.argv[2]), ("html", "pdf", "json", "md"))
print(*written.files, *written.missing, sep="\\n")
"""


@pytest.fixture(scope="module")
def weasyprint():
    """The library, woken as a report wakes it: a bare import would warn."""
    return pdf._weasyprint()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    path = tmp_path_factory.mktemp("pdf") / "report.pdf"
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger("weasyprint").addHandler(handler)
    try:
        write_pdf(render_html(reports.classification(), paper=True), path)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("weasyprint").removeHandler(handler)
    return path, records


@pytest.fixture(scope="module")
def laid_out(weasyprint):
    """The pages of both example reports, as the library lays them out."""
    return {
        name: weasyprint.HTML(string=render_html(report, paper=True)).render()
        for name, report in reports.both().items()
    }


def test_pdf_is_drawn_without_a_warning(drawn):
    path, records = drawn
    assert path.read_bytes().startswith(b"%PDF-1.7")
    assert [record.getMessage() for record in records] == []


def test_pdf_has_the_same_bytes_again(drawn, tmp_path):
    write_pdf(render_html(reports.classification(), paper=True), tmp_path / "again.pdf")
    assert (tmp_path / "again.pdf").read_bytes() == drawn[0].read_bytes()


def test_without_the_subset_library_the_page_is_the_same_at_any_hour_and_nobody_is_told(
    weasyprint, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(weasyprint.pdf.fonts, "harfbuzz_subset", None)
    written = []
    for hour in (1_000_000_000.0, 1_700_000_000.0):
        with monkeypatch.context() as patched:
            patched.setattr("fontTools.misc.timeTools.time.time", lambda now=hour: now)
            write_pdf("<p>Will it hold up?</p>", tmp_path / "page.pdf")
        written.append((tmp_path / "page.pdf").read_bytes())
    assert written[0] == written[1]
    assert caplog.messages == []


def test_pdf_has_pages_bookmarks_and_metadata(laid_out):
    document = laid_out["classification"]
    assert 10 <= len(document.pages) <= 30
    _, _, sections, _ = document.make_bookmark_tree()[0]
    titles = [label for label, *_ in sections]
    report = report_of(reports.classification())
    drawn = [[section.title for section in part] for part in (body(report, None), appendix(report, None))]
    first = ["Does it hold up on data it has not seen?", "What was found", "Contents"]
    assert titles == [*first, *drawn[0], "Appendix for experts", *drawn[1]]
    assert document.metadata.title == "healthy.onnx on mnist – gen-audit"
    assert document.metadata.created == "2026-11-16T10:00:00Z"
    assert document.metadata.lang == "en"


def test_the_first_page_is_the_summary_and_the_contents_follow(weasyprint, laid_out):
    for name, report in reports.both().items():
        _, _, sections, _ = laid_out[name].make_bookmark_tree()[0]
        pages = {label: place[0] for label, place, *_ in sections}
        assert [pages[label] for label in ("Does it hold up on data it has not seen?", "What was found")] == [0, 0]
        assert pages["Contents"] <= 1  # beneath, where there is room
        assert pages["Appendix for experts"] <= 6  # at most six pages before it
        short = weasyprint.HTML(string=render_html(report, paper=True, short=True)).render()
        assert len(short.pages) <= pages["Appendix for experts"]  # its contents are shorter


def test_fonts_are_embedded_links_work_and_the_file_is_small(drawn):
    content = drawn[0].read_bytes()
    objects = b"".join(inflated(content))
    assert objects.count(b"/FontFile2") == objects.count(b"/Type /FontDescriptor") > 2
    assert objects.count(b"/Subtype /Link") > 30
    assert len(content) < 2_000_000


def inflated(content: bytes) -> Iterator[bytes]:
    """What the streams of a PDF hold; most of its objects are in some of them."""
    for start in re.finditer(rb"FlateDecode[^>]*>>\nstream\n", content):
        yield zlib.decompressobj().decompress(content[start.end() :])


def test_without_pango_the_rest_is_written_and_one_line_says_what_to_install(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANGO, str(reports.EXAMPLE), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    *files, line = run.stdout.splitlines()
    assert files == ["report.html", "report.json", "report.md"]
    assert line == (
        f"The PDF was not written because the Pango library is missing; {remedy(sys.platform)}, "
        "then `gen-audit render report.json -f pdf`."
    )
    assert run.stderr == ""
    assert {file.name for file in tmp_path.iterdir()} == set(files)
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "report.json", reports.EXAMPLE)]
    first, second = (replace(Report.from_json(text), timings={}) for text in texts)
    assert first == second


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("linux", "apt install libpango-1.0-0 libpangoft2-1.0-0"),
        ("linux", "dnf install pango"),
        ("darwin", "brew install pango"),
        ("win32", "MSYS2"),
        ("freebsd14", "your distribution's pango package"),
    ],
)
def test_remedy_names_the_package_of_each_platform(platform, words):
    assert words in remedy(platform)


def test_renderers_wake_nothing_heavy():
    heavy = ("torch", "onnx", "weasyprint", "numpy")
    code = f"import audit.render.write, sys; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_import_leaves_the_warning_filters_alone():
    with warnings.catch_warnings(record=True):
        before = list(warnings.filters)
        pdf._weasyprint()
        assert list(warnings.filters) == before
