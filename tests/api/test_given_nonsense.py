"""What cannot be audited is refused in a sentence that names the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from formats import trained
from in_memory import pairs
from torch import nn
from torch.utils.data import DataLoader

from audit import AuditError, audit_model
from audit.errors import DataError, ModelError, UsageError


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo: object) -> nn.Module:
        raise TypeError("cannot pickle '_thread.lock' object")


NO_PAIR = r"give a pair \(x, y\), or a torch Dataset or DataLoader that yields such pairs\.$"


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"model": 3}, UsageError, r"^audit_model: a int is no model; give an nn\.Module, a scikit-learn"),
        ({"model": Uncopyable(13, 3)}, ModelError, r"^Uncopyable: cannot be copied \(cannot pickle '_thread\.lock'"),
        (
            {"model": nn.LazyLinear(3)},
            ModelError,
            r"^LazyLinear: a lazy layer has no weights yet; train it, or run one",
        ),
        ({"train": np.ones((4, 13))}, DataError, rf"^train: a ndarray holds no labelled samples; {NO_PAIR}"),
        ({"test": DataLoader([{"x": 1}] * 4)}, DataError, r"^test: a dict of x needs one entry y \(or labels\) beside"),
        ({"train": DataLoader([(1, 2, 3)] * 4)}, DataError, rf"^train: holds 3 parts where samples .*; {NO_PAIR}"),
        ({"train": DataLoader([])}, DataError, rf"^train: yields no samples; {NO_PAIR}"),
        (
            {"train": ([[1, 2], [3]], [0, 1])},
            DataError,
            r"^train: x: its rows differ in shape; give them all one shape",
        ),
        ({"train": (np.ones((4, 13)), [0, 1])}, DataError, r"^train: x holds 4 samples but y holds 2 labels"),
        ({"train": (np.ones((4, 13)), [{}] * 4)}, DataError, r"^train: y: a list is no array of numbers; give NumPy"),
        (
            {"test": (np.ones((4, 13)), np.eye(4))},
            DataError,
            r"^data in memory: train has one label per sample and test 4",
        ),
        ({"train": "folder"}, UsageError, r"^audit_model: train is a folder, which holds its own test split"),
        ({"sample": 3}, UsageError, r"^audit_model: there is no setting 'sample'; the nearest one is 'samples'\.$"),
    ],
)
def test_errors_are_sentences(changes: dict[str, Any], kind: type[AuditError], sentence: str) -> None:
    train, test = pairs("relu")
    with pytest.raises(kind, match=sentence):
        audit_model(**{"model": trained("relu"), "train": train, "test": test, **changes})
