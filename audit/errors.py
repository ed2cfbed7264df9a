"""What can go wrong, as sentences for the person at the keyboard.

Every error a user can cause is an `AuditError`. Its text is one sentence that says what is wrong with what, and what to
do about it; the command line prints that text and leaves with `exit_code`. Anything else that escapes is our own fault.
"""


class AuditError(Exception):
    """Something the user can put right."""

    exit_code = 2


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
