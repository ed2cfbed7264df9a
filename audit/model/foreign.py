"""What every PyTorch loader needs: silence, healthy weights, and a reference that runs at any batch size."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import Reference


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
        if not (value.is_floating_point() or value.is_complex()) or bool(torch.isfinite(value).all()):
            continue
        count = int((~torch.isfinite(value)).sum())
        raise ModelError(f"{path}: {name} holds {count} NaN or infinite values; train or export the model again.")


def float_type(module: nn.Module) -> torch.dtype:
    """The float type a module computes in: that of its weights."""
    floats = (tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point())
    return next(floats, torch.float32)


def input_name(module: nn.Module) -> str:
    """What the module's forward calls its first argument."""
    try:
        return next(iter(inspect.signature(module.forward).parameters), "input")
    except (TypeError, ValueError):
        return "input"


def head_note(head: str) -> str:
    """The sentence for the report when one of `HEADS` was taken off."""
    return f"The final {head.replace('_', '-')} was taken off; the audit sees the scores beneath it."


def reference_of(
    forward: Callable[[Tensor], Tensor], dtype: torch.dtype, batch: int | None, smallest: int = 1
) -> Reference:
    """`forward` from arrays to arrays, fed in the batch size it insists on; rows are repeated to fill a batch up."""

    def run(x: np.ndarray) -> np.ndarray:
        size = batch or max(len(x), smallest)
        answers = []
        for start in range(0, len(x), size):
            rows = x[start : start + size]
            filled = np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)])
            tensor = torch.from_numpy(np.ascontiguousarray(filled))
            with torch.no_grad(), quiet():
                answer = forward(tensor.to(dtype))[: len(rows)]
            answers.append(answer.to("cpu", torch.promote_types(answer.dtype, torch.float32)).numpy())
        return np.concatenate(answers)

    return run
