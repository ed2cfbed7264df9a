"""What goes to a terminal. Names of layers, classes, columns and files come from strangers, so nothing else prints."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import TextIO

KEPT = "\n\t"
RED, GREEN, YELLOW, BLUE = 31, 32, 33, 34
COLOURS = {
    **dict.fromkeys(("concern", "failed", "worse"), RED),
    **dict.fromkeys(("good", "passed", "better"), GREEN),
    **dict.fromkeys(("watch", "inconclusive", "not measurable"), YELLOW),
    "note": BLUE,
}
VERDICTS = ("better", "worse")
MARKS = re.compile(
    rf"^(?:{'|'.join(word for word in COLOURS if word not in VERDICTS)})\b|(?<=: )(?:{'|'.join(VERDICTS)})\b",
    re.MULTILINE,
)


def printable(text: str) -> str:
    r"""`text` without what moves a cursor, changes colours or turns the direction of writing; JSON stays JSON.

    >>> printable("fc1\x1b[2J\x9b1m")
    'fc1\\u001b[2J\\u009b1m'
    """
    return "".join(letter if _is_plain(letter) else _escaped(letter) for letter in text)


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or letter in KEPT or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x10000:
        return f"\\u{number:04x}"
    return f"\\u{0xD800 + (number - 0x10000 >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def in_table(text: str) -> str:
    """Text from a file, in which Rich and the terminal find nothing to obey."""
    from rich.markup import escape

    return escape(printable(text))


def say(text: object = "", end: str = "\n", marked: bool = False) -> None:
    """Writes to standard output; `marked`: words of good and bad news in colour, where a terminal shows some."""
    plain = printable(str(text))
    print(in_colour(plain) if marked and has_colours(sys.stdout, os.environ) else plain, end=end)


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours are shown there and wanted; https://no-color.org."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def in_colour(text: str) -> str:
    r"""The first word of each line where it is a level or a status, and the verdict behind a colon.

    >>> in_colour("watch   Too sure"), in_colour("loss   train 1"), in_colour("against the baseline: worse")
    ('\x1b[33mwatch\x1b[0m   Too sure', 'loss   train 1', 'against the baseline: \x1b[31mworse\x1b[0m')
    """
    return MARKS.sub(lambda found: f"\x1b[{COLOURS[found[0]]}m{found[0]}\x1b[0m", text)


def complain(text: str) -> None:
    """Writes to standard error, one line for each sentence; where that is closed, nobody wants to hear it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(printable(text), file=sys.stderr, flush=True)


def any_alphabet(*streams: TextIO | None) -> None:
    """Lets a terminal that knows few letters show the others as numbers, instead of failing."""
    for stream in streams:
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
