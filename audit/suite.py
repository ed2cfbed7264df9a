"""The measures, in the order of the report, and the walk that feeds them all at once."""

from __future__ import annotations

from dataclasses import dataclass

from audit.measure import Audit, Measure, Measurement
from audit.measures.duality import Duality
from audit.measures.fisher import Fisher
from audit.measures.flatness import Flatness
from audit.measures.hygiene import HygieneMeasure
from audit.measures.sensitivity import Sensitivity
from audit.progress import Progress

MEASURES: tuple[Measure, ...] = (HygieneMeasure(), Duality(), Flatness(), Fisher(), Sensitivity())


@dataclass(frozen=True)
class Tail:
    """What the capture pass saw of the network behind a layer."""

    curved: bool = False
    curvature: str = "exact"


@dataclass(frozen=True)
class Results:
    """Everything the suite found."""

    measurements: dict[str, Measurement]  # by Measure.key
    tails: dict[str, Tail]  # by layer name


def run_suite(audit: Audit, progress: Progress) -> Results:
    """One capture pass over the train split, seen by every measure; then each measure finishes."""
    with progress.stage("capture", "Capturing every dense layer"):
        folds = {measure.key: measure.start(audit) for measure in MEASURES}
        tails = {layer.name: Tail() for layer in audit.layers}
        for record in progress.steps(audit.train, audit.train.chunks):
            for name, layer in record.layers.items():
                curved = tails[name].curved or layer.residual_times is not None
                tails[name] = Tail(curved, layer.curvature if layer.curvature != "exact" else tails[name].curvature)
            for fold in folds.values():
                fold.see(record)
    measurements = {}
    for key, fold in folds.items():
        with progress.stage(f"measure {key}", f"Measuring {key}"):
            measurements[key] = fold.finish()
    return Results(measurements, tails)
