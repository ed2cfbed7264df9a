"""Where the model lies among twins: each of its numbers in the band of theirs, and the kind that it resembles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit.maths import Interval
from audit.maths.intervals import percentile, predicted, student_quantile
from audit.maths.shares import wilson
from audit.report.fields import Kind
from audit.report.twins import NAMES, Band, Likeness, Place
from audit.twins import Twin, TwinSet

LEAST = 3  # plain twins without which there is no band
LEAST_FAMILIES = 3  # recipes without which there is no ordinary band
LOGARITHMS = ("log_volume", "fixed.share", "gamma")  # in whose names: already a logarithm, or of either sign


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


# Which kind of twins does the model resemble, and how well can that be told here?
#
# A linear discriminant on the logarithms of the inner numbers, never on the test error: twins of a kind spread around
# its mean with one covariance for all kinds, shrunk towards its diagonal as far as so few twins ask for (Schäfer &
# Strimmer 2005). Each twin is diagnosed by all others, and what comes out right is the hit rate.


LEAST_RESEMBLED = 3  # twins of a kind that can be resembled
FLOOR = 0.02  # of a logarithm: twins spread at least so much
FAR = 0.005  # share of twins that would lie as far from their own kind
SURE = 0.5  # probability below which no kind is named
TINY = 1e-12

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Discriminant:
    """The kinds' means and the one spread around them."""

    means: Array  # [kinds, d]
    inverse: Array  # [d, d] of the covariance within kinds

    @classmethod
    def of(cls, X: Array, kinds: NDArray[np.int64], count: int) -> Discriminant:
        """From twins X [n, d] of these kinds [n]."""
        means = np.stack([X[kinds == k].mean(0) for k in range(count)])
        return cls(means, np.asarray(np.linalg.inv(_within(X - means[kinds], len(X) - count)), np.float64))

    def distances(self, x: Array) -> Array:
        """Squared distance of x [d] from each kind [kinds], in units of the spread."""
        away = x - self.means
        return np.asarray(np.einsum("ki,ij,kj->k", away, self.inverse, away))


@dataclass(frozen=True)
class Told:
    """What the rule says of one network."""

    kind: int  # −1: none of them
    order: NDArray[np.int64]  # [kinds] the nearest first
    chance: float  # of the nearest
    far: bool


@dataclass(frozen=True)
class Rule:
    """By which a network is told its kind."""

    limit: float  # logarithm of the squared distance from which on it is far
    plain: int | None  # place of the plain kind
    given: bool  # whether the recipe was

    def tell(self, found: Discriminant, x: Array, others: Array) -> Told:
        """Of x [d], beside kinds, and beside plain twins of other recipes by their means [recipes, d]."""
        distances = found.distances(x)
        if self.plain is not None and len(others):
            nearest = replace(found, means=others).distances(x).min()
            distances[self.plain] = min(distances[self.plain], nearest)
        order, chances = np.argsort(distances, kind="stable"), _chances(distances, len(x))
        first, far = int(order[0]), bool(math.log(distances.min() + TINY) > self.limit)
        among = not far or (not self.given and distances[first] < _to_next(found, first))
        faultless = first != self.plain and self._usual(found, x, others)
        return Told(first if among and chances[first] >= SURE and not faultless else -1, order, chances[first], far)

    def _usual(self, found: Discriminant, x: Array, others: Array) -> bool:
        """Whether x lies no farther from the plain kind than the nearest of the other recipes does: no fault needed."""
        if self.given or self.plain is None or not len(others):
            return False
        return bool(found.distances(x)[self.plain] <= min(found.distances(mean)[self.plain] for mean in others))


