"""The road: model file and data folder in, `Report` out. One room after the other, nothing walks back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from audit.checks import run_checks
from audit.data import choose_fitting, read_data, resolve_task
from audit.data.dataset import Data
from audit.data.labels import UnnamedClasses, listed
from audit.errors import DataError
from audit.findings import add_findings
from audit.limits import memory_limited
from audit.measures.contract import Audit
from audit.measures.report import Report
from audit.measures.suite import Results, run_suite
from audit.model import canonical_form, load_model
from audit.model.base import Model
from audit.model.batches import accepts, alike, as_fed
from audit.model.parity import Parity, check_behaviour, check_parity
from audit.network.hooks import scores
from audit.run.assemble import Measured, assemble
from audit.run.overflow import check_finite, ordinary_sizes
from audit.run.progress import Progress
from audit.run.reader_warnings import find_warnings
from audit.run.setup import set_up_audit
from audit.run.temperature import at_train_loss
from audit.settings import Settings

PARITY_SAMPLES = 64
TRACED = 8  # of them, for the first look at a network that does not say what it takes


@dataclass(frozen=True)
class Sources:
    """Where the model and the data come from."""

    load: Callable[[Settings], Model]
    read: Callable[[Settings], Data]


@dataclass(frozen=True)
class Audited:
    """The report, and what it was made from."""

    report: Report
    audit: Audit
    results: Results


def run_audit(
    model_path: Path,
    data_path: Path,
    settings: Settings,
    command: str,
    progress: Progress,
    train_loss: float | None = None,
) -> Audited:
    """The whole audit of a file and a folder."""
    sources = Sources(partial(load_model, model_path), partial(read_data, data_path))
    return audit_sources(sources, settings, command, progress, train_loss)


def audit_sources(
    sources: Sources, settings: Settings, command: str, progress: Progress, train_loss: float | None = None
) -> Audited:
    """The whole audit; for a comparison at one train loss, with the scores softened to a mean of `train_loss`."""
    torch.manual_seed(settings.seed)
    with progress.stage("load", "Loading the model"):
        model = sources.load(settings)
    with progress.stage("read", "Reading the data"):
        model, data = _fitted(model, _read(sources.read, settings, model.classes), settings)
    with progress.stage("parity", "Comparing with the file's own runtime"), memory_limited(settings.memory, model.path):
        parity = trusted(model, data)
    with progress.stage("forward", "Running both splits"):
        task, data = resolve_task(data, _outputs(model, data), model.head, settings.task)
        audit = set_up_audit(model, data, task, settings)
        if train_loss is not None:
            audit = set_up_audit(at_train_loss(audit, train_loss), data, task, settings)
    with ordinary_sizes():
        results = run_suite(audit, progress)
        with progress.stage("checks", "Checking the numbers on this model"):
            checks = run_checks(audit, results)
        measured = Measured(audit, results, parity, checks, find_warnings(audit, results), command, progress.timings)
        report = check_finite(assemble(measured))
    return Audited(add_findings(report), audit, results)


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


def _fitted(model: Model, stored: Data, settings: Settings) -> tuple[Model, Data]:
    """The model in its canonical form, and the data as it takes them: its number type is seen when it first runs."""
    fed = _fed_as(model, settings)
    fitting = choose_fitting(stored, model.input.shape, partial(accepts, model), fed, partial(alike, model))
    example = fitting.example(_parity_rows(stored)[:TRACED], fed)
    model = canonical_form(model, torch.from_numpy(example), settings=settings)
    return model, fitting.fit(_fed_as(model, settings))


def _parity_rows(data: Data) -> NDArray[np.int64]:
    return np.linspace(0, len(data.train) - 1, min(PARITY_SAMPLES, len(data.train))).astype(np.int64)


def trusted(model: Model, data: Data) -> Parity | None:
    """Shows that the model answers as its file does, every time, each sample by itself."""
    x = data.train.x[_parity_rows(data)]
    check_behaviour(model, x)
    if model.reference is None:
        return None
    parity = check_parity(model, x)
    check_parity(model, data.test.x[: len(x)])  # nothing says that test samples are like train samples
    return parity


def _fed_as(model: Model, settings: Settings) -> Settings:
    """Whole numbers for a network that takes whole numbers, such as tokens, unless another type was asked for."""
    takes_floats = model.input.dtype.is_floating_point
    return settings if takes_floats or settings.dtype != "auto" else replace(settings, dtype="int64")


def _outputs(model: Model, data: Data) -> int:
    batch = model.input.batch or 1
    x = torch.from_numpy(np.ascontiguousarray(data.train.x[np.arange(batch) % len(data.train)]))
    return scores(model.network, as_fed(model.network, x)).shape[1]
