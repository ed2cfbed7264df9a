"""The measures, in the order of the report, and the walk that feeds them all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from audit.measures.catalogue import CATALOGUE
from audit.measures.contract import Audit, Fold, Measure, Measurement, Stages
from audit.network.record import LayerRecord, Products, Record

MEASURES: tuple[Measure, ...] = tuple(
    import_module(f"audit.measures.{entry.key}.measure").MEASURE for entry in CATALOGUE
)


@dataclass(frozen=True)
class Tail:
    """What the capture pass saw of the network behind a layer."""

    curved: bool = False
    curvature: str = "exact"

    def after(self, layer: LayerRecord) -> Tail:
        """What is known after one more chunk."""
        curvature = layer.curvature if layer.curvature != "exact" else self.curvature
        return Tail(self.curved or layer.residual_times is not None, curvature)


@dataclass(frozen=True)
class Results:
    """Everything the suite found."""

    measurements: dict[str, Measurement]  # by Measure.key
    tails: dict[str, Tail]  # by layer name


class Kept(Protocol):
    """What an earlier run has finished of the same audit, and where what this one finishes is kept."""

    @property
    def measurements(self) -> Mapping[str, Measurement]:
        """By Measure.key."""

    @property
    def tails(self) -> Mapping[str, Tail] | None:
        """By layer name; None where the capture pass was not finished."""

    def keep(self, key: str, measured: Measurement) -> None:
        """A measure is finished."""

    def keep_tails(self, tails: Mapping[str, Tail]) -> None:
        """The capture pass is finished."""


def run_suite(audit: Audit, progress: Stages, kept: Kept | None = None) -> Results:
    """One capture pass over the train split, seen by every measure; then each measure finishes."""
    found = {} if kept is None else dict(kept.measurements)
    with progress.stage("capture", "Capturing every dense layer"):
        folds = {measure.key: measure.start(audit) for measure in MEASURES if measure.key not in found}
        tails = None if kept is None or folds else kept.tails
        if tails is None:
            exact = audit.sampled is None or audit.plan.is_exact("flatness")
            tails = _capture(audit, list(folds.values()), progress) if exact else _tails(audit)
    if kept is not None:
        kept.keep_tails(tails)
    for key, fold in folds.items():
        with progress.stage(f"measure {key}", f"Measuring {key}"):
            found[key] = fold.finish()
        if kept is not None:
            kept.keep(key, found[key])
    return Results({measure.key: found[measure.key] for measure in MEASURES}, dict(tails))


def _tails(audit: Audit) -> dict[str, Tail]:
    """What a few samples show of the network behind each layer; there the Gauss–Newton part alone is measured."""
    assert audit.sampled is not None
    curved = audit.sampled.residuals.curved
    return {layer.name: Tail(True, "gauss-newton") if layer.name in curved else Tail() for layer in audit.layers}


def _capture(audit: Audit, folds: Sequence[Fold], progress: Stages) -> dict[str, Tail]:
    """The pass; what it saw behind each layer."""
    tails = {layer.name: Tail() for layer in audit.layers}

    def see(record: Record) -> None:
        products = Products(record)  # formed once for all measures, and gone with the record
        for name, layer in record.layers.items():
            tails[name] = tails[name].after(layer)
        for fold in folds:
            fold.see(record, products)

    for _ in progress.steps(map(see, audit.train.measured()), audit.train.chunks):
        pass
    return tails
