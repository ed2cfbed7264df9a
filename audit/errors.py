"""What can go wrong, as sentences for the person at the keyboard.

Every error a user can cause is an `AuditError`. Its text is one sentence that says what is wrong with what, and what to
do about it; the command line prints that text and leaves with `exit_code`. Anything else that escapes is our own fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

LINE_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # that str.splitlines knows
LONGEST = 4000  # characters of a sentence; a file may hold names without end
ALLOCATION = ("allocate memory", "not enough memory", "bad_alloc", "bad allocation", "out of memory")


class AuditError(Exception):
    r"""Something the user can put right. Its text is one line, also where a name from a file would break it.

    >>> str(AuditError("no column is called label among a, \x1dabel."))
    'no column is called label among a, \\x1dabel.'
    >>> len(str(AuditError("holds " + "a, " * 99999)))
    4003
    """

    exit_code = 2

    def __str__(self) -> str:
        text = LINE_BREAKS.sub(lambda found: repr(found[0])[1:-1], super().__str__())
        half = LONGEST // 2  # what is wrong comes first, what to do about it last
        return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


class UsageError(AuditError):
    """A flag, a setting or a configuration file that makes no sense."""


class ModelError(AuditError):
    """A model file that cannot be read, converted or trusted."""


class DataError(AuditError):
    """A data folder that cannot be read or does not fit the model."""


class CellError(DataError):
    """A value that a model's own preprocessing does not take; whoever read the samples names their file and row."""

    def __init__(self, row: int, column: str, held: str, reason: str) -> None:
        self.row, self.column, self.held, self.reason = row, column, held, reason
        super().__init__(f"column {column!r} has {held} in sample {row} (counted from 0), {reason}.")


class BudgetError(AuditError):
    """The memory budget is too small for even one sample, or too large for the machine."""


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read, without its path and without the system's number for it.

    >>> unreadable(FileNotFoundError(2, "No such file or directory", "report.json"))
    'No such file or directory'
    """
    return error.strerror or "unknown" if isinstance(error, OSError) else "it is not text"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library says that there is no more memory."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in ALLOCATION)


@contextmanager
def readable(kind: type[AuditError], where: object, remedy: str) -> Iterator[None]:
    """The one place where whatever a parser throws at a file from outside becomes a sentence.

    A damaged file can trip a library, or what is built on its answer, in any way; none of them is a fault of ours.
    """
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise BudgetError(
                f"{where}: takes more memory to read than the budget leaves; raise --memory, or give a smaller one."
            ) from error
        if isinstance(error, TimeoutError):
            raise kind(f"{where}: {error}; {remedy}.") from error
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        said = f"{type(error).__name__}: {reason[:200]}" if reason else type(error).__name__
        raise kind(f"{where}: is damaged, or holds what cannot be read ({said.rstrip('.:; ')}); {remedy}.") from error


UNDERIVED = re.compile("derivative|differentia|double backward|does not require grad")
"""What torch says where it has no rule."""


@contextmanager
def within_means() -> Iterator[None]:
    """Around an audit: a machine that cannot hold it, or a network without derivatives, is a refusal that says so."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise BudgetError(
                "The machine ran out of memory; give the audit less with --memory, or fewer --samples."
            ) from error
        if isinstance(error, (NotImplementedError, RuntimeError)) and UNDERIVED.search(str(error)):
            reason = str(error).splitlines()[0].rstrip(".")
            raise ModelError(
                f"The network has an operator that torch cannot differentiate ({reason}), and an audit does; audit a "
                "model without it."
            ) from error
        raise
