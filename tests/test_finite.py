"""Numbers too large to be held end in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from audit.errors import ModelError
from audit.finite import OVERFLOW, ordinary_sizes


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
