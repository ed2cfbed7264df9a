"""What the activity–weight decomposition reports of a layer, and of the pairs that it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field

from audit.report.fields import Interval, says


@dataclass(frozen=True, kw_only=True)
class SharpPart:
    """What the sharp directions contribute."""

    count: int
    contribution: float
    share: float | None = says("of the directions' sum; null where that sum is not positive")
    elbow: bool = says("whether sigma_g really drops behind them; if not, they hold half of its variance")
    ratio: float | None = says("sigma_g of the last sharp direction over that of the next")
    variance_share: float | None = says("how much of the variance of the effective gradients they hold")
    note: str | None = says("how the count came about, where it was not an elbow", default=None)


@dataclass(frozen=True, kw_only=True)
class FlatPart:
    """What all other directions contribute, those beyond the kept ones included."""

    contribution: float
    share: float | None


@dataclass(frozen=True, kw_only=True)
class FixedSplit:
    """The split at a fixed count, the number of classes: the one to compare models by."""

    count: int
    contribution: float
    share: float | None
    contribution_std: float | None = says("standard error over pairs, with the directions held fixed", default=None)
    share_std: float | None = says("standard error over pairs, with the directions held fixed", default=None)


@dataclass(frozen=True, kw_only=True)
class Remainder:
    """What lies beyond the kept directions, exact, as one lump."""

    directions: int
    contribution: float
    sigma_g: float = says("root of the variance of the effective gradients outside the kept directions")
    sigma_w: float = says("the same of the dual weights")
    contribution_std: float | None = says("standard error over pairs", default=None)
    sigma_g_std: float | None = None
    sigma_w_std: float | None = None


@dataclass(frozen=True, kw_only=True)
class Width:
    """How far the weights can move along one direction before the train loss has doubled."""

    direction: int = says("its place in the order of sigma_g, from 1")
    lower: float | None = says("where the loss first doubles, away from where the test samples lie in the mean")
    upper: float | None = says("where it first doubles on the way to them")
    width: float | None = says("F_n: from the one to the other")
    lower_std: float | None = says("standard error over train samples, with the direction held fixed", default=None)
    upper_std: float | None = says("standard error over train samples", default=None)
    width_std: float | None = says("standard error over train samples", default=None)
    skipped: str | None = says("why there is no width", default=None)


@dataclass(frozen=True, kw_only=True)
class DualityIntervals:
    """95 % bootstrap intervals over pairs, directions and border held fixed; null of fewer than ten pairs."""

    gap: Interval = None
    sharp_contribution: Interval = None
    flat_contribution: Interval = None
    sharp_share: Interval = says("null where the directions' sum is not clearly positive", default=None)
    flat_share: Interval = None


@dataclass(frozen=True, kw_only=True)
class SampleGap:
    """A test sample and its train partner."""

    index: int = says("position in the test split as stored")
    partner: int = says("position in the train split as stored")
    label: str | None = says("of both; null for regression")
    prediction: str | None = says("for the test sample")
    partner_prediction: str | None = says("for the train partner")
    test_loss: float = says("loss of the test sample")
    partner_loss: float = says("loss of the train partner")
    gap: float = says("the first minus the second")


@dataclass(frozen=True, kw_only=True)
class ClassShare:
    """What one class adds to the gap over pairs."""

    name: str = says("of the class")
    pairs: int = says("its test samples that have a train partner")
    unpaired: int = says("its test samples that have none")
    contribution: float = says("sum of its pairs' gaps over the number of all pairs: the classes add up to the gap")
    share: float | None = says("of the gap; null where the gap is not positive")
    mean_gap: float | None = says("mean over its own pairs")
    contribution_ci95: Interval = says("bootstrap over pairs", default=None)
    share_ci95: Interval = says("bootstrap over pairs; null where the gap is not clearly positive", default=None)
    mean_gap_ci95: Interval = says("bootstrap over pairs", default=None)


@dataclass(frozen=True, kw_only=True)
class GapOverPairs:
    """Which test samples and which classes carry the gap over pairs."""

    asked: int | None = says(
        "test samples that a partner was looked for: all of them, or 10,000 drawn at random", default=None
    )
    pairs: int = says("test samples with a train partner")
    unpaired: int = says("test samples without a train sample of their label")
    gap: float | None = says("mean of l(test) - l(its train partner) over the pairs")
    samples: list[SampleGap] = says("the pairs with the largest gap, largest first")
    samples_share: float | None = says("of the gap, in the samples listed; null where the gap is not positive")
    classes: list[ClassShare] | None = says("null for regression")
    gap_ci95: Interval = says("bootstrap over pairs", default=None)
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class DualityBlock:
    """The gap of a layer's pairs, split along the eigenvectors of its Hessian."""

    asked: int | None = says(
        "test samples that a partner was looked for: all of them, or 10,000 drawn at random", default=None
    )
    pairs: int = says("test samples with a train partner that reaches the layer")
    unpaired: int = says("test samples without a train sample of their label")
    dropped: int = says("pairs whose train partner reaches the layer as the zero vector: no weight can act on it")
    space: str = says("where partners were looked for: input, or features (the layer's own input)")
    partner_rule: str = says("which train sample is a test sample's partner")
    max_residual: float | None = says("max |l(w*, x) - l(w, x')|: the duality checked on this model")
    tolerance: float | None = says("what max_residual is held against: 1e-9 of the largest loss or of 1", default=None)
    dual_residual: float | None = says("largest relative error of W* X = W X'; rounding, unless tokens depend")
    mean_residual: float | None = says("mean of |l(w*, x) - l(w, x')| over the pairs", default=None)
    relative_residual: float | None = says("the same, over the mean |l(w, x') - l(w, x)| of a pair", default=None)
    approximate: bool = says("true where the dual weights are a least-squares fit, not an equality", default=False)
    approximation: str | None = says("what that means for the numbers below", default=None)
    gap: float | None = says("mean of l(test) - l(its train partner): the sum below, by construction", default=None)
    basis: str = says("hessian, or gauss-newton where second derivatives do not exist", default="hessian")
    basis_complete: bool | None = says("whether all directions are kept, or the leading ones only", default=None)
    basis_residual: float | None = says("largest |H e - λ e| over the largest eigenvalue", default=None)
    basis_orthonormality: float | None = says("largest entry of |E Eᵀ - 1|, E the directions as rows", default=None)
    directions: int | None = says("directions kept", default=None)
    form: str = says("exact: of the Hessian over all train samples; sampled: over some of its columns", default="exact")
    columns: int | None = says("columns of the Hessian's root behind sampled directions", default=None)
    eigenvalues_dropped: float | None = says(
        "trace of the columns left out: no eigenvalue of the whole Hessian is larger than those here by more",
        default=None,
    )
    eigenvalues: list[float] = says("of the Hessian, in the order of sigma_g", default_factory=list)
    sigma_g: list[float] = says("sharpness: deviation of the effective gradients by direction", default_factory=list)
    sigma_w: list[float] = says("size: deviation of the dual weights by direction", default_factory=list)
    sigma_g_std: list[float] = says("standard errors over pairs, with the directions held fixed", default_factory=list)
    sigma_w_std: list[float] = says("the same of sigma_w", default_factory=list)
    cumulative_w: list[float] = says("S_w: running sum of sigma_w", default_factory=list)
    cumulative_w_std: list[float] = says("standard errors over pairs", default_factory=list)
    c: list[float | None] = says("correlation of the two; null where one does not vary", default_factory=list)
    c_std: list[float | None] = says("standard errors over pairs", default_factory=list)
    contribution: list[float] = says("covariance of the two: the direction's part of the gap", default_factory=list)
    contribution_std: list[float] = says("standard errors over pairs", default_factory=list)
    mean_term: float | None = says("sum of mu_g mu_w over all directions", default=None)
    mean_term_std: float | None = says("standard error over pairs", default=None)
    target_term: float | None = says(
        "part of the gap that no change of weights stands for: pairs with equal inputs but different targets",
        default=None,
    )
    target_term_std: float | None = says("standard error over pairs", default=None)
    sharp: SharpPart | None = None
    flat: FlatPart | None = None
    fixed: FixedSplit | None = says("split at the number of classes; null for regression", default=None)
    remainder: Remainder | None = None
    total_g: float | None = says("T_g: variance of the effective gradients over all directions", default=None)
    total_g_std: float | None = says("standard error over pairs", default=None)
    total_w: float | None = says("T_w: variance of the dual weights over all directions", default=None)
    total_w_std: float | None = says("standard error over pairs", default=None)
    total_w_second_moment: float | None = says("Eq. 12: T_w plus the squared mean", default=None)
    total_w_second_moment_std: float | None = says("standard error over pairs", default=None)
    trace_hessian: float | None = says("T_h; its interval is flatness.trace_ci95", default=None)
    widths: list[Width] = field(default_factory=list)
    width_samples: int | None = says("train samples that the widths were found on", default=None)
    ci95: DualityIntervals = field(default_factory=DualityIntervals)
    carriers: GapOverPairs | None = says("only where partners are looked for in feature space", default=None)
    share_skipped: str | None = says("why the shares are null", default=None)
    skipped: str | None = says("why the layer has no decomposition", default=None)
