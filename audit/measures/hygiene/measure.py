"""Are the data themselves in order? Copies across the splits, conflicting and suspect labels, class balance.

A gap measured on a test split that is partly in train is no gap, and a network that was taught wrong labels cannot be
right. Everything is counted on the samples as used, as they are fed to the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.blocks import RESAMPLED
from audit.maths.resample import cluster_sums
from audit.maths.shares import wilson
from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.measures.hygiene import ASKED, DEMAND, DIVISIONS, NUMBERS
from audit.measures.hygiene.block import ClassBalance, Conflicts, Hygiene, ToldApart, Twin
from audit.measures.hygiene.candidates import NEIGHBOURS
from audit.measures.hygiene.card import CARDS
from audit.measures.hygiene.duplicates import PAIRS, repeats
from audit.measures.hygiene.leak import find_leak, near_duplicates
from audit.measures.hygiene.mislabels import suspected_mislabels
from audit.measures.hygiene.samples import Samples
from audit.measures.workload import Demand
from audit.network import dense_only
from audit.network.record import Products, Record


class HygieneMeasure:
    """Duplicates, conflicts, suspect labels, balance, leaks."""

    key = "hygiene"
    question = "Are the data themselves in order?"
    cards: tuple[Card, ...] = CARDS
    demand: Demand = DEMAND

    def start(self, audit: Audit) -> Fold:
        """Begins to keep the features of the train samples."""
        return _HygieneFold(audit)


MEASURE: Measure = HygieneMeasure()


class _HygieneFold:
    def __init__(self, audit: Audit) -> None:
        self.audit, self.last = audit, dense_only(audit.layers)[-1]
        self.features: list[Tensor] = []

    def see(self, record: Record, products: Products) -> None:
        """Takes what the last dense layer is fed, unless that is the input itself."""
        if not self.last.fed_by_input:
            self.features.append(record.layers[self.last.name].x.flatten(1))

    def _walk(self) -> Tensor | None:
        """The features by a forward pass of their own, where no record was seen."""
        if self.last.fed_by_input:
            return None
        return torch.cat([record.layers[self.last.name].x.flatten(1) for record in self.audit.train])

    def finish(self) -> Measurement:
        """Everything about the data at once."""
        samples = Samples(self.audit, torch.cat(self.features) if self.features else self._walk())
        twins, train = samples.twins, self.audit.data.train
        outcomes = self.audit.train_outcome, self.audit.test_outcome
        searched = len(train) / max(train.total, len(train))
        near_count, near = near_duplicates(samples)
        conflicting = conflicts(samples)
        apart = told_apart(samples, near.threshold)
        return Measurement(
            network=Hygiene(
                duplicates_across_splits=int(twins.across.sum()),
                duplicates_within_train=repeats(twins.train_x),
                duplicates_within_test=repeats(twins.test_x),
                near_duplicates=near_count,
                conflicting_labels=conflicting.within_train + conflicting.across_splits,
                duplicate_pairs=duplicate_pairs(samples),
                near=near,
                conflicts=conflicting,
                suspected_mislabels=suspected_mislabels(samples),
                class_balance=balance(samples),
                told_apart=apart,
                leaked=find_leak(twins, samples.coincidences, *outcomes, searched, self.audit.bootstrap),
            )
        )


def duplicate_pairs(samples: Samples) -> list[Twin]:
    """The first twins across the splits."""
    return [
        Twin(
            train=int(samples.train_index[train]),
            test=int(samples.test_index[test]),
            same_label=bool(samples.twins.train_y[train] == samples.twins.test_y[test]),
        )
        for train, test in samples.twins.pairs()
    ]


def conflicts(samples: Samples) -> Conflicts:
    """Identical inputs with different labels."""
    twins = samples.twins
    train, test = (np.flatnonzero(flags) for flags in (twins.conflicts_in_train, twins.conflicts_across))
    return Conflicts(
        within_train=len(train),
        across_splits=len(test),
        train=samples.train_index[train[:PAIRS]].tolist(),
        test=samples.test_index[test[:PAIRS]].tolist(),
    )


def balance(samples: Samples) -> ClassBalance:
    """Counts per class; nothing for regression."""
    y, y_test = (y.cpu().numpy() for y in (samples.y, samples.y_test))
    settings = samples.audit.settings
    if samples.tagged:
        return tag_balance(y, y_test, samples.names, settings.bootstrap, settings.seed)
    if not samples.classes:
        return ClassBalance(skipped=NO_CLASSES)
    return class_balance(y, y_test, samples.names, settings.bootstrap, settings.seed)


# Are the classes of train and test alike? Counts, and Pearson's X² against random re-divisions of the samples.


NO_CLASSES = "There are no classes in a regression."
SIGNIFICANT = 0.01


def class_balance(
    y: NDArray[np.int64], y_test: NDArray[np.int64], names: Sequence[str], draws: int, seed: int
) -> ClassBalance:
    """Counts of the classes `names` in both splits, and whether their proportions differ."""
    train, test = (np.bincount(labels, minlength=len(names)) for labels in (y, y_test))
    return _balance(train, test, names, p_value(train, test, draws, seed), draws)


def tag_balance(
    y: NDArray[np.int64], y_test: NDArray[np.int64], names: Sequence[str], draws: int, seed: int
) -> ClassBalance:
    """The same of labels at positions [n, T], negative where there is none: counts of positions."""
    train, test = (_counts(labels, len(names)) for labels in (y, y_test))  # [n, C]
    return _balance(train.sum(0), test.sum(0), names, p_value_of_samples(train, test, draws, seed), draws)


def _balance(
    train: NDArray[np.int64], test: NDArray[np.int64], names: Sequence[str], p: float, draws: int
) -> ClassBalance:
    present = train[train > 0]
    missing = [[name for name, count in zip(names, counts, strict=True) if not count] for counts in (train, test)]
    return ClassBalance(
        train=dict(zip(names, train.tolist(), strict=True)),
        test=dict(zip(names, test.tolist(), strict=True)),
        missing_in_train=missing[0],
        missing_in_test=missing[1],
        ratio=float(present.max() / present.min()),
        difference=float(np.abs(train / train.sum() - test / test.sum()).sum() / 2),
        p_value=p,
        p_value_ci95=wilson(p, 1 + draws),
        differ=p < SIGNIFICANT,
        draws=draws,
    )


def p_value(train: NDArray[np.int64], test: NDArray[np.int64], draws: int, seed: int) -> float:
    """Share of random re-divisions whose X² is at least the observed one, the observed division counted among them."""
    pooled = train + test
    pooled, test = pooled[pooled > 0], test[pooled > 0]
    rng = np.random.default_rng(seed)
    divided = rng.multivariate_hypergeometric(pooled, int(test.sum()), size=draws, method="marginals")
    observed, expected = _x_squared(test[None], pooled)[0], _x_squared(divided, pooled)
    return float((1 + (expected >= observed * (1 - 1e-12)).sum()) / (1 + draws))


def _counts(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """How many positions of each sample have each class [n, C]."""
    rows, positions = np.nonzero(labels >= 0)
    places = rows * classes + labels[rows, positions]
    return np.bincount(places, minlength=len(labels) * classes).reshape(len(labels), classes)


def p_value_of_samples(train: NDArray[np.int64], test: NDArray[np.int64], draws: int, seed: int) -> float:
    """The same where whole samples are re-divided, not their positions, which are not independent; counts [n, C].

    Of very many samples, random groups of them are: that changes their spread as little as for a bootstrap.
    """
    every, rng = np.concatenate([test, train]), np.random.default_rng(seed)
    pooled, part = every.sum(0), len(test) / len(every)
    kept = pooled > 0
    if len(every) > RESAMPLED:
        every = cluster_sums(every, rng.permutation(len(every)) % RESAMPLED, RESAMPLED).astype(np.int64)
    size = min(max(1, round(part * len(every))), len(every) - 1)
    divided = np.stack([every[rng.permutation(len(every))[:size]].sum(0) for _ in range(draws)])[:, kept]
    observed, expected = (_x_squared_of(some, pooled[kept]) for some in (test.sum(0)[None, kept], divided))
    return float((1 + (expected >= observed[0] * (1 - 1e-12)).sum()) / (1 + draws))


def _x_squared_of(test: NDArray[np.int64], pooled: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pearson's X² of the 2 × C tables whose first row is test [draws, C]; their sums differ."""
    part = test.sum(1, keepdims=True) / pooled.sum()
    return np.asarray(((test - part * pooled) ** 2 / (pooled * part * (1 - part))).sum(1))


