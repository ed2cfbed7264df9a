"""What goes to a terminal. Names of layers, classes, columns and files come from strangers, so nothing else prints."""

from __future__ import annotations

import contextlib
import sys
import unicodedata
from typing import TextIO

KEPT = "\n\t"


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


def say(text: object = "", end: str = "\n") -> None:
    """Writes to standard output."""
    print(printable(str(text)), end=end)


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
