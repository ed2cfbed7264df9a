"""Foreign code and what comes out of it: kept quiet, its errors in one line, its weights looked at."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audit.errors import ModelError


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's own warnings and log lines, which speak of its internals, away from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """The first line of a foreign error, short enough to stand in a sentence."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(".:;")[:200]


def check_weights(tensors: Mapping[str, Any], path: Path) -> None:
    """A model has weights, and each of them is a finite number."""
    weights = {name: value for name, value in tensors.items() if isinstance(value, Tensor)}
    if not any(value.numel() for value in weights.values()):
        raise ModelError(f"{path}: has no parameters, so there is nothing to audit; give a trained network.")
    for name, value in weights.items():
        if value.is_quantized or value.dtype in (torch.qint8, torch.quint8):
            raise ModelError(f"{path}: {name} is quantised; audit the float model it came from.")
        if value.is_complex():
            raise ModelError(f"{path}: {name} holds complex numbers; audit a model with real ones.")
        if value.layout is not torch.strided or value.is_meta or value.is_nested:
            raise ModelError(f"{path}: {name} is no plain tensor of numbers; save dense weights.")
        if not value.is_floating_point() or bool(torch.isfinite(value).all()):
            continue
        count = int((~torch.isfinite(value)).sum())
        raise ModelError(f"{path}: {name} holds {count} NaN or infinite values; train or export the model again.")
