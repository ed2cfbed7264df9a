"""The road: model file and data folder in, `Report` out. One room after the other, nothing walks back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from audit.checks import run_checks
from audit.data import read_data, resolve_task
from audit.data.dataset import Data, spread_rows
from audit.data.labels import UnnamedClasses, listed
from audit.errors import DataError
from audit.findings import add_findings
from audit.measures.contract import Audit
from audit.measures.report import Report
from audit.measures.suite import Results, run_suite
from audit.model import load_model
from audit.model.base import Model, Preparation
from audit.model.batches import as_fed
from audit.model.parity import Parity, check_behaviour, check_parity
from audit.network.hooks import scores
from audit.run.assemble import Measured, assemble
from audit.run.fitting import fit, known_inputs
from audit.run.overflow import check_finite, ordinary_sizes
from audit.run.progress import Progress
from audit.run.reader_warnings import find_warnings
from audit.run.setup import set_up_audit
from audit.run.temperature import at_train_loss
from audit.settings import Settings

Reader = Callable[[Settings, tuple[str, ...], Preparation | None], Data]
"""Given what the model calls its inputs, and the preprocessing that its own file does."""


@dataclass(frozen=True)
class Sources:
    """Where the model and the data come from."""

    load: Callable[[Settings], Model]
    read: Reader


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
        model, data = fit(model, _read(sources.read, settings, model), settings)
    with progress.stage("parity", "Comparing with the file's own runtime"):
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


def _read(read: Reader, settings: Settings, model: Model) -> Data:
    """The data, their classes in the order of `--classes`, or else in the model's own."""
    own, inputs, preparation = model.classes, known_inputs(model), model.preparation
    if settings.classes or own is None:
        return read(settings, inputs, preparation)
    try:
        return read(replace(settings, classes=own), inputs, preparation)
    except UnnamedClasses as error:
        raise DataError(
            f"{error.subject} are not among the classes that the model file names ({listed(own)}); say with --classes "
            "what your data call them, in the order of the model's outputs."
        ) from error


def trusted(model: Model, data: Data) -> Parity | None:
    """Shows that the model answers as its file does, every time, each sample by itself."""
    x = data.train.x[spread_rows(len(data.train))]
    check_behaviour(model, x)
    return None if model.reference is None else check_parity(model, x, data.raw)


def _outputs(model: Model, data: Data) -> int:
    batch = model.input.batch or 1
    x = torch.from_numpy(np.ascontiguousarray(data.train.x[np.arange(batch) % len(data.train)]))
    return scores(model.network, as_fed(model.network, x)).shape[1]
