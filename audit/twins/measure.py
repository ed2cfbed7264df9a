"""The inner numbers of a twin: what the suite measures inside a network, without what a twin does not need.

Data hygiene, calibration, consequences, widths, bootstrap, self-checks and pictures are left out; a plan is made once,
for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from audit.curvature.spectrum import Spectra
from audit.data.dataset import Data
from audit.measures.contract import Measurement
from audit.measures.suite import Results, Tail, run_suite
from audit.model.base import Model
from audit.report.paths import find
from audit.report.plan import Plan
from audit.run.overflow import ordinary_sizes
from audit.run.progress import Progress
from audit.run.setup import plan_audit, set_up_audit
from audit.settings import Settings

NOT_NEEDED = ("gap", "calibration", "hygiene", "consequences")
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