def _x_squared(test: NDArray[np.int64], pooled: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pearson's X² of the 2 × C table up to a factor that is the same for all divisions [draws]."""
    return np.asarray(((test - pooled * (test[0].sum() / pooled.sum())) ** 2 / pooled).sum(1))


# Are the inputs of train and test alike? A simple classifier is asked of each which split it is from, without having
# seen it, and the same of random re-divisions: if both splits are from one source, each division is as likely.


FEWEST = 20  # of either, below which nothing can be told
RIDGE = 0.1
RARELY = 0.001  # share of the divisions that may be told apart as well: the chance of a false alarm
NO_DISTANCES = "Tokens have no distances by which a simple classifier could tell them apart."
TOO_FEW = f"A split has fewer than {FEWEST} different inputs that are not in the other, too."


def told_apart(samples: Samples, close: float | None) -> ToldApart:
    """How well test inputs are told from train inputs; `close`: see `distinct`."""
    x, x_test = (records.x for records in (samples.audit.train, samples.audit.test))
    if not (samples.audit.model.input.has_distances and x.is_floating_point()):
        return ToldApart(skipped=NO_DISTANCES)
    ids = samples.twins.train_x, samples.twins.test_x
    return compare_inputs((x.flatten(1), x_test.flatten(1)), ids, close, samples.audit.settings.seed)


def compare_inputs(
    inputs: tuple[Tensor, Tensor], ids: tuple[NDArray[np.int64], NDArray[np.int64]], close: float | None, seed: int
) -> ToldApart:
    """The same of train and test inputs [n, D], [m, D] and their numbers, which are equal where the inputs are."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(_alone(*pair))[:ASKED] for pair in (ids, ids[::-1])]
    if (size := min(map(len, rows))) < FEWEST:
        return ToldApart(skipped=TOO_FEW)
    numbers = torch.from_numpy(rng.permutation(inputs[0].shape[1])[:NUMBERS])
    order = torch.from_numpy(rng.permutation(2 * size))
    parts = [x.cpu()[torch.from_numpy(some[:size])][:, numbers] for x, some in zip(inputs, rows, strict=True)]
    pool, from_test = torch.cat(parts)[order].double(), order >= size
    kept = distinct(pool, close)
    pool, from_test = pool[kept], from_test[kept]
    if min(int(from_test.sum()), int((~from_test).sum())) < FEWEST or bool((pool == pool[:1]).all()):
        return ToldApart(skipped=TOO_FEW)
    found = tell(pool, from_test.numpy(), rng)
    low, high = np.quantile(found[1:], [0.025, 0.975]).tolist()
    p = float((found[1:] >= found[0]).sum() + 1) / (1 + DIVISIONS)
    return ToldApart(
        accuracy=float(found[0]),
        by_chance=(low, high),
        p_value=p,
        p_value_ci95=wilson(p, 1 + DIVISIONS),
        differ=p <= RARELY,
        samples=len(pool),
        draws=DIVISIONS,
    )


def _alone(ids: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the different inputs that are not among the others."""
    different, first = np.unique(ids, return_index=True)
    return first[~np.isin(different, others)]


def distinct(x: Tensor, close: float | None) -> Tensor:
    """Which of x [n, D] have no earlier one closer than `close` times the distance to the tenth-nearest [n]."""
    if close is None or len(x) <= NEIGHBOURS:
        return torch.ones(len(x), dtype=torch.bool)
    distance = torch.cdist(x, x)
    near = distance < close * distance.kthvalue(NEIGHBOURS + 1, dim=1).values
    return ~(near | near.T).triu(1).any(0)


def tell(x: Tensor, from_test: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
    """Share of x [n, D] told rightly, both splits counting half: of the true division, then of random ones.

    Kernel ridge regression on ±1; left out, a sample is answered with y − α/diag G, where G = (K + λ)⁻¹ and α = G y.
    """
    divisions = np.concatenate([from_test[None], rng.permuted(np.tile(from_test, (DIVISIONS, 1)), axis=1)])
    truth = torch.from_numpy(divisions.T)  # [n, 1 + divisions]
    y = 2.0 * (truth.double() - from_test.mean())
    G = torch.linalg.inv(similarity(x) + RIDGE * torch.eye(len(x), dtype=x.dtype))
    said = y - (G @ y) / G.diagonal()[:, None] > 0
    right = (said == truth).double()
    return np.asarray(((right * truth).sum(0) / truth.sum(0) + (right * ~truth).sum(0) / (~truth).sum(0)) / 2)


def similarity(x: Tensor) -> Tensor:
    """exp(−d²/median d²) of x [n, D], as fed and with every feature standardised, in equal parts [n, n]."""
    x = x[:, x.amax(0) != x.amin(0)]
    kernels = []
    for points in (x, (x - x.mean(0)) / x.std(0)):
        squared = torch.cdist(points, points).square()
        typical = squared[~torch.eye(len(x), dtype=torch.bool)]
        kernels.append((-squared / (typical.median() or typical.mean())).exp())
    return (kernels[0] + kernels[1]) / 2
