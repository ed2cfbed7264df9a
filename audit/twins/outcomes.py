"""What a trained twin does, and what the suite measures inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from audit.curvature.spectrum import Spectra
from audit.data.dataset import Data
from audit.maths.blocks import blocks
from audit.measures.catalogue import CATALOGUE
from audit.measures.contract import Measurement
from audit.measures.suite import Results, Tail, run_suite
from audit.model.base import Model
from audit.network.loss import LOSS_OF_TASK, BinaryCrossEntropy, CrossEntropy, SquaredError
from audit.report.conduct import Plan
from audit.report.paths import find
from audit.run.assemble import ordinary_sizes
from audit.run.progress import Progress
from audit.run.setup import plan_audit, set_up_audit
from audit.settings import Settings
from audit.twins import TwinOutcomes, Unseen
from audit.twins.kinds import held_out
from audit.twins.stack import scores_of
from audit.twins.training import Samples, Trained

# What a trained twin does: its temperature, its outcomes on the test samples and on train samples it has not seen.


AT_ONCE = 2000  # samples in one pass
HALVINGS, DOUBLINGS = 60, 20


@dataclass(frozen=True)
class Judged:
    """A twin beside its samples."""

    temperature: float
    matched: bool
    train_error: float | None
    test_error: float | None
    test_loss: float
    outcomes: TwinOutcomes


def judge(network: nn.Module, trained: Trained, train: Samples, test: Samples, target: float) -> Judged:
    """Everything that needs no derivative. `target`: the audited model's train loss."""
    lesson, labels = trained.lesson, train.y if trained.lesson.labels is None else trained.lesson.labels
    f, f_test = (all_scores(network, trained, samples.x) for samples in (train, test))
    own = f[lesson.rows], labels[lesson.rows]
    factor = temperature(*own, train.task, target)
    used = 1.0 if factor is None else factor
    matched = factor is not None if train.task != "regression" else trained.reached
    loss, right = losses(used * f_test, test.y, test.task), correct(f_test, test.y)
    train_right = correct(*own)
    rows = held_out(train, lesson)
    return Judged(
        temperature=used,
        matched=matched,
        train_error=None if train_right is None else 1 - float(train_right.mean()),
        test_error=None if right is None else 1 - float(right.mean()),
        test_loss=float(loss.mean()),
        outcomes=TwinOutcomes(_array(loss if right is None else right), _array(loss), _unseen(used * f, train, rows)),
    )


@torch.no_grad()
def all_scores(network: nn.Module, trained: Trained, x: Tensor) -> Tensor:
    """Scores [n, C], float64, as in use."""
    network.eval()
    parts = [scores_of(network, trained.tensors, x[part]) for part in blocks(len(x), 1, AT_ONCE)]
    return torch.cat(parts).double()


def losses(f: Tensor, y: Tensor, task: str) -> Tensor:
    """Of each sample [n]."""
    return LOSS_OF_TASK[task].value(f, y)


def correct(f: Tensor, y: Tensor) -> Tensor | None:
    """1 where right, 0 where wrong [n]; None for targets."""
    if y.dtype.is_floating_point:
        return None
    loss = BinaryCrossEntropy() if f.shape[1] == 1 else CrossEntropy()
    return loss.correct(f, y).double()


def temperature(f: Tensor, y: Tensor, task: str, wanted: float) -> float | None:
    """The factor on the scores that gives the mean loss `wanted`; None where none does, and for regression 1.

    With every sample right the loss falls from ln C at 0 without end; with some wrong it turns, and what lies below
    the turn cannot be had.
    """
    if isinstance(LOSS_OF_TASK[task], SquaredError):
        return 1.0

    def loss(factor: float) -> float:
        return float(losses(factor * f, y, task).mean())

    high = 1.0
    while loss(high) > wanted:
        if high > 2**DOUBLINGS or loss(2 * high) >= loss(high):
            return None
        high *= 2
    if loss(0.0) <= wanted:
        return None
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) > wanted else (low, middle)
    return high


