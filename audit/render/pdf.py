"""The same page as PDF, by WeasyPrint, which draws text with Pango: a system library that pip cannot install."""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from audit.errors import AuditError
from audit.report.blocks import PNG

PICTURE = "data:image/png;base64,"
DRAWN = re.compile(rf"{PICTURE}[\w+/=]*")
LONGEST_PAGE = 5_000_000  # letters beside pictures: a page of an audit has a third of a million, and takes two seconds
REMEDIES = {
    "linux": (
        "run `apt install libpango-1.0-0 libpangoft2-1.0-0` (Debian, Ubuntu) or `dnf install pango` (Fedora), or "
        "install your distribution's pango package"
    ),
    "darwin": "run `brew install pango`",
    "win32": "install MSYS2 and run `pacman -S mingw-w64-ucrt-x86_64-pango` in its shell",
}


class PdfUnavailable(AuditError):
    """A machine that cannot draw a PDF; everything else still works."""


def write_pdf(html: str, path: Path) -> None:
    """Write the page as a PDF with bookmarks. The same page gives the same bytes."""
    size = len(DRAWN.sub("", html))
    if size > LONGEST_PAGE:
        raise PdfUnavailable(
            f"The PDF was not written because its page has {size / 1e6:,.0f} MB of text, which takes minutes to draw; "
            "read it as HTML, with -f html."
        )
    with _collector_at_rest(), _fonts_without_a_date(), _quiet_about_subsets():
        weasyprint = _weasyprint()
        page = weasyprint.HTML(string=html, url_fetcher=_fetcher(weasyprint.urls))
        page.write_pdf(path, pdf_identifier=b"gen-audit")


def _fetcher(urls: Any) -> Any:
    """What answers for addresses on the page: pictures that the page itself holds, and neither a file nor a server."""
    if not hasattr(urls, "URLFetcher"):  # WeasyPrint before 68
        return lambda url, *_, **__: {"string": _held_picture(url), "mime_type": "image/png"}

    class HeldPictures(urls.URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: Any = None) -> Any:
            return urls.URLFetcherResponse(url, _held_picture(url), {"Content-Type": "image/png"})

    return HeldPictures()


def _held_picture(url: str) -> bytes:
    """The PNG that a data URL holds; refuses every other address."""
    if not url.startswith(PICTURE):
        raise ValueError("a report fetches nothing")
    content = base64.b64decode(url.removeprefix(PICTURE))
    if not content.startswith(PNG):
        raise ValueError("no PNG")
    return content


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No garbage collection meanwhile: a page's boxes all live to the end, and looking through them costs a fifth."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextlib.contextmanager
def _fonts_without_a_date() -> Iterator[None]:
    """Where HarfBuzz's subset library is missing, fontTools cuts the fonts and would write the time into them."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    try:
        yield
    finally:
        if given is None:
            del os.environ["SOURCE_DATE_EPOCH"]


@contextlib.contextmanager
def _quiet_about_subsets() -> Iterator[None]:
    """Without WeasyPrint's advice, once per font, to install that library: the page is the same with fontTools."""

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Using fontTools instead of HarfBuzz-Subset")

    logger = logging.getLogger("weasyprint")
    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _weasyprint() -> Any:
    """The library, or a sentence that says what to install. It would print a banner of its own, which is swallowed."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import weasyprint
    except OSError as error:
        raise PdfUnavailable(
            f"The PDF was not written because the Pango library is missing; {remedy(sys.platform)}, "
            "then `gen-audit render report.json -f pdf`."
        ) from error
    except ImportError as error:
        raise PdfUnavailable(
            f"The PDF was not written because WeasyPrint cannot be imported ({error}); run `pip install weasyprint`, "
            "then `gen-audit render report.json -f pdf`."
        ) from error
    return weasyprint


def remedy(platform: str) -> str:
    """How to install Pango on this kind of system."""
    return REMEDIES.get(platform, REMEDIES["linux"])
