"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from audit.data.base import Data, Split
from audit.measures.contract import Audit
from audit.model.base import InputSpec, Model
from audit.run.setup import set_up_audit
from audit.settings import Settings

torch.set_num_threads(1)
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # commands would speak to the workflow that runs the tests

AuditMaker = Callable[..., Audit]


def as_model(network: nn.Module, shape: tuple[int, ...], **changes: object) -> Model:
    """A `Model` around a network that came from no file."""
    network = network.eval().requires_grad_(False)
    spec = InputSpec("x", shape)
    return Model(network=network, path=Path("model"), format="memory", sha256="", input=spec, output="y", **changes)  # type: ignore[arg-type]


def as_data(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, **changes: object) -> Data:
    """A `Data` around arrays."""
    splits = [Split(x=x, y=y, total=len(x)), Split(x=x_test, y=y_test, total=len(x_test))]
    return Data(*splits, path=Path("data"), layout="npz", sha256="", classes=None, **changes)  # type: ignore[arg-type]


@pytest.fixture
def make_audit() -> AuditMaker:
    """`make_audit(network, x, y, x_test, y_test, task="classification", **settings)` → the table for the measures."""

    def make(network, x, y, x_test, y_test, task="classification", **settings) -> Audit:  # type: ignore[no-untyped-def]
        model = as_model(network, tuple(x.shape[1:]))
        return set_up_audit(model, as_data(x, y, x_test, y_test), task, Settings(**settings))

    return make
