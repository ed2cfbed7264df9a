"""How well the theory's numbers foretold what was measured; both on train samples.

To first order a change δ moves the scores by J δ, to second order, where the loss has no slope, it costs ½ δᵀ H δ:
  input-noise      E‖J δ‖, δ = ε s ξ, lies between √(2/π) ε s ‖J‖₂ and √min(C, d) ε s ‖J‖₂; MLS = mean ‖J‖₂
  input-worst      ‖J δ‖ ≤ ε s √d ‖J‖₂
  weights-rounded  √E‖J δ‖² = √(S/P) ‖δ‖, were the rounding errors spread at random over all P parameters
  weights-noise    E ½ δᵀ H δ = ½ ε² ‖W‖² Tr H / (in·out) = ½ ε² κ_τ / (in·out); no change costs more than ½ ε² κ
  neurons-noise    E ½ Σ_j ε² ξ_j² w_jᵀ H_jj w_j = ½ ε² ρ_σ
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from audit.maths.resample import TRAIN, Bootstrap
from audit.measures.consequences.block import Consequence, Consequences, Kind, Quantity, Theory, Verdict
from audit.measures.consequences.samples import Effect, Means
from audit.report.paths import Found

At = Callable[[str], Found]
"""What a report says at a path."""

ABOUT: dict[Kind, tuple[str, Quantity]] = {
    "input-noise": ("network.sensitivity.mls", "score_change"),
    "input-worst": ("network.sensitivity.mls", "score_change"),
    "weights-rounded": ("network.sensitivity.sharpness", "score_change_rms"),
    "weights-noise": ("layers.{layer}.flatness.kappa_tau", "loss_change"),
    "neurons-noise": ("layers.{layer}.flatness.rho_sigma", "loss_change"),
}
CLOSE = 2.0  # a factor to either side of what the theory allows, within which it is said to have foretold it
LEAST = math.sqrt(2 / math.pi)  # mean size of a standard normal
OWN_UNITS = "the sensitivity counts every number of the input in one unit, and these have units of their own"
NOT_POSITIVE = "the number is not above zero, so that it foretells no size"
TINY = 1e-100  # a size that is rounding alone; ratios to it overflow


def theory_of(kind: Kind, layer: str | None, effect: Effect, bootstrap: Bootstrap) -> Theory:
    """What was measured of the quantity that the theory speaks of; what it foretold follows by `foretell`."""
    number, quantity = ABOUT[kind]
    values = effect.loss_differences() if quantity == "loss_change" else effect.score_differences()
    squares = quantity == "score_change_rms"
    means = Means([values**2 if squares else values], bootstrap, TRAIN)
    measured, ends = means.mean(0), means.ci95(0, effect.shared)
    if squares:
        measured, ends = math.sqrt(measured), ends and (math.sqrt(max(0.0, ends[0])), math.sqrt(max(0.0, ends[1])))
    return Theory(number=number.format(layer=layer), quantity=quantity, measured=measured, measured_ci95=ends)


@dataclass(frozen=True)
class Foretold:
    """What a number allows: `size` by its formula; from `least` to `most` counts as foretold."""

    size: float
    least: float
    most: float
    ceiling: float | None = None  # what is shown as the most


def foretell(block: Consequences, at: At) -> Consequences:
    """The block with what the other numbers of its report foretold."""
    return replace(block, changes=[replace(each, theory=_judged(each, block, at)) for each in block.changes])


def _judged(change: Consequence, block: Consequences, at: At) -> Theory | None:
    theory = change.theory
    if theory is None or (change.kind.startswith("input") and block.changed_place != "the input"):
        return None
    number = at(theory.number)
    if number.missing is not None:
        return replace(theory, skipped=number.missing)
    if change.kind.startswith("input") and block.spread is None:
        return replace(theory, skipped=OWN_UNITS)
    if number.value <= 0:
        return replace(theory, skipped=NOT_POSITIVE)
    allowed = FORMULAS[change.kind](number.value, change, block, at)
    if allowed.size < TINY:
        return replace(theory, skipped=NOT_POSITIVE)
    ends = theory.measured_ci95
    return replace(
        theory,
        foretold=allowed.size,
        foretold_most=allowed.ceiling,
        ratio=theory.measured / allowed.size,
        ratio_ci95=None if ends is None else (ends[0] / allowed.size, ends[1] / allowed.size),
        verdict=_verdict(allowed, theory.measured, *(ends or (theory.measured, theory.measured))),
    )


def _verdict(allowed: Foretold, measured: float, low: float, high: float) -> Verdict:
    least, most = allowed.least / CLOSE, allowed.most * CLOSE
    if high < least:
        return "less"
    if low > most:
        return "more"
    return "as foretold" if low > 0 and least <= measured <= most else "cannot tell"


def _noise(mls: float, change: Consequence, block: Consequences, at: At) -> Foretold:
    size = (change.size or 0.0) * (block.spread or 0.0) * mls
    most = math.sqrt(min(at("model.outputs").value, block.numbers)) * size
    return Foretold(size, LEAST * size, most, most)


def _worst(mls: float, change: Consequence, block: Consequences, at: At) -> Foretold:
    size = (change.size or 0.0) * (block.spread or 0.0) * math.sqrt(block.numbers) * mls
    return Foretold(size, size, size)


def _rounded(sharpness: float, change: Consequence, block: Consequences, at: At) -> Foretold:
    size = math.sqrt(sharpness / at("model.parameters").value) * block.rounding_norm
    return Foretold(size, size, size)


def _layer(kappa_tau: float, change: Consequence, block: Consequences, at: At) -> Foretold:
    wide, high, kappa = (
        at(f"layers.{change.layer}.{name}").value for name in ("in_features", "out_features", "flatness.kappa")
    )
    half = (change.size or 0.0) ** 2 / 2
    size = half * kappa_tau / (wide * high)
    return Foretold(size, size, size, None if kappa is None else half * kappa)


def _neurons(rho_sigma: float, change: Consequence, block: Consequences, at: At) -> Foretold:
    size = (change.size or 0.0) ** 2 / 2 * rho_sigma
    return Foretold(size, size, size)


FORMULAS = {
    "input-noise": _noise,
    "input-worst": _worst,
    "weights-rounded": _rounded,
    "weights-noise": _layer,
    "neurons-noise": _neurons,
}
