"""Writes a finished report into a folder, in every format asked for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from audit.compare import Comparison
from audit.errors import UsageError
from audit.measures import Report
from audit.render import FILES, staged
from audit.render.ci import render_junit, render_sarif
from audit.render.model_cards import render_cyclonedx, render_model_index
from audit.render.page import render_html, render_markdown
from audit.render.pdf import PdfUnavailable, write_pdf

if TYPE_CHECKING:  # a policy compares, which takes numpy
    from audit.policy import Verdict

__all__ = ["PageOptions", "PdfUnavailable", "Written", "render_html", "render_markdown", "write_pdf", "write_report"]


@dataclass(frozen=True)
class Written:
    """What a call to `write_report` left behind."""

    files: tuple[str, ...]  # names of the files that were written
    missing: tuple[str, ...] = ()  # a sentence for each that could not be: what is missing and how to get it

    def checked(self) -> Written:
        """Itself, or a refusal where not one file could be written."""
        if not self.files:
            raise UsageError(self.missing[0])
        return self


@dataclass(frozen=True)
class PageOptions:
    """How the pages of a report are drawn."""

    templates: Path | None = None  # a folder whose templates take the place of ours
    comparison: Comparison | None = None  # with a baseline, which becomes a section of the page
    short: bool = False  # without the appendix for experts


LAST = {"md": 1, "json": 2}  # the summary names the others; the JSON says how long the pages took


def write_report(
    report: Report,
    folder: Path,
    formats: Sequence[str],
    verdict: Verdict | None = None,
    options: PageOptions | None = None,
) -> Written:
    """Write the file of each format into `folder`: see `audit.render.FILES`.

    A PDF needs libraries that pip cannot install; without them the other files are still written.
    """
    chosen = options or PageOptions()
    begin = time.perf_counter()
    read = report.as_read()  # what `gen-audit render` sees later, so that it draws the same page
    page = partial(render_html, read, **vars(chosen))
    pages = {
        "json": lambda: _timed(report, time.perf_counter() - begin).to_json(),
        "html": lambda: page(paper=False),
        "md": lambda: render_markdown(read, chosen.templates, _with_all(files, formats, chosen.short)),
        "junit": lambda: render_junit(read, verdict),
        "sarif": lambda: render_sarif(read, verdict),
        "cyclonedx": lambda: render_cyclonedx(read, verdict),
        "hf": lambda: render_model_index(read),
    }
    files: set[str] = set()
    missing: list[str] = []
    for kind in sorted(formats, key=lambda kind: LAST.get(kind, 0)):
        path = folder / FILES[kind]
        try:
            if kind == "pdf":
                write_pdf(page(paper=True), path)
            else:
                path.write_text(pages[kind](), encoding="utf-8", newline="\n")
            files.add(path.name)
        except PdfUnavailable as reason:
            missing.append(str(reason))
    return Written(tuple(FILES[kind] for kind in formats if FILES[kind] in files), tuple(missing))


def _with_all(written: Collection[str], formats: Sequence[str], short: bool) -> list[str]:
    """Files that have what the summary leaves out; short pages lack the appendix."""
    pages = [] if short else [FILES[kind] for kind in ("html", "pdf") if FILES[kind] in written]
    return [*pages, *(FILES[kind] for kind in ("json",) if kind in formats)]


def _timed(report: Report, seconds: float) -> Report:
    """The report with the time that its pages took; one that was read back keeps its own."""
    timings = report.timings if "render" in report.timings else {"render": seconds, **report.timings}
    return replace(report, timings=timings)


def save(report: Report, folder: Path, formats: str | Sequence[str], verdict: Verdict | None) -> list[Path]:
    """As a program writes a report: the paths of the files; a page that this machine cannot draw is a warning."""
    names = formats.split(",") if isinstance(formats, str) else formats
    wanted = list(dict.fromkeys(name.strip() for name in names))
    if unknown := [name for name in wanted if name not in FILES]:
        raise UsageError(f"formats: {unknown[0]!r} is no format that exists; choose among {', '.join(FILES)}.")
    with staged(folder, new_audit=False) as stage:
        written = write_report(report, stage, wanted, verdict).checked()
    for missing in written.missing:
        warnings.warn(missing, stacklevel=3)
    return [folder / name for name in written.files]
