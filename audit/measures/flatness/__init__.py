"""How flat is the minimum, whatever the scale of the weights? The measures of Petzka et al."""

from __future__ import annotations

from audit.measures.workload import (
    BACKWARD,
    DRAWN,
    DRAWS,
    Demand,
    Sampled,
    Workload,
    column_bytes,
    curvature_bytes,
    curvature_operations,
)
from audit.report.conduct import PlannedStage
from audit.settings import Settings

PAIRED_COLUMNS = 3000.0  # operations of an entry of a Gram matrix of columns until its eigenpairs are found
SPREAD = 25.0  # operations of a sample's curvature in its scores, in squares of their number


def operations(work: Workload, _settings: Settings) -> float:
    """Of all layers' Hessians."""
    return curvature_operations(work)


def of_a_draw(work: Workload) -> float:
    """Operations of a sample's gradient by random signs, twice."""
    return work.operations + 2 * BACKWARD * work.operations


def beside(stage: PlannedStage, work: Workload) -> float:
    """Operations of the draws' traces, of the eigenpairs from columns, and of the samples' own curvatures."""
    plain = [layer for layer in work.layers if layer.tokens == 1]
    columns = stage.columns**2 * sum(layer.in_features + layer.out_features for layer in plain)
    grams = PAIRED_COLUMNS * stage.columns**2 * len(plain)
    return DRAWS * DRAWN * work.weights_over_tokens + 2 * columns + grams + SPREAD * work.samples * work.outputs**2


def held(stage: PlannedStage, work: Workload, settings: Settings, size: int) -> float:
    """Bytes of the columns, or of the records and an iteration's basis."""
    if stage.columns:
        return column_bytes(stage.columns, work, size)
    outputs = sum(layer.tokens * layer.out_features for layer in work.layers)
    return curvature_bytes(work, settings) + 8 * (stage.samples or work.samples) * work.outputs * outputs


DEMAND = Demand(
    operations,
    sampled=Sampled(share=0.35, least=64, most=2048, each=of_a_draw),
    columns=True,
    beside=beside,
    bytes=held,
    turns=0.5,
)
