"""How much volume does the network's minimum have? The Fisher determinant of Jia & Su."""

from __future__ import annotations

from audit.measures.workload import BACKWARD, Demand, Sampled, Workload
from audit.report.conduct import PlannedStage
from audit.settings import Settings


def operations(work: Workload, settings: Settings) -> float:
    """Of the drawn samples' gradients, and of their products with each other."""
    pool = min(work.samples, settings.subsets * settings.subset_size)
    products = min(settings.subsets * settings.subset_size**2, pool**2)  # of the whole pool, where these are fewer
    numbers = sum(
        layer.in_features + layer.out_features if layer.tokens == 1 else layer.weights for layer in work.layers
    )
    return pool * (BACKWARD * work.operations + work.gradient) + 2 * products * (work.beyond + numbers)


def of_a_sample(work: Workload) -> float:
    """Operations of its gradient, formed in a few turns."""
    return 4 * (work.operations + BACKWARD * work.operations) + work.gradient


def held(stage: PlannedStage, work: Workload, settings: Settings, size: int) -> float:
    """Bytes of the drawn samples' gradients, or of their factors."""
    gradients = work.widths + min(work.beyond, int(2 * work.numbers))
    return size * min(stage.samples or work.samples, settings.subsets * settings.subset_size) * gradients


DEMAND = Demand(
    operations,
    sampled=Sampled(share=0.2, least=16, most=256, each=of_a_sample),
    bytes=held,
    turns=0.2,
    quick=False,
)
