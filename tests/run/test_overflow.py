"""Numbers too large to be held end in a sentence; other faults keep their own name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from audit.errors import ModelError
from audit.maths.decompositions import eigh
from audit.run.assemble import OVERFLOW, ordinary_sizes


def test_an_overflow_in_numpy_is_a_sentence() -> None:
    with pytest.raises(ModelError) as refused, ordinary_sizes():
        np.square(np.array([1e200]))
    assert (
        str(refused.value)
        == f"A number of the audit is too large to be held (overflow encountered in square): {OVERFLOW}"
    )


def test_an_overflow_in_python_is_a_sentence() -> None:
    with pytest.raises(ModelError, match="too large to be held"), ordinary_sizes():
        _ = 1e200**2


def test_numpy_warns_as_before_outside() -> None:
    with ordinary_sizes():
        pass
    with pytest.warns(RuntimeWarning, match="overflow encountered in square"):
        np.square(np.array([1e200]))


@pytest.mark.parametrize("none", [torch.inf, torch.nan])
def test_eigenvalues_of_numbers_that_overflowed_are_a_sentence(none: float) -> None:
    matrix = torch.full((3, 3), none, dtype=torch.float64)
    with pytest.raises(ModelError) as refused, ordinary_sizes():
        eigh(matrix)
    assert str(refused.value) == f"A matrix that the audit needs the eigenvalues of is not finite: {OVERFLOW}"


def test_a_finite_matrix_that_cannot_be_factored_is_not_called_an_overflow() -> None:
    matrix = -torch.eye(3)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"), ordinary_sizes():  # type: ignore[attr-defined]
        torch.linalg.cholesky(matrix)