def likeness(twins: TwinSet) -> Likeness:
    """The model's diagnosis."""
    names, measured = _kinds(twins)
    if len(names) < 2:
        return Likeness(kind=None, family=twins.family, skipped="fewer than two kinds of twins were measured")
    keys = [key for key in twins.model if all(key in twin.numbers for twin in measured)]
    X = np.array([_point(twin.numbers, keys) for twin in measured])
    y = np.array([names.index(twin.kind) for twin in measured])
    found, without = Discriminant.of(X, y, len(names)), _left_out(X, y, len(names))
    away = np.stack([each.distances(x) for each, x in zip(without, X, strict=True)])  # [n, kinds]
    plain = names.index("plain") if "plain" in names else None
    rule = Rule(_farthest(away[np.arange(len(y)), y]), plain, twins.recipe_given)
    others = _other_recipes(twins, keys)
    told = rule.tell(found, np.array(_point(twins.model, keys)), _means(others))
    of_twins = [rule.tell(each, x, _means(others)).kind for each, x in zip(without, X, strict=True)]
    of_others = [rule.tell(found, x, _means(others, name)).kind for name in others for x in others[name]]
    of_others = of_others if plain is not None else []
    truth, asked = np.array([*y, *[plain for _ in of_others]]), np.array([*of_twins, *of_others])
    called, hits = asked == told.order[0], int((asked == truth).sum())
    return Likeness(
        kind=names[told.kind] if told.kind >= 0 else None,
        family=twins.family,
        next=names[int(told.order[1])],
        sureness=float(told.chance),
        far=told.far,
        asked=len(asked),
        hits=hits,
        hit_rate=hits / len(asked),
        hit_rate_ci95=wilson(hits / len(asked), len(asked)),
        hit_rate_of_kind=float((truth == asked)[called].mean()) if called.any() else None,
        kinds=list(names),
        confusion=[np.bincount(away[y == k].argmin(1), minlength=len(names)).tolist() for k in range(len(names))],
    )


def _kinds(twins: TwinSet) -> tuple[list[str], list[Twin]]:
    """Kinds with enough measured twins, in the order in which they were made, and those twins."""
    by_kind: dict[str, list[Twin]] = {}
    for twin in twins.twins:
        if twin.numbers and twin.family == twins.family:
            by_kind.setdefault(twin.kind, []).append(twin)
    enough = {name: members for name, members in by_kind.items() if len(members) >= LEAST_RESEMBLED}
    return list(enough), [twin for members in enough.values() for twin in members]


def _point(numbers: dict[str, float], keys: Sequence[str]) -> list[float]:
    """Logarithms of sizes; shares and what is a logarithm already as they are."""
    return [
        numbers[key] if any(part in key for part in LOGARITHMS) else math.log(max(abs(numbers[key]), TINY))
        for key in keys
    ]


def _within(residuals: Array, freedom: int) -> Array:
    """The covariance of residuals [n, d], its correlations shrunk towards none."""
    n = len(residuals)
    deviation = np.sqrt(np.square(residuals).sum(0) / max(1, freedom) + FLOOR**2)
    Z = residuals / deviation
    products = Z[:, :, None] * Z[:, None, :]  # [n, d, d]
    R, spread = products.sum(0) / max(1, freedom), products.var(0) * n / max(1, freedom) ** 2
    off = ~np.eye(len(R), dtype=bool)
    total = float(np.square(R[off]).sum())
    shrink = 1.0 if total <= 0 else min(1.0, max(0.05, float(spread[off].sum()) / total))
    R = np.where(off, (1 - shrink) * R, 1.0)
    return np.asarray(R * np.outer(deviation, deviation))


def _left_out(X: Array, y: NDArray[np.int64], count: int) -> list[Discriminant]:
    """For each twin the discriminant of all others."""
    return [Discriminant.of(np.delete(X, row, 0), np.delete(y, row), count) for row in range(len(y))]


def _other_recipes(twins: TwinSet, keys: Sequence[str]) -> dict[str, Array]:
    """Plain twins of the other ordinary recipes [m, d]: a model like them is an ordinary one."""
    found = {name: [twin.numbers for twin in twins.of("plain", name)] for name in twins.families}
    points = {name: [_point(each, keys) for each in made if each] for name, made in found.items()}
    return {name: np.array(some) for name, some in points.items() if some and name != twins.family}


def _means(recipes: Mapping[str, Array], without: str | None = None) -> Array:
    """Of each recipe but one [recipes, d]."""
    return np.array([points.mean(0) for name, points in recipes.items() if name != without])


def _to_next(found: Discriminant, kind: int) -> float:
    """Squared distance between a kind and the one next to it: an inferred recipe may bring the model away by less."""
    return float(np.delete(found.distances(found.means[kind]), kind).min())


def _farthest(apart: Array) -> float:
    """The logarithm of the squared distance beyond which a twin would hardly lie from its own kind."""
    logs = np.log(apart + TINY)
    t = student_quantile(len(logs) - 1, FAR)
    return float(logs.mean() + t * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))


def _chances(distances: Array, d: int) -> Array:
    """Probability of each kind, all equally likely before; of heavy tails, since the spread is known from few twins."""
    exponent = np.log1p(distances / d) * -(d + 1) / 2
    weights = np.exp(exponent - exponent.max())
    return np.asarray(weights / weights.sum())
