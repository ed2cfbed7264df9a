"""The road: model file and data folder in, `Report` out. One room after the other, nothing walks back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from audit.assemble import assemble
from audit.checks import run_checks
from audit.data import fit, read_data, settle_task
from audit.data.base import Data
from audit.data.labels import UnnamedClasses, listed
from audit.errors import DataError
from audit.findings import judge
from audit.finite import check_finite, ordinary_sizes
from audit.gap import measure_gap
from audit.layers import Layers
from audit.measure import Audit
from audit.model import load_model
from audit.model.base import Model
from audit.model.parity import Parity, check_behaviour, check_parity
from audit.model.trace import accepts, alike, trace
from audit.prepare import set_table
from audit.progress import Progress
from audit.report import Report
from audit.sanity import find_warnings
from audit.settings import Settings
from audit.suite import Results, run_suite
from audit.temper import at_train_loss

PARITY_SAMPLES = 64
Look = Callable[[Audit, Results], None]


def run_audit(
    model_path: Path,
    data_path: Path,
    settings: Settings,
    command: str,
    progress: Progress,
    train_loss: float | None = None,
    look: Look | None = None,
) -> Report:
    """The whole audit of a file and a folder.

    For a comparison the scores can be softened to a mean `train_loss`, and `look` sees the table and what was measured.
    """
    load, read = partial(load_model, model_path), partial(read_data, data_path)
    return audit_of(load, read, settings, command, progress, train_loss, look)


def audit_of(
    load: Callable[[Settings], Model],
    read: Callable[[Settings], Data],
    settings: Settings,
    command: str,
    progress: Progress,
    train_loss: float | None = None,
    look: Look | None = None,
) -> Report:
    """The whole audit, wherever `load` and `read` have the model and the data from."""
    torch.manual_seed(settings.seed)
    with progress.stage("load", "Loading the model"):
        model = load(settings)
    with progress.stage("read", "Reading the data"):
        stored = _read(read, settings, model.classes)
        fed = _fed_as(model, settings)
        data = fit(stored, model.input.shape, partial(accepts, model), fed, partial(alike, model))
    with progress.stage("parity", "Comparing with the file's own runtime"):
        model, parity = trusted(model, data, settings)
        if _fed_as(model, settings) != fed:  # that it takes whole numbers is seen when it first runs
            data = fit(
                stored, model.input.shape, partial(accepts, model), _fed_as(model, settings), partial(alike, model)
            )
        del stored  # what was read may be as large as what is fed
    with progress.stage("forward", "Running both splits"):
        task, data = settle_task(data, _outputs(model, data), model.head, settings.task)
        audit, layers = set_table(model, data, task, settings)
        if train_loss is not None:
            audit, layers = set_table(at_train_loss(audit, train_loss), data, task, settings)
    with ordinary_sizes():
        measured = check_finite(_measured(audit, layers, task, parity, command, progress, look))
    return judge(measured)


def _measured(
    audit: Audit, layers: Layers, task: str, parity: Parity | None, command: str, progress: Progress, look: Look | None
) -> Report:
    """Everything that is a number, not yet judged."""
    results = run_suite(audit, progress)
    if look is not None:
        look(audit, results)
    with progress.stage("checks", "Checking the numbers on this model"):
        checks = run_checks(audit, results)
    with progress.stage("gap", "Measuring the gap"):
        data, settings = audit.data, audit.settings
        gap = measure_gap(audit.train_outcome, audit.test_outcome, data.classes, settings.bootstrap, settings.seed)
    warnings = find_warnings(audit, results)
    return assemble(audit, task, parity, gap, results, checks, layers.passed_by, warnings, command, progress.timings)


def _read(read: Callable[[Settings], Data], settings: Settings, own: tuple[str, ...] | None) -> Data:
    """The data, their classes in the order of `--classes`, or else in the model's `own`."""
    if settings.classes or own is None:
        return read(settings)
    try:
        return read(replace(settings, classes=own))
    except UnnamedClasses as error:
        raise DataError(
            f"{error.subject} are not among the classes that the model file names ({listed(own)}); say with --classes "
            "what your data call them, in the order of the model's outputs."
        ) from error


def trusted(model: Model, data: Data, settings: Settings) -> tuple[Model, Parity | None]:
    """The model in its canonical form, shown to answer as its file does, every time, each sample by itself."""
    rows = np.linspace(0, len(data.train) - 1, min(PARITY_SAMPLES, len(data.train))).astype(int)
    x = data.train.x[rows]
    model = trace(model, torch.from_numpy(np.ascontiguousarray(x[:8])), settings=settings)
    check_behaviour(model, x)
    return model, None if model.reference is None else check_parity(model, x)


def _fed_as(model: Model, settings: Settings) -> Settings:
    """Whole numbers for a network that takes whole numbers, such as tokens, unless another type was asked for."""
    takes_floats = model.input.dtype.is_floating_point
    return settings if takes_floats or settings.dtype != "auto" else replace(settings, dtype="int64")


def _outputs(model: Model, data: Data) -> int:
    batch = model.input.batch or 1
    x = torch.from_numpy(np.ascontiguousarray(data.train.x[np.arange(batch) % len(data.train)]))
    weight = next(model.network.parameters())
    scores: Tensor = model.network(x.to(weight.dtype) if x.is_floating_point() else x)
    return scores.reshape(batch, -1).shape[1]
