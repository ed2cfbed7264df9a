"""Where a number of the model lies among those of its twins.

The band is a prediction interval: with K values of mean m and deviation s another twin lies within
m ± t s √(1 + 1/K) in 95 of 100 cases, t of Student with K − 1 degrees of freedom; on the logarithm where all values
are positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audit.maths import Interval
from audit.maths.intervals import LEVEL, student_quantile, student_share_below
from audit.report.fields import Kind
from audit.report.twins import Band, Place
from audit.twins.index import Twin, TwinSet

LEAST = 3  # plain twins without which there is no band
LEAST_FAMILIES = 3  # recipes without which there is no ordinary band
LOGARITHMS = ("log_volume", "fixed.share", "gamma")  # in whose names: already a logarithm, or of either sign

NAMES: Mapping[str, tuple[str, Kind]] = {
    "duality.fixed.share": ("share of the gap in its steepest directions", "share"),
    "duality.total_g": ("total steepness (T_g)", "number"),
    "duality.total_w": ("total size of dual changes (T_w)", "number"),
    "flatness.weight_norm_squared": ("squared weights (‖W‖²)", "number"),
    "flatness.kappa_tau": ("curvature over all directions, scale-free (κ_τ)", "number"),
    "flatness.rho_sigma": ("curvature over all neurons (ρ_σ)", "number"),
    "fisher.gamma": ("Fisher log-determinant (γ̂)", "number"),
    "sensitivity.mls": ("sensitivity to the input (MLS)", "number"),
    "sensitivity.mean_log_volume_centred": ("local volume, centred scores, logarithm", "number"),
    "sensitivity.mean_log_volume": ("local volume, logarithm", "number"),
    "sensitivity.dimensionality": ("local dimensionality", "number"),
}
"""What a number is called, by the end of its path, and how it is shown."""


@dataclass(frozen=True)
class Scale:
    """Values as they are, or their logarithms."""

    logarithmic: bool

    @classmethod
    def of(cls, key: str, values: Sequence[float]) -> Scale:
        """The one that suits a number."""
        return cls(min(values) > 0 and not any(part in key for part in LOGARITHMS))

    def there(self, value: float) -> float:
        """On the scale."""
        return math.log(value) if self.logarithmic else value

    def back(self, value: float) -> float:
        """From the scale."""
        return math.exp(value) if self.logarithmic else value


def predicted(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Where one more value will lie, as it is foretold from these [K ≥ 2].

    >>> low, high = predicted([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-2.97, 6.97)
    """
    found, K = np.asarray(values, dtype=np.float64), len(values)
    half = student_quantile(K - 1, level / 2) * float(found.std(ddof=1)) * math.sqrt(1 + 1 / K)
    return float(found.mean()) - half, float(found.mean()) + half


def percentile(values: Sequence[float], value: float) -> float:
    """The share of further values that would lie below `value`, as these [K ≥ 2] foretell.

    >>> percentile([1.0, 2.0, 3.0], 2.0), percentile([1.0, 1.0], 2.0)
    (0.5, 1.0)
    """
    found, K = np.asarray(values, dtype=np.float64), len(values)
    spread = float(found.std(ddof=1)) * math.sqrt(1 + 1 / K)
    from_mean = value - float(found.mean())
    if spread <= 1e-12 * max(1.0, abs(value)):
        return 0.5 if abs(from_mean) <= 1e-12 * max(1.0, abs(value)) else float(from_mean > 0)
    return student_share_below(from_mean / spread, K - 1)


def band_of(
    key: str, value: float, plain: Sequence[float], families: Sequence[Sequence[float]] = (), kind: Kind = "number"
) -> Band | None:
    """One number beside its plain twins, and beside those of ordinary families; None where there are too few."""
    if len(plain) < LEAST:
        return None
    scale = Scale.of(key, [value, *plain, *(each for family in families for each in family)])
    x, own = scale.there(value), [scale.there(each) for each in plain]
    low, high = predicted(own)
    ordinary = _ordinary([[scale.there(each) for each in family] for family in families if family])
    name, shown = _name(key, kind)
    return Band(
        key=key,
        name=name,
        layer=_layer(key),
        kind=shown,
        value=value,
        mean=scale.back(float(np.mean(own))),
        low=scale.back(low),
        high=scale.back(high),
        place=_place(x, (low, high), ordinary),
        percentile=percentile(own, x),
        twins=len(plain),
        ordinary=None if ordinary is None else (scale.back(ordinary[0]), scale.back(ordinary[1])),
        values=list(plain),
    )


def inner_bands(twins: TwinSet) -> list[Band]:
    """Every inner number of the model."""
    plain = [twin.numbers for twin in twins.of("plain") if twin.numbers]
    families = {} if twins.recipe_given else {name: _numbers(twins.of("plain", name)) for name in twins.families}
    found = []
    for key, value in twins.model.items():
        own = [numbers[key] for numbers in plain if key in numbers]
        others = [[numbers[key] for numbers in each if key in numbers] for each in families.values()]
        found.append(band_of(key, value, own, others))
    return [band for band in found if band is not None]


def test_band(twins: TwinSet, value: float) -> Band | None:
    """The model's wrong answers on test, or its loss in a regression, beside its plain twins'."""
    plain = [twin for twin in twins.of("plain") if twin.reached]
    if twins.about.task == "regression":
        return band_of("test_loss", value, [twin.test_loss for twin in plain])
    return band_of("test_error", value, [twin.test_error or 0.0 for twin in plain], kind="percent")


def _ordinary(families: Sequence[Sequence[float]]) -> Interval:
    """Where a plain twin of yet another ordinary recipe would lie: the spread of recipes and of twins together."""
    if len(families) < LEAST_FAMILIES:
        return None
    means, F = [float(np.mean(family)) for family in families], len(families)
    within = [float(np.var(family, ddof=1)) for family in families if len(family) > 1]
    spread = float(np.var(means, ddof=1)) * (1 + 1 / F) + (float(np.mean(within)) if within else 0.0)
    half = student_quantile(F - 1) * math.sqrt(spread)
    return float(np.mean(means)) - half, float(np.mean(means)) + half


def _place(x: float, own: tuple[float, float], ordinary: Interval) -> Place:
    low, high = own if ordinary is None else (min(own[0], ordinary[0]), max(own[1], ordinary[1]))
    return "below" if x < low else "above" if x > high else "inside"


def _numbers(twins: Sequence[Twin]) -> list[Mapping[str, float]]:
    return [twin.numbers for twin in twins if twin.numbers]


def _name(key: str, kind: Kind) -> tuple[str, Kind]:
    for end, found in NAMES.items():
        if key.endswith(end):
            return found
    return {"test_error": "wrong answers on test", "test_loss": "loss on test"}.get(key, key), kind


def _layer(key: str) -> str | None:
    """The layer in `layers.NAME.measure.number`, whose name may have dots; `duality.fixed.share` has one more."""
    if not key.startswith("layers."):
        return None
    end = next((end for end in NAMES if key.endswith(f".{end}")), "")
    return key.removeprefix("layers.").removesuffix(f".{end}")
