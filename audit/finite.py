"""The last look at a report before it is written: every number in it is a number."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import numpy as np
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from audit.errors import ModelError
from audit.report import Report

OVERFLOW = (
    "with inputs and weights of this size the arithmetic of the audit overflows; scale the inputs (--scale) or the "
    "model to ordinary sizes."
)

TOO_LARGE = ("math range error", "Result too large", "result out of range", "float infinity")  # Python's own words


def check_finite(report: Report) -> Report:
    """The report itself, or a refusal that names the first number that is none."""
    place = next(_infinite(report, ""), None)
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
    except LinAlgError as error:
        if not _held_infinite(error):
            raise  # the matrix has another fault, which is ours
        raise ModelError(f"A matrix that the audit needs the eigenvalues of is not finite: {OVERFLOW}") from error


def _held_infinite(error: BaseException) -> bool:
    """Whether the function that failed held a square matrix that is not finite: torch's own words do not tell."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    held = [value for value in frame.f_locals.values() if isinstance(value, Tensor) and value.dim() >= 2]
    return any(not bool(value.isfinite().all()) for value in held if value.shape[-1] == value.shape[-2])


def _infinite(value: object, path: str) -> Iterator[str]:
    """Paths of the floats that are infinite or NaN."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from _infinite(part, f"{path}[{place}]")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _infinite(part, f"{path}.{key}".lstrip("."))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _infinite(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
