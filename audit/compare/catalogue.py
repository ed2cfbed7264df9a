"""Which numbers are compared, what they are called, and what a difference in them may be called."""

from __future__ import annotations

from dataclasses import dataclass

from audit.compare.result import BETTER, HIGHER, LOWER, NO_INTERVAL, NOT_COMPARED, SAME, UNKNOWN, WORSE, Number
from audit.fields import Interval


@dataclass(frozen=True)
class Entry:
    """One number of the report."""

    key: str
    name: str
    section: str
    kind: str = "number"
    judged: bool = False  # whether lower is better, without doubt
    of_weights: bool = False  # whether it runs over layers or weights, so that it needs the same ones on both sides


OBSERVED = (
    Entry("gap.test_error", "Wrong answers on test", "observed", "percent", judged=True),
    Entry("gap.test_loss", "Mean loss on test", "observed", judged=True),
    Entry("gap.train_error", "Wrong answers on train", "observed", "percent"),
    Entry("gap.train_loss", "Mean loss on train", "observed"),
    Entry("gap.error_gap", "Error gap: test minus train", "observed", "percent"),
    Entry("gap.loss_gap", "Loss gap: test minus train", "observed"),
)
INSIDE = (
    Entry("network.flatness.kappa_tau_sum", "Flatness κ_τ, all layers", "flatness", of_weights=True),
    Entry("network.flatness.kappa_sum", "Flatness κ, all layers", "flatness", of_weights=True),
    Entry("network.flatness.rho_sum", "Flatness ρ, all neurons", "flatness", of_weights=True),
    Entry("network.flatness.relative_flatness_sum", "Relative flatness, all layers", "flatness", of_weights=True),
    Entry("network.flatness.trace_sum", "Trace of the Hessian, all layers", "flatness", of_weights=True),
    Entry("network.flatness.lambda_max", "Largest eigenvalue of the Hessian", "flatness", of_weights=True),
    Entry("network.fisher.gamma", "Fisher log-determinant γ̂", "fisher", of_weights=True),
    Entry("network.fisher.robustness", "Slope of the probabilities", "fisher"),
    Entry("network.sensitivity.sharpness", "Sharpness S(θ) of the scores", "sensitivity", of_weights=True),
    Entry("network.sensitivity.mls", "Sensitivity to the input (MLS)", "sensitivity"),
    Entry("network.sensitivity.mean_log_volume_centred", "Local volume, logarithm", "sensitivity"),
    Entry("network.sensitivity.dimensionality", "Local dimensionality", "sensitivity"),
)
PRIMARY = {"classification": "gap.test_error", "binary": "gap.test_error", "regression": "gap.test_loss"}
"""The one number that the verdict rests on, by task; declared here, before any data are seen."""


def split_entry(layer: str) -> Entry:
    """The share of a layer's part in the gap that its C steepest directions carry, C the number of classes."""
    key = f"layers.{layer}.duality.fixed.share"
    return Entry(key, f"{layer}: share of the gap in its steepest directions", "duality", "share", of_weights=True)


def skipped(entry: Entry, why: str | None = None) -> Number:
    """A number that was not compared, or not yet."""
    return Number(
        key=entry.key,
        name=entry.name,
        section=entry.section,
        kind=entry.kind,
        old=None,
        new=None,
        difference=None,
        ci95=None,
        verdict=NOT_COMPARED,
        skipped=why,
    )


def verdict(entry: Entry, difference: float, ci95: Interval, identical: bool = False) -> str:
    """What may be said: better or worse where lower is better without doubt, else lower or higher."""
    if identical:
        return SAME
    if ci95 is None:
        return NO_INTERVAL
    if ci95[0] <= 0 <= ci95[1]:
        return UNKNOWN
    if difference > 0:
        return WORSE if entry.judged else HIGHER
    return BETTER if entry.judged else LOWER
