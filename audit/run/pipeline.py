"""The road: model file and data folder in, `Report` out. One room after the other, nothing walks back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch

from audit.checks import run_checks
from audit.compare import Named
from audit.compare.comparable import check_comparable
from audit.data import read_data, resolve_task
from audit.data.dataset import Data, spread_rows
from audit.data.fit import Fitting
from audit.data.labels import UnnamedClasses, listed
from audit.errors import AuditError, DataError, ModelError, UsageError, within_means
from audit.findings import add_findings
from audit.measures import Report
from audit.measures.contract import Audit
from audit.measures.suite import Results, run_suite
from audit.model import load_model
from audit.model.base import Model, Preparation, as_fed
from audit.model.parity import Parity, check_behaviour, check_parity, in_double
from audit.network.hooks import scores
from audit.report import LossName, Task
from audit.report.blocks import Gallery
from audit.report.conduct import Plan
from audit.run.assemble import Measured, assemble, check_finite, keep_outcomes, ordinary_sizes
from audit.run.doctor import Patient, examine, with_class_order
from audit.run.fitting import fit, known_inputs
from audit.run.gallery import show_changed
from audit.run.partial import Partial
from audit.run.plan import budget_seconds
from audit.run.progress import Progress
from audit.run.reader_warnings import find_warnings
from audit.run.setup import at_train_loss, plan_audit, set_up_audit
from audit.settings import Settings
from audit.settings.limits import let_go, memory_limited, one_budget

Reader = Callable[[Settings, tuple[str, ...], Preparation | None], Data]
"""Given what the model calls its inputs, and the preprocessing that its own file does."""


@dataclass(frozen=True)
class Sources:
    """Where the model and the data come from."""

    load: Callable[[Settings], Model]
    read: Reader
    check: Callable[[Iterable[Path]], None] = lambda used: None  # that they, and these files, are still what was read


@dataclass(frozen=True)
class Audited:
    """The report, and what it was made from."""

    report: Report
    audit: Audit
    results: Results
    shown: Gallery | None = None  # test samples that changed most against a baseline


@dataclass(frozen=True)
class Following:
    """What an audit takes from an earlier one, and leaves for a later one."""

    train_loss: float | None = None  # that the scores are softened to, for a comparison at one train loss
    plan: Plan | None = None  # of what is measured how; without one the audit makes its own
    baseline: Report | None = None  # that the report will be compared with
    only_with: Named | None = None  # a report without which, where the two cannot be compared, nothing is measured
    kept: Partial | None = None  # what is finished, in case that this run does not come to its end


NOTHING = Following()


@dataclass(frozen=True)
class Prepared:
    """A model that can be trusted, and data that fit it."""

    model: Model
    data: Data
    task: str
    parity: Parity | None
    fitting: Fitting | None  # of some samples as they are stored


def run_audit(
    model_path: Path,
    data_path: Path,
    settings: Settings,
    command: str,
    progress: Progress,
    following: Following = NOTHING,
) -> Audited:
    """The whole audit of a file and a folder."""
    return audit_sources(files_of(model_path, data_path), settings, command, progress, following)


@within_means()
def plan_only(
    model_path: Path, data_path: Path, settings: Settings, progress: Progress, plan: Plan | None = None
) -> tuple[Plan, int]:
    """How a file would be audited on a folder, and on how many train samples; nothing is measured."""
    ready = prepare(files_of(model_path, data_path), settings, progress)
    return plan or plan_audit(ready.model, ready.data, ready.task, settings), len(ready.data.train)


@within_means()
def audit_sources(
    sources: Sources, settings: Settings, command: str, progress: Progress, following: Following = NOTHING
) -> Audited:
    """The whole audit."""
    ready = prepare(sources, settings, progress)
    with progress.stage("plan", "Planning what is measured how"):
        plan = _plan(ready, settings, following, progress.timings)
    progress.follow(_to_come(plan, following.kept), len(ready.data.train))
    with progress.stage("doctor", "Feeding a few samples in other ways"):
        doctor = examine(Patient(ready.model, ready.data, ready.task, settings, ready.fitting), plan)
    with progress.stage("forward", "Running both splits"):
        audit = set_up_audit(ready.model, ready.data, ready.task, settings, plan)
        if following.train_loss is not None:
            softened = at_train_loss(audit, following.train_loss)
            audit = set_up_audit(softened, ready.data, ready.task, settings, plan)
        if following.only_with is not None:
            _check_with(following.only_with, audit)
        doctor = with_class_order(doctor, audit.data, audit.train_outcome)
    with ordinary_sizes():
        results = run_suite(audit, progress, following.kept)
        with progress.stage("checks", "Checking the numbers on this model"):
            checks = run_checks(audit, results)
        sources.check(ready.data.files)  # samples that all fit are left on disk until they are used
        warnings = find_warnings(audit, results, doctor)
        measured = Measured(audit, results, ready.parity, checks, warnings, doctor, command, progress.timings)
        report = check_finite(assemble(measured))
    return Audited(add_findings(report), audit, results, show_changed(ready.data, following.baseline, report))


def files_of(model: Path, data: Path) -> Sources:
    """A file and a folder, both watched for changes."""
    return Sources(partial(load_model, model), partial(read_data, data), Watch(model, data).check)


@one_budget()
def prepare(sources: Sources, settings: Settings, progress: Progress) -> Prepared:
    """Loads, reads, fits, and shows that the model answers as its file does."""
    budget_seconds(settings.budget)  # refused before any work
    torch.manual_seed(settings.seed)
    with progress.stage("load", "Loading the model"):
        model = sources.load(settings)
    with progress.stage("read", "Reading the data"):
        data = _read(sources.read, settings, model)
        with memory_limited(settings.memory, model.path):  # which runs the model to see what it takes
            model, data, fitting = fit(model, data, settings)
    with progress.stage("parity", "Comparing with the file's own runtime"):
        with memory_limited(settings.memory, model.path):
            parity = trusted(model, data)
        sources.check(data.files)
        outputs = _outputs(model, data)
        task, data = resolve_task(data, outputs, model.head, settings.task, model.per_position)
    model = replace(model, reference=None)  # it has vouched for the network, and holds all weights once more
    let_go(model.weights)  # … as do the copies that were compared with it, whose graphs point at themselves
    return Prepared(model, data, task, parity, fitting)


def _plan(ready: Prepared, settings: Settings, following: Following, timings: dict[str, float]) -> Plan:
    """The plan of the audit that is gone on with, else the one to follow, else one of its own."""
    kept, about = following.kept, (ready.model.sha256, ready.data.sha256, settings)
    earlier = None if kept is None else kept.plan(*about)
    if earlier is not None and following.plan is not None and following.plan != earlier:
        raise UsageError("--resume: the unfinished audit has another plan; leave --resume or --plan out.")
    plan = earlier or following.plan or plan_audit(ready.model, ready.data, ready.task, settings)
    if kept is not None:
        kept.begin(*about, plan, timings)
    return plan


def _check_with(earlier: Named, audit: Audit) -> None:
    """Refuses an audit that the earlier one cannot be compared with: what that takes is known before any measure."""
    report, data = earlier.report, audit.data
    new = replace(
        report,
        model=replace(report.model, task=cast(Task, audit.task), loss=cast(LossName, audit.loss.name)),
        data=replace(report.data, sha256=data.sha256),
        settings=asdict(audit.settings),
        outcomes=keep_outcomes(data, audit.train_outcome, audit.test_outcome),
    )
    check_comparable(earlier, [Named(str(audit.model.path), new)])


def _to_come(plan: Plan, kept: Partial | None) -> Plan:
    """The plan without what an earlier run has finished."""
    finished = () if kept is None else kept.measurements
    return replace(plan, stages=[stage for stage in plan.stages if stage.name not in finished])


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
    x, x_test = (split.x[spread_rows(len(split))] for split in (data.train, data.test))
    network = in_double(model)
    check_behaviour(model, x, network)
    if model.reference is None:
        return None
    raw_train, raw_test = data.raw or (None, None)
    parity = check_parity(model, x, raw_train, network)
    check_parity(model, x_test, raw_test, network)  # which may be unlike train samples
    return parity


def _outputs(model: Model, data: Data) -> int:
    batch = model.input.batch or 1
    x = torch.from_numpy(np.ascontiguousarray(data.train.x[np.arange(batch) % len(data.train)]))
    return scores(model.network, as_fed(model.network, x)).shape[1]


# Whether the files of an audit are still what was read: one that is being written gives numbers of no file.


Stamp = tuple[int, int, int]
"""When a file was last written to, its size, and which file it is: a new one may have taken its place and time."""


class Watch:
    """Remembers a model file and the files of a data folder before any of them is read."""

    def __init__(self, model: Path, data: Path) -> None:
        self._model = model
        self._before = {model: _stamp(model)} | {file: _stamp(file) for file in _files(data)}

    def check(self, used: Iterable[Path]) -> None:
        """Refuses the audit where the model, or a file of the data that was used, has changed since."""
        self._refuse_changed(self._model, ModelError, "audit it once it is finished")
        for file in used:
            self._refuse_changed(file, DataError, "audit the data once they are finished")

    def _refuse_changed(self, file: Path, kind: type[AuditError], remedy: str) -> None:
        if file in self._before and _stamp(file) != self._before[file]:
            raise kind(f"{file}: was written to while it was read; {remedy}.")


def _files(folder: Path) -> list[Path]:
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def _stamp(file: Path) -> Stamp | None:
    """None where there is no file, which its reader will say."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
