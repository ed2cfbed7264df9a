"""What happens to the answers if inputs are a little noisy, or weights a little off?

Meaning   loss and errors of test samples with noise in the input, with its worst small change, with weights in 8 bits,
          and with each dense layer's weights or neurons changed at random; each beside the number of the theory that
          speaks of the same change, held against what was measured on train samples.
Source    measured; second order of the loss in the weights: Petzka et al. (2019); first order of the scores: MLS and
          S(θ) of "A simple connection from loss flatness to compressed representations" (2024); worst step:
          Goodfellow et al. (2015), in the Euclidean norm.
Can tell  how much such changes cost on samples like these, and whether the theory's numbers mean something here.
Cannot    tell of other changes: blur, another camera, an adversary with more than one step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from audit.maths.decompositions import norm
from audit.maths.resample import TEST, TRAIN
from audit.maths.shares import wilson
from audit.measures.consequences import DEMAND, FEW_LAYERS, MOST_LAYERS, MOST_TESTS, TESTS_PER_TRAIN
from audit.measures.consequences.block import Consequence, Consequences, Kind, Theory
from audit.measures.consequences.card import CARDS
from audit.measures.consequences.changes import (
    NO_PLACE,
    Place,
    changed,
    find_place,
    moved,
    noisy,
    rounding,
    worst_step,
)
from audit.measures.consequences.samples import Effect, Means, Samples, column, error_change, everything, rmse, spread
from audit.measures.consequences.theory import theory_of
from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.measures.workload import Demand
from audit.network import DenseLayer
from audit.network.record import Products, Record
from audit.report.conduct import PlannedStage

WORST = 0.01
CONSTANT = "the inputs are the same in all train samples looked at, so that they have no spread to take a share of"


@dataclass(frozen=True)
class Effort:
    """How many changes are tried, on how many samples."""

    tests: int = MOST_TESTS
    trains: int = MOST_TESTS // TESTS_PER_TRAIN
    sizes: tuple[float, ...] = (0.01, 0.02, 0.05)
    neurons: tuple[float, ...] = (0.05,)
    draws: int = 4  # of noise in the input
    pairs: int = 4  # of opposite random changes of a layer
    layers: int = MOST_LAYERS

    @classmethod
    def planned(cls, stage: PlannedStage) -> Effort:
        """As a plan has it; one without a plan is whole."""
        few = cls(sizes=(0.05,), neurons=(), draws=1, pairs=2, layers=FEW_LAYERS) if stage.brief else cls()
        return replace(few, tests=stage.tests or few.tests, trains=stage.samples or few.trains)


class ConsequencesMeasure:
    """Small changes, really made."""

    key = "consequences"
    question = "What happens to the answers if inputs are a little noisy, or weights a little off?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """Needs no record: it runs the network by itself."""
        return _ConsequencesFold(audit)


class _ConsequencesFold:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit

    def see(self, record: Record, products: Products) -> None:
        """Nothing of a record."""

    def finish(self) -> Measurement:
        """All changes; none where the plan leaves them out, or was made before there were any."""
        plan = self.audit.plan
        stage = plan.stage(ConsequencesMeasure.key)
        if stage.form == "skipped" or (plan.samples_some and not stage.tests):
            return Measurement()
        return Measurement(network=measure_consequences(self.audit, Effort.planned(stage)))


MEASURE: Measure = ConsequencesMeasure()


@dataclass(frozen=True)
class Change:
    """One of the changes."""

    kind: Kind
    size: float | None = None
    layer: str | None = None

    @property
    def id(self) -> str:
        """`input-noise-5`, `weights-rounded`, `fc1-weights-noise-2`."""
        parts = (self.layer, self.kind, None if self.size is None else f"{100 * self.size:g}")
        return "-".join(part for part in parts if part)


def measure_consequences(audit: Audit, effort: Effort) -> Consequences:
    """On test samples, and what the theory speaks of on train samples."""
    test = Samples.of(audit, audit.test, effort.tests)
    train = Samples.of(audit, audit.train, effort.trains)
    place, seed = find_place(audit), audit.settings.seed
    weights, changes = rounding(audit.network)
    trial = Trial(place, spread_over(audit.layers, effort.layers), effort, (weights, changes))
    here, there = (dict(trial.effects(some, (seed, split))) for some, split in ((test, TEST), (train, TRAIN)))
    broken = [change for change in here if not (here[change].finite and there[change].finite)]
    before = next(iter(here.values())).before
    here = {change: effect for change, effect in here.items() if change not in broken}
    columns = [column(before.loss)[None]]
    for effect in here.values():
        columns += [np.stack([column(each.loss) for each in effect.after]), effect.loss_differences()]
        columns += [effect.score_differences()]
    means, outputs = Means(columns, audit.bootstrap, TEST), test.unchanged.shape[1]
    error = None if before.wrong is None else float(before.wrong.mean())
    return Consequences(
        samples=len(test),
        train_samples=len(train),
        loss=means.mean(0),
        loss_ci95=means.ci95(0),
        error=error,
        error_ci95=None if error is None else wilson(error, len(test)),
        **({} if before.wrong is not None else rmse(means, 0, outputs)),
        changed_place=None if place is None else place.name,
        spread=None if place is None else _one_spread(place),
        numbers=0 if place is None else int((place.spread > 0).sum()),
        rounded_weights=sum(weight.numel() for weight in weights),
        rounding_norm=math.hypot(*map(norm, changes)),
        changes=[
            _consequence(
                change,
                effect,
                (means, 1 + 3 * number),
                theory_of(change.kind, change.layer, there[change], audit.bootstrap),
                outputs,
            )
            for number, (change, effect) in enumerate(here.items())
        ],
        not_finite=[change.id for change in broken],
        layers_left_out=len(audit.layers) - len(trial.layers),
        form="exact" if len(test) == len(audit.test) else "sampled",
        bootstrap=audit.bootstrap.draws,
        skipped=None if place is not None else CONSTANT if audit.train.x.is_floating_point() else NO_PLACE,
    )


@dataclass(frozen=True)
class Trial:
    """Every change that is made."""

    place: Place | None
    layers: Sequence[DenseLayer]
    effort: Effort
    rounding: tuple[Sequence[Tensor], Sequence[Tensor]]  # weights, and what 8 bits add to them

    def effects(self, samples: Samples, seed: tuple[int, int]) -> Iterator[tuple[Change, Effect]]:
        """On one split, in the order of the report. Weights move the same way on both splits."""
        before, effort = samples.before, self.effort
        if self.place is not None:
            for size, after in noisy(self.place, samples, effort.sizes, effort.draws, seed).items():
                yield Change("input-noise", size), Effect(before, after, shared=False)
            yield Change("input-worst", WORST), Effect(before, [worst_step(self.place, samples, WORST)], shared=False)
        with changed(*self.rounding):
            rounded = everything(samples)
        yield Change("weights-rounded"), Effect(before, [rounded], shared=False)
        sizes: dict[Kind, tuple[float, ...]] = {"weights-noise": effort.sizes, "neurons-noise": effort.neurons}
        for key, after in moved(samples, self.layers, sizes, effort.pairs, seed[0]).items():
            yield Change(key.kind, key.size, key.layer), Effect(before, after, shared=True)


def spread_over(layers: Sequence[DenseLayer], most: int) -> list[DenseLayer]:
    """At most so many, evenly from the first to the last."""
    places = np.unique(np.linspace(0, len(layers) - 1, min(most, len(layers))).round().astype(int))
    return [layers[place] for place in places]


def _one_spread(place: Place) -> float | None:
    """The spread that all changed numbers have; None where they have their own."""
    spreads = place.spread[place.spread > 0]
    return float(spreads[0]) if bool((spreads == spreads[0]).all()) else None


def _consequence(
    change: Change, effect: Effect, found: tuple[Means, int], theory: Theory | None, outputs: int
) -> Consequence:
    means, first = found
    return Consequence(
        id=change.id,
        kind=change.kind,
        size=change.size,
        layer=change.layer,
        draws=len(effect.after),
        loss=means.mean(first),
        loss_ci95=means.ci95(first, effect.shared),
        loss_change=means.mean(first + 1),
        loss_change_ci95=means.ci95(first + 1, effect.shared),
        loss_change_std=spread(effect.loss_differences().mean(1)),
        score_change=means.mean(first + 2),
        score_change_ci95=means.ci95(first + 2, effect.shared),
        theory=theory,
        **(error_change(effect) or rmse(means, first, outputs)),
    )
