"""Where does the gap come from? Activity–weight duality: the gap as a sum over directions in a layer's weights.

Exchanging a train sample x for a test sample x′ does to a dense layer's answer exactly what a change ΔW of its weights
does to x. Each test sample thus becomes a step in weight space, and the gap a sum over the Hessian's eigenvectors of
how steep the loss is along each (sharpness, σ_g) times how far the samples reach along it (size, σ_w). For a
convolution, which acts on many patches at once, ΔW is the least-squares fit, and how far it is off is measured.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from audit.maths.decompositions import norm
from audit.measures.contract import Audit, Measure, Measurement
from audit.measures.duality import DEMAND, walked
from audit.measures.duality.basis import Basis, column_basis, hessian_basis
from audit.measures.duality.block import DualityBlock
from audit.measures.duality.card import CARDS
from audit.measures.duality.decompose import Decomposition, decompose
from audit.measures.duality.layer_pairs import Duals, LayerPairs, measure_pairs
from audit.measures.duality.pairs import Nearest, Pairs, asked_for, nearest_partners
from audit.measures.duality.report_blocks import (
    NO_PAIRS,
    approximation,
    class_names,
    filled,
    gap_over_pairs,
    is_fitted,
    why_not_dual,
    with_residuals,
)
from audit.measures.duality.uncertainty import Evidence, split_intervals
from audit.measures.duality.widths import (
    SAMPLES,
    SAMPLES_OF_CONVOLUTIONS,
    LayerActivations,
    Lines,
    flatness_widths,
    spaced,
)
from audit.measures.workload import Demand
from audit.network import DenseLayer
from audit.network.loss import SquaredError, TokenCrossEntropy
from audit.network.record import LayerProducts, LayerRecord, Products, Record
from audit.network.second_derivatives import residual_trace
from audit.report.fields import Card

SAME_LABEL = "the nearest train sample with the same label (Euclidean; of equally near ones the first)"
ANY_LABEL = "the nearest train sample, whatever its target (Euclidean; of equally near ones the first)"
ANY_TAGS = "the nearest train sample, whatever its positions' labels (Euclidean; of equally near ones the first)"

CHECKED = 64  # pairs that the duality is checked on where all would take too long …
TRIED = 16  # … and those that show, before any other work, that a layer has none
TIED = (
    "its weights are also those of {others}, so the loss is curved by them in both places at once; sampled columns "
    "show no Hessian of this use alone"
)
ALL_ZERO = "every train partner reaches this layer as the zero vector: no weight acts on it"


class Duality:
    """The A-W decomposition."""

    key = "duality"
    question = "Where does the gap come from: few sharp directions of the weights, or many flat ones?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> DualityFold:
        """Finds the partners, where they are looked for among the inputs."""
        return DualityFold(audit)


MEASURE: Measure = Duality()


class DualityFold:
    """The decomposition at work."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._sampled = None if audit.plan.is_exact("duality") else audit.sampled
        self._labelled = audit.loss.class_per_sample
        self._asked = asked_for(len(audit.test), audit.settings.seed)
        self._features: dict[str, Nearest] | None = None
        self._partner: Tensor | None = None
        if audit.settings.partner_space == "features":
            device = next(audit.network.parameters()).device
            self._features = {layer.name: Nearest(len(audit.test), device) for layer in audit.layers}
        else:
            test, train = audit.test, audit.train
            some = slice(None) if len(self._asked) == len(test) else self._asked  # of all, no copy
            self._partner = nearest_partners(self._sided(test.x[some], test.y[some]), self._sided(train.x, train.y))
        self._traces = {layer.name: 0.0 for layer in audit.layers if audit.spectra.may_be_incomplete(layer)}
        self._evidence: dict[str, Evidence] = {}
        self._curvature = {layer.name: "hessian" for layer in audit.layers}
        if self._sampled is not None:
            self._curvature |= dict.fromkeys(self._sampled.residuals.curved, "gauss-newton")
        self._too_curved: dict[str, str] = {}
        self._activations: LayerActivations | None = None
        self._curved: set[str] = set()  # layers with a curved network behind them

    def see(self, record: Record, products: Products) -> None:
        """Adds to the traces of layers that may have no complete basis, and looks for partners among features."""
        for name, layer in record.layers.items():
            if (why := too_curved(layer)) is not None:
                self._too_curved[name] = why
            elif name in self._traces:
                self._traces[name] += gauss_newton_trace(products.layers[name])
                self._curved |= {name} if layer.residual_times is not None else set()
            if layer.curvature != "exact":
                self._curvature[name] = layer.curvature
        if self._features is None:
            return
        for test in self._audit.test:
            for name, found in self._features.items():
                x_test, x = (part.layers[name].x.flatten(1) for part in (test, record))
                found.offer(test.start, self._sided(x_test, test.y), record.start, self._sided(x, record.y))

    def finish(self) -> Measurement:
        """Decomposes layer by layer."""
        if self._partner is not None:
            pairs = Pairs(self._audit, self._partner.cpu(), self._asked)
            blocks = {layer.name: self._block(layer, pairs) for layer in self._audit.layers}
            return Measurement(self._with_intervals(blocks), gap_over_pairs(self._audit, pairs))
        assert self._features is not None
        blocks = {}
        for layer in self._audit.layers:
            pairs = Pairs(self._audit, self._features[layer.name].index.cpu()[self._asked], self._asked)
            blocks[layer.name] = replace(self._block(layer, pairs), carriers=gap_over_pairs(self._audit, pairs))
        return Measurement(self._with_intervals(blocks))

    def _with_intervals(self, blocks: dict[str, DualityBlock]) -> dict[str, DualityBlock]:
        found = split_intervals(list(self._evidence.values()), self._audit.bootstrap)
        intervals = dict(zip(self._evidence, found, strict=True))
        return {name: replace(block, ci95=intervals.get(name, block.ci95)) for name, block in blocks.items()}

    @property
    def _partner_rule(self) -> str:
        if self._labelled:
            return SAME_LABEL
        return ANY_TAGS if isinstance(self._audit.loss, TokenCrossEntropy) else ANY_LABEL

    def _sided(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        return x, y if self._labelled else None

    def _block(self, layer: DenseLayer, pairs: Pairs) -> DualityBlock:
        """The layer's block; where there is none, the sentence why."""
        nothing = DualityBlock(
            asked=len(pairs.asked),
            pairs=len(pairs),
            unpaired=pairs.unpaired,
            dropped=0,
            space=self._audit.settings.partner_space,
            partner_rule=self._partner_rule,
            max_residual=None,
            dual_residual=None,
            basis=self._curvature[layer.name],
        )
        if not len(pairs):
            return replace(nothing, skipped=NO_PAIRS)
        too_large = self._too_curved.get(layer.name) or too_many_patches(layer, len(pairs))
        if too_large is not None:
            return replace(nothing, skipped=too_large)
        if self._sampled is not None and layer.tied_with:
            return replace(nothing, skipped=TIED.format(others=", ".join(layer.tied_with)))
        if self._sampled is not None and (why := self._not_dual(layer, pairs)) is not None:
            return replace(nothing, skipped=why)
        duals = Duals(pairs, layer)
        numbers = measure_pairs(duals, CHECKED if self._audit.plan.samples_some else None)
        used = int(numbers.alive.sum())
        checked = replace(nothing, pairs=used, dropped=len(pairs) - used)
        if not used:
            return replace(checked, skipped=ALL_ZERO)
        checked = with_residuals(checked, numbers)
        if not numbers.max_residual <= numbers.tolerance:
            if not is_fitted(layer, numbers):
                return replace(checked, skipped=why_not_dual(layer, numbers))
            checked = replace(checked, approximate=True, approximation=approximation(numbers))
        return self._decomposed(checked, duals, numbers)

    def _not_dual(self, layer: DenseLayer, pairs: Pairs) -> str | None:
        """Seen on a few pairs, before all are run: why the layer has no duality.

        One that something leads round has none, also where it moves the loss too little for that to be seen.
        """
        numbers = measure_pairs(Duals(pairs.first(TRIED), layer))
        holds = not bool(numbers.alive.any()) or numbers.max_residual <= numbers.tolerance or is_fitted(layer, numbers)
        return None if holds and layer.cut_point else why_not_dual(layer, numbers)

    def _decomposed(self, block: DualityBlock, duals: Duals, numbers: LayerPairs) -> DualityBlock:
        settings, layer = self._audit.settings, duals.layer
        basis = self._basis(layer)
        classes = None if isinstance(self._audit.loss, SquaredError) else len(class_names(self._audit))
        found = decompose(duals, numbers, basis, settings.widths, classes)
        self._evidence[layer.name] = found.evidence
        trace = self._trace(layer) if basis.trace is None else basis.trace
        block = replace(filled(block, numbers, basis, found), trace_hessian=trace)
        if self._sampled is not None:
            pairs = self._sampled.pairs(layer)
            block = replace(block, form="sampled", columns=pairs.count, eigenvalues_dropped=pairs.dropped)
        return self._with_widths(block, duals, found)

    def _basis(self, layer: DenseLayer) -> Basis:
        if self._sampled is None:
            return hessian_basis(self._audit.spectra.leading(layer))
        return column_basis(self._sampled.pairs(layer))

    def _trace(self, layer: DenseLayer) -> float:
        if self._sampled is not None:
            return float(self._sampled.sums.layers[layer.name].trace.value)
        rest = residual_trace_of(self._audit, layer.name) if layer.name in self._curved else 0.0
        return (self._traces[layer.name] + rest) / len(self._audit.train)

    def _with_widths(self, block: DualityBlock, duals: Duals, found: Decomposition) -> DualityBlock:
        directions = found.projections.leading
        if not len(directions):
            return block
        activations = self._activations_at(duals.layer, duals.pairs)
        lines = Lines(activations, duals.layer)
        curvatures = found.projections.values[: len(directions)].tolist()
        widths = flatness_widths(lines, directions, curvatures, norm(duals.W))
        return replace(block, widths=widths, width_samples=len(activations.x))

    def _activations_at(self, layer: DenseLayer, pairs: Pairs) -> LayerActivations:
        """The samples that widths are found on; all layers but convolutions share one run over them."""
        if layer.patches is None and self._activations is not None:
            return self._activations
        train = self._audit.train
        most = SAMPLES if self._sampled is None else walked(self._audit.plan.operations)
        rows = spaced(len(train), most if layer.patches is None else min(most, SAMPLES_OF_CONVOLUTIONS))
        layers = [each for each in self._audit.layers if each.patches is None]
        activations = LayerActivations(pairs.capture, layers, train.x[rows], train.y[rows], pairs.room)
        if layer.patches is None:
            self._activations = activations
        return activations


# Layers whose decomposition would take too long, each with its sentence.


MOST_WORK = 2e10  # multiplications in the pseudo-inverses of all pairs, up to a constant: some minutes
MOST_PASSES = 1024  # second derivatives of the network for one Hessian of a convolution


def too_many_patches(layer: DenseLayer, pairs: int) -> str | None:
    """Why the dual weights of a convolution are not looked for; None where they are."""
    if layer.patches is None:
        return None
    if pairs * layer.tokens * layer.in_features * min(layer.tokens, layer.in_features) <= MOST_WORK:
        return None
    return (
        f"a convolution whose dual weights take too long: {layer.tokens:,} patches of {layer.in_features:,} numbers "
        f"for each of {pairs:,} pairs; lower --test-samples"
    )


def too_curved(record: LayerRecord) -> str | None:
    """Why the Hessian of a convolution is not looked for; None where it is."""
    layer = record.layer
    passes = layer.out_features * min(layer.tokens, layer.in_features)
    if layer.patches is None or record.residual_times is None or passes <= MOST_PASSES:
        return None
    return (
        f"a convolution with a curved network behind it: its Hessian takes {passes:,} second derivatives of every "
        f"train sample, more than the {MOST_PASSES:,} that are tried"
    )


# Tr H of a layer too large for a complete basis: Σ_tt′ (x_t·x_t′) tr S^{tt′} with S = Aᵀ A + R, over all samples.
# The Gauss–Newton part comes with the capture pass. What R adds takes second derivatives, so it is asked for only where
# a layer is really decomposed; it is exact or estimated as in the flatness measures, from the same random signs.


def gauss_newton_trace(products: LayerProducts) -> float:
    """What Aᵀ A gives, summed over the record's samples."""
    record, layer, name = products.record, products.layer, products.layer.layer.name
    x = layer.x.double()
    _, T, out = layer.z.shape
    if T == 1:
        return float(x.square().sum((1, 2)) @ products.gauss_newton_diagonal.sum(1))
    if out < T:
        return sum(float(G.square().sum()) for G in record.gauss_newton_weight_root(name))
    rows = record.gauss_newton_root(name).transpose(1, 2).flatten(2)  # A [n, C, T, out] → [n, T, C·out]
    return float(((x @ x.mT) * (rows @ rows.mT)).sum())


def residual_trace_of(audit: Audit, name: str) -> float:
    """What R adds, summed over all train samples."""
    n, seed = len(audit.train), audit.settings.seed
    return sum(float(residual_trace(record.layers[name], n, record.start, seed).sum()) for record in audit.train)
