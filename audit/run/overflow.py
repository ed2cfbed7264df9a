"""The last look at a report before it is written: every number in it is a number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from audit.errors import AuditError, BudgetError, ModelError, out_of_memory
from audit.maths.decompositions import InfiniteMatrix
from audit.measures.report import Report
from audit.report.paths import leaves, not_finite

OVERFLOW = (
    "with inputs and weights of this size the arithmetic of the audit overflows; scale the inputs (--scale) or the "
    "model to ordinary sizes."
)

TOO_LARGE = ("math range error", "Result too large", "result out of range", "float infinity")  # Python's own words


def check_finite(report: Report) -> Report:
    """The report itself, or a refusal that names the first number that is none."""
    place = next((path for path, value in leaves(report) if not_finite(value)), None)
    if place is None:
        return report
    raise ModelError(f"{place} comes out as no finite number: {OVERFLOW}")


@contextmanager
def ordinary_sizes() -> Iterator[None]:
    """Around the numbers of the audit: one too large to be held is a refusal, not a warning of numpy's.

    What overflows inside torch is infinite without a word: it is found in the report, or by the linear algebra.
    """
    try:
        with np.errstate(over="raise"):
            yield
    except (FloatingPointError, OverflowError) as error:
        if isinstance(error, OverflowError) and not any(words in str(error) for words in TOO_LARGE):
            raise  # a number that some type cannot take, which is our fault
        raise ModelError(f"A number of the audit is too large to be held ({error}): {OVERFLOW}") from error
    except InfiniteMatrix as error:
        raise ModelError(f"A matrix that the audit needs the eigenvalues of is not finite: {OVERFLOW}") from error


@contextmanager
def within_memory() -> Iterator[None]:
    """Around an audit: a machine that cannot hold it is a refusal that names the cure."""
    try:
        yield
    except Exception as error:
        if isinstance(error, AuditError) or not out_of_memory(error):
            raise
        raise BudgetError(
            "The machine ran out of memory; give the audit less with --memory, or fewer --samples."
        ) from error
