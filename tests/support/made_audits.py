"""What the rooms hand to each other, made of a network and arrays at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from audit.data.dataset import Data, Split
from audit.measures.contract import Audit
from audit.model.base import InputSpec, Model

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
