"""Where does the gap come from? The A-W decomposition of Feng & Tu."""

from __future__ import annotations

from audit.measures.workload import PAIRED, Demand, Workload, column_bytes
from audit.report.conduct import PlannedStage
from audit.settings import Settings

PAIRS = 200  # forward passes that show whether one layer has a duality
STEPS = 250  # forward passes of each sample along the leading directions of a layer
WALKED, HEAVY = 128, 1e8  # samples that walk where the plan samples; half of them where a pass takes more operations


def operations(work: Workload, _settings: Settings) -> float:
    """Of the forward passes that find partners and show the duality; the Hessians are flatness's."""
    return (2 * work.tests + PAIRS * len(work.layers)) * work.operations


def beside(_stage: PlannedStage, work: Workload) -> float:
    """Operations of the walk along the leading directions, where a layer before the last may be walked."""
    return STEPS * walked(work.operations) * work.operations * any(layer.cut_point for layer in work.layers[:-1])


def walked(operations: float) -> int:
    """Samples that the widths are found on where the plan samples, by the operations of one's forward pass."""
    return WALKED if operations <= HEAVY else WALKED // 2


def held(stage: PlannedStage, work: Workload, settings: Settings, size: int) -> float:
    """Bytes of the columns, and of the pairs' projections."""
    pairs = 8 * min(work.tests, PAIRED) * (settings.directions + work.widths)
    return column_bytes(stage.columns, work, size) + pairs


DEMAND = Demand(operations, beside=beside, bytes=held, turns=0.5, rests_on="flatness")
