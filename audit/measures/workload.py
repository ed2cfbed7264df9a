"""What an audit is about, in numbers, and how a measure says what it takes, so that a plan can foretell and shorten it.

Every measure's own numbers stand in its folder's `__init__.py`, as `DEMAND`; here is what several of them count by.
Operations are counted, not timed. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from audit.maths.blocks import CHUNK_BYTES, DENSE_LIMIT
from audit.report.conduct import PlannedStage
from audit.settings import Settings

BACKWARD = 2.0  # operations of a backward pass, in those of a forward pass
PRODUCTS = 85  # with a large layer's Hessian until its leading directions have converged
EIGH = 25.0  # operations of an eigendecomposition, in cubes of the side
SECOND = 6.0  # operations of a second derivative, in those of a forward pass
FORMED = 64.0  # operations of a gradient without a closed form, in those of a forward pass through its layer
UNROLLED = 3.0  # … and of one of recurrent layers, in those of a forward pass: small products use few threads
PAIRED = 10_000  # test samples, at most, that have a partner
PROJECTED = 8.0  # operations of a pair's projections on a complete basis, in squares of the layer's weights
OVERHEAD = 2.0  # of what is not counted: copies, small matrices, intervals
TOKEN_SHARE = 16  # a column over tokens takes about so many times the memory and time of a plain one
RESAMPLED = 2000.0  # operations of a sample in one bootstrap draw: it waits for memory
OF_A_CLASS = 30  # samples, whose resampling a class's own numbers are worth
SIGNED = 40  # scores, at most, whose backward passes a sampled form takes one by one
DRAWS, DRAWN = 64, 1800.0  # of random signs, and what one takes for each weight over tokens: its gradient is read often


@dataclass(frozen=True)
class LayerSizes:
    """A dense layer, in numbers."""

    in_features: int
    out_features: int
    tokens: int  # vectors per sample
    cut_point: bool  # whether all paths to the output run through it

    @property
    def weights(self) -> int:
        """In its matrix."""
        return self.in_features * self.out_features


@dataclass(frozen=True)
class Workload:
    """What an audit is about, in numbers."""

    samples: int  # n, train
    tests: int
    outputs: int  # C
    operations: float  # F, of one sample's forward pass
    numbers: float  # that it writes on its way
    behind: float  # of the operations, those from the first dense layer on
    layers: Sequence[LayerSizes]
    curved: bool  # whether the network may be curved behind a layer
    beyond: int  # parameters outside the dense layers …
    formed: float  # … and the share of all parameters that has no closed form for its gradients
    input_numbers: int  # of one sample; 0 where it has no derivative
    convolves: bool
    tagging: bool = False  # whether the scores are those of many positions
    recurrent: bool = False  # whether recurrent layers hold parameters

    @property
    def gradient(self) -> float:
        """Operations that forming the gradients of one sample takes, beside an ordinary backward pass."""
        return (FORMED * self.formed + UNROLLED * self.recurrent) * self.operations

    @property
    def weights(self) -> int:
        """In the dense layers."""
        return sum(layer.weights for layer in self.layers)

    @property
    def weights_over_tokens(self) -> int:
        """In those of them whose gradients have to be formed: of one vector per sample, its factors tell all."""
        return sum(layer.weights for layer in self.layers if layer.tokens > 1)

    @property
    def widths(self) -> int:
        """Numbers in and out of the dense layers for one sample."""
        return sum(layer.tokens * (layer.in_features + layer.out_features) for layer in self.layers)


@dataclass(frozen=True)
class Sampled:
    """How a measure is done where it can look at some train samples only."""

    share: float  # of the budget, that it may take
    least: int  # samples, a power of two
    most: int
    each: Callable[[Workload], float]  # operations of one sample


def intervals_alone(_stage: PlannedStage, _work: Workload, settings: Settings, _size: int) -> float:
    """Bytes of a measure that keeps little but the draws of an interval."""
    return 8 * settings.bootstrap


@dataclass(frozen=True)
class Demand:
    """What a measure takes, and in which forms it can be done; operations are those before what is not counted."""

    operations: Callable[[Workload, Settings], float] | None = None  # on all samples; None where it is planned alone
    runs_network: bool = True  # or works at its records; else at samples and answers alone, however many there are
    sampled: Sampled | None = None  # None: only on all samples, but for what `rests_on` says
    columns: bool = False  # whether its sampled form finds the columns of each layer's Hessian, too
    beside: Callable[[PlannedStage, Workload], float] | None = None  # of a sampled form, whatever its samples
    alone: Callable[[Workload, float | None, float], PlannedStage] | None = None  # by budget and speed; no other minds
    bytes: Callable[[PlannedStage, Workload, Settings, int], float] = intervals_alone  # `size`: of a network's number
    turns: float = 1.0  # of the memory, where what it holds can be done in several turns
    rests_on: str = ""  # the measure in whose form, and right after which, it is done
    quick: bool = True  # whether a quick audit has it, too
    why_not: Callable[[Workload], str | None] = lambda _work: None  # why it is left out of an audit


TOO_LONG = "all samples would take about {exact}, more than --budget leaves"


def power_of_two(value: float) -> int:
    """The largest power of two that is no larger.

    >>> power_of_two(100.0), power_of_two(0.3)
    (64, 1)
    """
    return 1 << max(0, min(int(min(value, 2.0**40)), 1 << 40).bit_length() - 1)


# What several measures take in the same way.


def resampling(work: Workload, settings: Settings) -> float:
    """Operations of the intervals of both splits' answers, overall and by class."""
    return RESAMPLED * settings.bootstrap * (work.tests + OF_A_CLASS * work.outputs)


