"""Writes the files of a comparison or a history: the same value as page, paper, Markdown or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from audit.errors import UsageError
from audit.render.pdf import PdfUnavailable, write_pdf
from audit.render.write import Written

FORMATS = ("html", "pdf", "json", "md")


def chosen_pages(text: str) -> tuple[str, ...]:
    """The formats named in `-f html,pdf`, or a sentence."""
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not wanted or not set(wanted) <= set(FORMATS):
        raise UsageError(f"-f: {text!r} names no format that exists here; choose among {', '.join(FORMATS)}.")
    return wanted


def write_pages(
    name: str,
    folder: Path,
    formats: Sequence[str],
    html: Callable[[bool], str],
    md: Callable[[], str],
    json: Callable[[], str],
) -> Written:
    """Write `name.<format>` for each format; without the libraries for a PDF the other files are still written.

    `html` is told whether the page is for paper.
    """
    texts = {"html": lambda: html(False), "md": md, "json": json}
    files, missing = [], []
    for kind in formats:
        path = folder / f"{name}.{kind}"
        try:
            if kind == "pdf":
                write_pdf(html(True), path)
            else:
                path.write_text(texts[kind](), encoding="utf-8", newline="\n")
            files.append(path.name)
        except PdfUnavailable as reason:
            missing.append(str(reason))
    return Written(tuple(files), tuple(missing))
