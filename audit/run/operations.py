"""What each stage of an audit takes on all samples: operations, seconds where no network is run, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.curvature import DENSE_LIMIT
from audit.maths.blocks import CHUNK_BYTES, HELD
from audit.network import DenseLayer
from audit.network.cost import Cost
from audit.report.conduct import PlannedStage
from audit.settings import Settings

BACKWARD = 2.0  # operations of a backward pass, in those of a forward pass
PRODUCTS = 85  # with a large layer's Hessian until its leading directions have converged
EIGH = 25.0  # operations of an eigendecomposition, in cubes of the side
SECOND = 6.0  # operations of a second derivative, in those of a forward pass
FORMED = 64.0  # operations of a gradient without a closed form, in those of a forward pass through its layer
UNROLLED = 3.0  # … and of one of recurrent layers, in those of a forward pass: small products use few threads
PAIRED = 10_000  # test samples, at most, that have a partner
PAIRS = 200  # forward passes that show whether one layer has a duality
PROJECTED = 8.0  # operations of a pair's projections on a complete basis, in squares of the layer's weights
REPEATED = 1000  # forward passes of the self-checks, in both precisions
CHECKED = 64  # samples that the exact self-checks look at
PARITY = 200  # passes of one sample that show the network to be that of its file
OVERHEAD = 2.0  # of what is not counted: copies, small matrices, intervals
TOKEN_SHARE = 16  # a column over tokens takes about so many times the memory and time of a plain one
VOTERS = 10_000  # train samples, at most, that are left out of their own vote
SPACES = 2  # that neighbours are looked for in
SIFTED = 700.0  # operations of looking at one distance
RESAMPLED = 4000.0  # operations of a sample in one bootstrap draw: it waits for memory
OF_A_CLASS = 30  # samples, whose resampling a class's own numbers are worth


@dataclass(frozen=True)
class Workload:
    """What an audit is about, in numbers."""

    samples: int  # n, train
    tests: int
    outputs: int  # C
    cost: Cost  # of one sample's forward pass
    layers: Sequence[DenseLayer]
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
        return (FORMED * self.formed + UNROLLED * self.recurrent) * self.cost.operations


def exact_operations(work: Workload, settings: Settings) -> dict[str, float]:
    """Each stage that runs the network or works at its records, on all samples."""
    n, C, F = work.samples, work.outputs, work.cost.operations
    layers = n * C * BACKWARD * work.cost.behind + sum(_layer_operations(layer, work) for layer in work.layers)
    inside = n * C * BACKWARD * (F if work.input_numbers else work.cost.behind)
    algebra = n * (2 * C * C * work.input_numbers + EIGH * C**3 * (1 + len(work.layers)))
    pool = min(n, settings.subsets * settings.subset_size)
    products = min(settings.subsets * settings.subset_size**2, pool**2)  # of the whole pool, where these are fewer
    grams = 2 * products * (work.beyond + _widths(work.layers))
    parts = {
        "forward": (PARITY + n + work.tests) * F,
        "flatness": layers,
        "duality": (2 * work.tests + PAIRS * len(work.layers)) * F,
        "fisher": pool * (BACKWARD * F + work.gradient) + grams,
        "sensitivity": inside + algebra + n * C * work.gradient,
        "checks": 4 * min(1.0, CHECKED / n) * layers + REPEATED * F,
    }
    return {name: OVERHEAD * operations for name, operations in parts.items()}


def without_network(work: Workload, settings: Settings, speed: float) -> list[PlannedStage]:
    """The stages that look at samples and answers alone: exact however many there are; `speed` in single precision."""
    n, m = work.samples, work.tests
    distances, resampled = n * (min(n, VOTERS) + m), settings.bootstrap * (m + OF_A_CLASS * work.outputs)
    operations = {
        "gap": RESAMPLED * resampled,
        "calibration": RESAMPLED * resampled,
        "hygiene": OVERHEAD * distances * (2 * SPACES * work.input_numbers + SPACES * SIFTED),
    }
    return [PlannedStage(name=name, seconds=each / speed) for name, each in operations.items()]


def stage_bytes(stage: PlannedStage, work: Workload, settings: Settings, size: int) -> int:
    """What a stage holds at most, roughly: what it keeps of its samples, and a chunk of them on the way.

    `size`: bytes of a number that the network computes.
    """
    if stage.form == "skipped":
        return 0
    n, m, C = stage.samples or work.samples, work.tests, work.outputs
    widths = sum(layer.tokens * (layer.in_features + layer.out_features) for layer in work.layers)
    records = 8 * n * C * sum(layer.tokens * layer.out_features for layer in work.layers)
    columns = max(_column_bytes(layer, stage.columns, size) for layer in work.layers)
    gradients = widths + min(work.beyond, int(2 * work.cost.numbers))  # of a sample, or their factors
    pairs = 8 * min(m, PAIRED) * (settings.directions + widths)
    kept = {
        "forward": 8 * (work.samples + m) * C,
        "flatness": columns if stage.columns else exact_bytes(work, settings) + records,
        "duality": columns + pairs,
        "fisher": size * min(n, settings.subsets * settings.subset_size) * gradients,
        "sensitivity": 8 * C * (work.input_numbers + C),
        "hygiene": 8 * HELD + 4 * (work.samples + m) * work.input_numbers,
    }
    return int(CHUNK_BYTES + kept.get(stage.name, 8 * settings.bootstrap))


def _column_bytes(layer: DenseLayer, columns: int, size: int) -> int:
    """The columns of a layer's Hessian, and their Gram matrix with what an iteration keeps beside it."""
    own = columns if layer.tokens == 1 else columns // TOKEN_SHARE
    return 8 * 3 * own**2 + size * own * layer.tokens * (layer.in_features + layer.out_features)


def exact_bytes(work: Workload, settings: Settings) -> int:
    """Memory of the exact curvature: the basis of an iteration over the largest layer, and one sample's Jacobians."""
    weights = max(layer.in_features * layer.out_features for layer in work.layers)
    iteration = 3 * settings.directions * weights if weights > DENSE_LIMIT else 3 * weights**2
    jacobians = work.outputs * sum(layer.tokens * (layer.out_features + layer.in_features) for layer in work.layers)
    return 8 * (iteration + 4 * jacobians)


def _layer_operations(layer: DenseLayer, work: Workload) -> float:
    """What the Hessian of one layer takes, beyond the backward passes."""
    n, C, T = work.samples, work.outputs, layer.tokens
    weights = layer.in_features * layer.out_features
    jacobian = 2 * n * C * T * (weights + C * layer.out_features)
    units = n * T * layer.out_features if work.curved else 0
    if weights <= DENSE_LIMIT:
        hessian = 2.0 * n * C * weights**2 * (T > 1) + EIGH * weights**3
        projections = PROJECTED * min(work.tests, PAIRED) * weights**2
        return jacobian + hessian + projections + units * SECOND * work.cost.behind
    product = n * T * 4 * (weights + C * layer.out_features) + (n * SECOND * work.cost.behind if work.curved else 0)
    return jacobian + PRODUCTS * product + min(units, 1e5) * SECOND * work.cost.behind


def _widths(layers: Sequence[DenseLayer]) -> int:
    """Numbers that the gradients' Gram matrices of the dense layers are made of."""
    return sum(
        layer.in_features + layer.out_features if layer.tokens == 1 else layer.in_features * layer.out_features
        for layer in layers
    )
