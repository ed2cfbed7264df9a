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

from audit.measures.sensitivity.block import Bound, Chain, SkipForm
from audit.measures.sensitivity.columns import SMALLEST, Array, LayerColumns

NO_VOLUME = "every volume is zero, since the rank is below the number of scores: the inequality holds and says nothing"
NO_SAMPLE = "no sample can be used: the input is zero, its tokens are linearly dependent, or the weights are shared"


Part = Callable[[LayerColumns, NDArray[np.bool_]], Array]


class Bounds:
    """The inequalities over a set of layers; gradient [n] holds ‖∇_θ f‖_F² over all parameters."""

    def __init__(self, layers: Sequence[LayerColumns], gradient: Array, about: str, slack: float) -> None:
        self._layers, self._about, self._slack = layers, about, slack
        self._usable = [layer.usable for layer in layers]
        some = np.any(self._usable, axis=0)
        self._n = int(some.sum())
        self._left_out = sum(int((~usable).sum()) for usable in self._usable)
        self._S = float(gradient[some].mean()) if self._n else 0.0

    def chain(self) -> Chain | None:
        """Eq. 48 at the first of the layers."""
        layer, usable = self._layers[0], self._usable[0]
        if not usable.any():
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
        left = self._each(lambda layer, kept: layer.largest[kept]).sum() / self._n
        inverse = self._each(lambda layer, kept: (layer.spectral_norm / layer.x_norm[kept]) ** 2).sum() / self._n
        return self._bound(id, float(left), float(np.sqrt(inverse * self._S)))

    def volume(self, id: str, N: int) -> Bound:
        """The same for volumes, in logarithms (Prop. 3.4, 3.6).

        (1/n) Σ dVol ≤ N^{−N/2} (1/n) Σ ‖J W‖_F^N ≤ (1/n) √(Σ ‖W‖₂^{2N}/‖x‖^{2N}) (n S/N)^{N/2}
        """
        if not self._n:
            return self._nothing(id, log=True)
        with np.errstate(divide="ignore"):
            volumes = log_sum(self._each(lambda layer, kept: layer.log_volume[kept]))
            norms = log_sum(self._each(lambda layer, kept: N * np.log(layer.frobenius[kept])))
            factors = log_sum(self._each(lambda layer, kept: 2 * N * np.log(layer.spectral_norm / layer.x_norm[kept])))
            log_n, log_S = float(np.log(self._n)), float(np.log(self._S))
        middle = norms - log_n - N / 2 * math.log(N)
        right = factors / 2 - log_n + N / 2 * (log_n + log_S - math.log(N))
        return self._log_bound(id, volumes - log_n, middle, right)

    def weighted_sensitivity(self, id: str) -> Bound:
        """Σ_l x̄_l MLS_l ≤ Σ_l ‖W_l‖₂ √(mean ‖∇_{W_l} f‖_F²), x̄ = (mean 1/‖x‖²)^{−1/2} (Eq. 34, 35)."""
        pairs = [(layer, kept) for layer, kept in zip(self._layers, self._usable, strict=True) if kept.any()]
        if not pairs:
            return self._nothing(id, log=False)
        left = sum(layer.largest[kept].mean() / np.sqrt((layer.x_norm[kept] ** -2.0).mean()) for layer, kept in pairs)
        right = sum(layer.spectral_norm * np.sqrt(layer.gradient[kept].mean()) for layer, kept in pairs)
        return self._bound(id, float(left), float(right))

    def _each(self, part: Part) -> Array:
        """`part` of every usable pair of layer and sample."""
        pairs = zip(self._layers, self._usable, strict=True)
        return np.concatenate([part(layer, kept) for layer, kept in pairs])

    def _bound(self, id: str, left: float, right: float) -> Bound:
        return plain_bound(id, left, right, self._slack, self._about, self._left_out)

    def _log_bound(self, id: str, left: float, middle: float, right: float) -> Bound:
        zero = not np.isfinite(left)
        return Bound(
            id=id,
            left=None if zero else left,
            right=right if np.isfinite(right) else None,
            log=True,
            holds=bool(zero or left <= right + self._slack * max(1.0, abs(right))),
            tightness=None if zero else float(np.exp(left - right)),
            middle=middle if np.isfinite(middle) else None,
            about=self._about,
            left_out=self._left_out,
            skipped=NO_VOLUME if zero else None,
        )

    def _nothing(self, id: str, log: bool) -> Bound:
        return Bound(
            id=id,
            left=None,
            right=None,
            log=log,
            holds=None,
            tightness=None,
            about=self._about,
            left_out=self._left_out,
            skipped=NO_SAMPLE,
        )


def plain_bound(id: str, left: float, right: float, slack: float, about: str, left_out: int = 0) -> Bound:
    """`left` ≤ `right`, up to rounding."""
    return Bound(
        id=id,
        left=left,
        right=right,
        log=False,
        holds=left <= right * (1 + slack),
        tightness=left / right if right > 0 else None,
        about=about,
        left_out=left_out,
    )


def skip_form(layer: LayerColumns, slack: float) -> SkipForm | None:
    """Mean ‖∂f/∂x‖₂ − mean ‖∂f/∂x − J W‖₂ ≤ mean of ‖W‖₂ ‖∇_W f‖_F/‖x‖ (Eq. 17); None where no skip leads on."""
    kept = layer.x_norm > SMALLEST
    if layer.skip is None or not kept.any():
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
