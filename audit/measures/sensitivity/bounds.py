"""The inequalities between sensitivity, volume and sharpness, both sides from per-sample numbers.

All rest on one step: ∇_x f = J W and ‖∇_W f‖_F = ‖J‖_F ‖x‖, so ‖J W‖ ≤ ‖W‖₂ ‖∇_W f‖_F / ‖x‖ for every sample. (The
middle terms that the paper prints in its Eqs. 5 and 6, without ‖W‖₂/‖x‖, are misprints.) With T tokens a sample,
σ_min(X) takes the place of ‖x‖. Where it is 0 the step says nothing: such pairs of layer and sample are left out of
both sides, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from audit.maths.shares import Z95
from audit.measures.sensitivity.block import Bound, Chain, SkipForm
from audit.measures.sensitivity.columns import SMALLEST, Array, Columns, LayerColumns, Picked

NO_VOLUME = "every volume is zero, since the rank is below the number of scores: the inequality holds and says nothing"
NO_VOLUMES = "the model has so many scores that volumes are not measured"
NO_NORMS = "some layers' sensitivities are not measured, since the model has so many scores"
NO_GRADIENTS = "the model has so many scores that gradients of single samples are not formed"
TOO_CLOSE = "both sides are sampled, and closer to each other than their errors: it cannot be judged"
NO_SAMPLE = "no sample can be used: the input is zero, its tokens are linearly dependent, or the weights are shared"


Part = Callable[[LayerColumns, NDArray[np.bool_]], Array]


class Bounds:
    """The inequalities over a set of layers of a network."""

    def __init__(self, layers: Sequence[LayerColumns], columns: Columns, about: str) -> None:
        self._layers, self._about, self._slack, self._picked = layers, about, columns.slack, columns.picked
        self._usable = [layer.usable for layer in layers]
        self._some = np.any(self._usable, axis=0)
        self._n = int(self._some.sum())
        self._left_out = sum(int((~usable).sum()) for usable in self._usable)
        self._S, self._S_error = self._sharpness(columns.samples.theta) if self._n else (0.0, 0.0)

    def _sharpness(self, theta: Array | None) -> tuple[float, float]:
        """S(θ) over the usable samples and its standard error; by random signs, the most that it can be there."""
        if theta is not None:
            return float(theta[self._some].mean()), 0.0
        assert self._picked is not None
        found, share = self._picked.signs.theta, self._n / len(self._some)
        return float(found.value) / share, float(found.error) / share

    def chain(self) -> Chain | None:
        """Eq. 48 at the first of the layers."""
        layer, usable = self._layers[0], self._usable[0]
        if not usable.any() or layer.largest is None or layer.gradient is None:
            return None
        gradient, inverse = layer.gradient[usable], 1 / layer.x_norm[usable]
        w, root = layer.spectral_norm, float(np.sqrt((inverse**2).mean()))
        return Chain(
            A=float(layer.largest[usable].mean()),
            B=w * float((np.sqrt(gradient) * inverse).mean()),
            C=w * root * float(np.sqrt(gradient.mean())),
            D=w * root * float(np.sqrt(self._S)),
        )

    def sensitivity(self, id: str) -> Bound:
        """(1/n) Σ ‖J W‖₂ ≤ √((1/n) Σ ‖W‖₂²/‖x‖²) √S, sums over layers and samples (Prop. 3.8, 3.10)."""
        if not self._n:
            return self._nothing(id, log=False)
        if any(layer.largest is None for layer in self._layers):
            return self._nothing(id, log=False, why=NO_NORMS)
        left = self._each(lambda layer, kept: known(layer.largest)[kept]).sum() / self._n
        inverse = self._each(lambda layer, kept: (layer.spectral_norm / layer.x_norm[kept]) ** 2).sum() / self._n
        right = float(np.sqrt(inverse * self._S))
        each = self._by_sample(lambda layer, kept: known(layer.largest)[kept])
        return self._bound(id, float(left), right, self._error(each, right, 0.5))

    def volume(self, id: str, N: int) -> Bound:
        """The same for volumes, in logarithms (Prop. 3.4, 3.6).

        (1/n) Σ dVol ≤ N^{−N/2} (1/n) Σ ‖J W‖_F^N ≤ (1/n) √(Σ ‖W‖₂^{2N}/‖x‖^{2N}) (n S/N)^{N/2}
        """
        if not self._n or any(layer.log_volume is None for layer in self._layers):
            return self._nothing(id, log=True, why=NO_VOLUMES if self._n else NO_SAMPLE)
        with np.errstate(divide="ignore"):
            logs = self._each(lambda layer, kept: known(layer.log_volume)[kept])
            volumes = log_sum(logs)
            norms = log_sum(self._each(lambda layer, kept: N * np.log(known(layer.frobenius)[kept])))
            factors = log_sum(self._each(lambda layer, kept: 2 * N * np.log(layer.spectral_norm / layer.x_norm[kept])))
            log_n, log_S = float(np.log(self._n)), float(np.log(self._S))
        middle = norms - log_n - N / 2 * math.log(N)
        right = factors / 2 - log_n + N / 2 * (log_n + log_S - math.log(N))
        if not np.isfinite(volumes):
            return self._log_bound(id, volumes, middle, right, 0.0)
        each = self._by_sample(lambda layer, kept: np.exp(known(layer.log_volume)[kept] - logs.max()))
        return self._log_bound(id, volumes - log_n, middle, right, self._error(each / each.mean(), 1.0, N / 2))

    def weighted_sensitivity(self, id: str) -> Bound:
        """Σ_l x̄_l MLS_l ≤ Σ_l ‖W_l‖₂ √(mean ‖∇_{W_l} f‖_F²), x̄ = (mean 1/‖x‖²)^{−1/2} (Eq. 34, 35)."""
        pairs = [(layer, kept) for layer, kept in zip(self._layers, self._usable, strict=True) if kept.any()]
        if not pairs:
            return self._nothing(id, log=False)
        if any(layer.largest is None or layer.gradient is None for layer, _ in pairs):
            return self._nothing(id, log=False, why=NO_GRADIENTS)
        left = sum(
            known(layer.largest)[kept].mean() / np.sqrt((layer.x_norm[kept] ** -2.0).mean()) for layer, kept in pairs
        )
        right = sum(layer.spectral_norm * np.sqrt(known(layer.gradient)[kept].mean()) for layer, kept in pairs)
        return self._bound(id, float(left), float(right), 0.0)

    def _each(self, part: Part) -> Array:
        """`part` of every usable pair of layer and sample."""
        pairs = zip(self._layers, self._usable, strict=True)
        return np.concatenate([part(layer, kept) for layer, kept in pairs])

    def _by_sample(self, part: Part) -> Array:
        """`part` summed over the layers, of every sample that is usable in one of them."""
        total = np.zeros(len(self._some))
        for layer, kept in zip(self._layers, self._usable, strict=True):
            total[kept] += part(layer, kept)
        return total[self._some]

    def _error(self, left: Array, right: float, power: float) -> float:
        """How far the mean of `left` and `right` ~ S^power may be off (95 %), since only some samples were picked."""
        if self._picked is None:
            return 0.0
        left_error = standard_error_of_picked(left, self._picked)
        right_error = power * right * self._S_error / self._S if self._S else 0.0
        return Z95 * math.hypot(left_error, right_error)

    def _bound(self, id: str, left: float, right: float, error: float) -> Bound:
        return plain_bound(id, (left, right), self._slack, error, self._about, self._left_out)

    def _log_bound(self, id: str, left: float, middle: float, right: float, error: float) -> Bound:
        zero = not np.isfinite(left)
        holds = True if zero else held(left, right, self._slack * max(1.0, abs(right)), error)
        return Bound(
            id=id,
            left=None if zero else left,
            right=right if np.isfinite(right) else None,
            log=True,
            holds=holds,
            tightness=None if zero else float(np.exp(left - right)),
            middle=middle if np.isfinite(middle) else None,
            about=self._about,
            left_out=self._left_out,
            error=error or None,
            skipped=NO_VOLUME if zero else TOO_CLOSE if holds is None else None,
        )

    def _nothing(self, id: str, log: bool, why: str = NO_SAMPLE) -> Bound:
        return Bound(
            id=id,
            left=None,
            right=None,
            log=log,
            holds=None,
            tightness=None,
            about=self._about,
            left_out=self._left_out,
            skipped=why,
        )


def known(column: Array | None) -> Array:
    """A column that is there."""
    assert column is not None
    return column


def standard_error_of_picked(values: Array, picked: Picked) -> float:
    """Of the mean of values [k] as that of all samples they were picked from."""
    rest = max(0.0, 1 - picked.samples / picked.of)
    return float(values.std(ddof=1)) * math.sqrt(rest / len(values)) if len(values) > 1 else 0.0


def held(left: float, right: float, slack: float, error: float) -> bool | None:
    """Whether left ≤ right up to `slack`; None where they are closer than the error of sampled sides."""
    return None if error and abs(left - right) <= error else bool(left <= right + slack)


def plain_bound(
    id: str, sides: tuple[float, float], slack: float, error: float, about: str, left_out: int = 0
) -> Bound:
    """The left of the `sides` ≤ the right one, up to rounding."""
    left, right = sides
    holds = held(left, right, slack * right, error)
    return Bound(
        id=id,
        left=left,
        right=right,
        log=False,
        holds=holds,
        tightness=left / right if right > 0 else None,
        about=about,
        left_out=left_out,
        error=error or None,
        skipped=TOO_CLOSE if holds is None else None,
    )


def skip_form(layer: LayerColumns, slack: float) -> SkipForm | None:
    """Mean ‖∂f/∂x‖₂ − mean ‖∂f/∂x − J W‖₂ ≤ mean of ‖W‖₂ ‖∇_W f‖_F/‖x‖ (Eq. 17); None where no skip leads on."""
    kept = layer.x_norm > SMALLEST
    if layer.skip is None or layer.gradient is None or not kept.any():
        return None
    right = float((layer.spectral_norm * np.sqrt(layer.gradient[kept]) / layer.x_norm[kept]).mean())
    total_mls, skip_mls = float(layer.skip.whole[kept].mean()), float(layer.skip.past[kept].mean())
    return SkipForm(
        total_mls=total_mls,
        skip_mls=skip_mls,
        left=total_mls - skip_mls,
        right=right,
        holds=total_mls - skip_mls <= right + slack * total_mls,
        left_out=int((~kept).sum()),
    )


def log_sum(logs: Array) -> float:
    """Σ e^logs in logarithm; −inf for an empty or vanishing sum."""
    top = logs.max(initial=-np.inf)
    return float(top + np.log(np.exp(logs - top).sum())) if np.isfinite(top) else -np.inf