def curvature_operations(work: Workload) -> float:
    """Of all layers' exact Hessians, and of the backward passes behind them."""
    backward = work.samples * work.outputs * BACKWARD * work.behind
    return backward + sum(_layer_operations(layer, work) for layer in work.layers)


def _layer_operations(layer: LayerSizes, work: Workload) -> float:
    """What the Hessian of one layer takes, beyond the backward passes."""
    n, C, T = work.samples, work.outputs, layer.tokens
    jacobian = 2 * n * C * T * (layer.weights + C * layer.out_features)
    units = n * T * layer.out_features if work.curved else 0
    if layer.weights <= DENSE_LIMIT:
        hessian = 2.0 * n * C * layer.weights**2 * (T > 1) + EIGH * layer.weights**3
        projections = PROJECTED * min(work.tests, PAIRED) * layer.weights**2
        return jacobian + hessian + projections + units * SECOND * work.behind
    product = n * T * 4 * (layer.weights + C * layer.out_features) + (n * SECOND * work.behind if work.curved else 0)
    return jacobian + PRODUCTS * product + min(units, 1e5) * SECOND * work.behind


def curvature_bytes(work: Workload, settings: Settings) -> int:
    """Memory of the exact curvature: the basis of an iteration over the largest layer, and one sample's Jacobians."""
    weights = max(layer.weights for layer in work.layers)
    iteration = 3 * settings.directions * weights if weights > DENSE_LIMIT else 3 * weights**2
    return 8 * (iteration + 4 * work.outputs * work.widths)


def column_bytes(columns: int, work: Workload, size: int) -> int:
    """Of one layer's Hessian, at most, and of their Gram matrix with what an iteration keeps beside it."""
    return max(_layer_column_bytes(layer, columns, size) for layer in work.layers)


def _layer_column_bytes(layer: LayerSizes, columns: int, size: int) -> int:
    own = columns if layer.tokens == 1 else columns // TOKEN_SHARE
    return 8 * 3 * own**2 + size * own * layer.tokens * (layer.in_features + layer.out_features)


def planned_bytes(demand: Demand, stage: PlannedStage, work: Workload, settings: Settings, size: int) -> int:
    """What a stage holds at most, roughly: what it keeps of its samples, and a chunk of them on the way.

    `size`: bytes of a number that the network computes.
    """
    return 0 if stage.form == "skipped" else int(CHUNK_BYTES + demand.bytes(stage, work, settings, size))
