"""How strongly do inputs and weights move the output? MLS, volume and the bounds that tie them to sharpness."""

from __future__ import annotations

from audit.maths.blocks import DENSE_LIMIT
from audit.measures.workload import BACKWARD, EIGH, SIGNED, Demand, Sampled, Workload
from audit.report.conduct import PlannedStage
from audit.settings import Settings

ITERATED = 4000.0  # operations for each weight until an iteration knows its matrix's norm
PADDED = "Left out: the scores at positions without a label, of which nothing is asked, would count like the others."


def operations(work: Workload, _settings: Settings) -> float:
    """Of the scores' derivatives in the input and in all parameters, and of their Gram matrices."""
    n, C = work.samples, work.outputs
    inside = n * C * BACKWARD * (work.operations if work.input_numbers else work.behind)
    algebra = n * (2 * C * C * work.input_numbers + EIGH * C**3 * (1 + len(work.layers)))
    return inside + algebra + n * C * work.gradient


def of_a_sample(work: Workload) -> float:
    """Operations of a sample's derivatives by random signs."""
    return work.operations + min(work.outputs, SIGNED) * BACKWARD * work.operations


def beside(_stage: PlannedStage, work: Workload) -> float:
    """Operations of the largest singular value of every layer's weights: of a large one, by iteration."""
    sides = ((min(layer.in_features, layer.out_features), layer.weights) for layer in work.layers)
    return sum(4 * side * weights if side <= DENSE_LIMIT else ITERATED * weights for side, weights in sides)


def held(_stage: PlannedStage, work: Workload, _settings: Settings, _size: int) -> float:
    """Bytes of one sample's derivatives in the input, and of their Gram matrix."""
    return 8 * work.outputs * (work.input_numbers + work.outputs)


def why_not(work: Workload) -> str | None:
    """At many positions, those without a label would count."""
    return PADDED if work.tagging else None


DEMAND = Demand(
    operations,
    sampled=Sampled(share=0.25, least=8, most=256, each=of_a_sample),
    beside=beside,
    bytes=held,
    quick=False,
    why_not=why_not,
)