def _unseen(f: Tensor, train: Samples, rows: Tensor) -> Unseen:
    f, y = f[rows], train.y[rows]
    loss, right = losses(f, y, train.task), correct(f, y)
    if right is None:
        return Unseen(rows.numpy(), _array(loss), _array(loss), _array(f), np.empty(0))
    if f.shape[1] == 1:
        answers, confidence = (f[:, 0] >= 0).double(), torch.sigmoid(f[:, 0].abs())
    else:
        answers, confidence = f.argmax(1).double(), f.softmax(1).max(1).values
    return Unseen(rows.numpy(), _array(right), _array(loss), _array(answers), _array(confidence))


def _array(values: Tensor) -> np.ndarray:
    return np.asarray(values.numpy(), dtype=np.float64)


# The inner numbers of a twin: what the suite measures inside a network, without what a twin does not need.
#
# Measures without such a number, widths, bootstrap, self-checks and pictures are left out; one plan is for all of them.


DRAWS = 10  # of the bootstrap, whose intervals nobody reads: the fewest that the settings allow
DIRECTIONS = 40  # of a layer small enough for all: the few steepest are long among them

OF_LAYERS = (
    "duality.fixed.share",
    "duality.total_g",
    "duality.total_w",
    "flatness.weight_norm_squared",
    "flatness.kappa_tau",
    "flatness.rho_sigma",
)
OF_NETWORK = (
    "fisher.gamma",
    "sensitivity.mls",
    "sensitivity.mean_log_volume_centred",
    "sensitivity.mean_log_volume",
    "sensitivity.dimensionality",
)
NEEDED = {path.partition(".")[0] for path in (*OF_LAYERS, *OF_NETWORK)}
NOT_NEEDED = tuple(entry.key for entry in CATALOGUE if entry.key not in NEEDED)


class _NotNeeded:
    """What counts as measured already."""

    tails: Mapping[str, Tail] | None = None

    def __init__(self, measures: Iterable[str]) -> None:
        self.measurements: Mapping[str, Measurement] = dict.fromkeys(measures, Measurement())

    def keep(self, key: str, measured: Measurement) -> None:
        """Nothing is kept."""

    def keep_tails(self, tails: Mapping[str, Tail]) -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class Measuring:
    """How all twins of a model are measured."""

    settings: Settings
    plan: Plan

    def numbers(self, model: Model, data: Data, task: str) -> dict[str, float]:
        """The inner numbers of one network by their paths in a report; those that do not exist are left out."""
        return dict(_found(self.results(model, data, task)))

    def results(
        self,
        model: Model,
        data: Data,
        task: str,
        directions: int | None = DIRECTIONS,
        left_out: Iterable[str] = NOT_NEEDED,
    ) -> Results:
        """All blocks of the measures that are not left out; `directions`: of a layer small enough for all of them."""
        audit = set_up_audit(model, data, task, self.settings, self.plan)
        spectra = Spectra(audit.train, self.settings.directions, self.settings.seed, directions)
        with ordinary_sizes():
            return run_suite(replace(audit, spectra=spectra), Progress(), _NotNeeded(left_out))


def measuring(model: Model, data: Data, task: str, settings: Settings) -> Measuring:
    """As an audit with these settings would measure this model."""
    plan = plan_audit(model, data, task, settings)
    return Measuring(replace(settings, widths=0, bootstrap=DRAWS, adaptive_draws=0), plan)


def _found(results: Results) -> Iterator[tuple[str, float]]:
    measurements = results.measurements
    for layer in results.tails:
        blocks = {key: measured.layers.get(layer) for key, measured in measurements.items()}
        yield from _numbers(blocks, OF_LAYERS, f"layers.{layer}.")
    yield from _numbers({key: measured.network for key, measured in measurements.items()}, OF_NETWORK, "network.")


def _numbers(blocks: Mapping[str, Any], paths: tuple[str, ...], prefix: str) -> Iterator[tuple[str, float]]:
    for path in paths:
        for found in find(path, blocks):
            if isinstance(found.value, (int, float)):
                yield prefix + path, float(found.value)
