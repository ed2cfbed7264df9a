"""How sure a classifier is, and how often it is right: reliability, calibration error, Brier score, over-confidence.

Paper letters: f [n, C] scores, p = softmax f, c_i = max_k p_ik the confidence, r_i = 1 where the answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.blocks import CACHED_GATHER, blocks
from audit.maths.intervals import border
from audit.maths.resample import TRAIN, Bootstrap, cluster_means, cluster_share, cluster_sums, interval
from audit.maths.shares import Z95, wilson
from audit.measures.calibration.block import Confidence, ConfidenceBin
from audit.report.fields import Interval

Array = NDArray[np.float64]
Places = NDArray[np.int64]
MOST = 10  # bins
FEWEST = 20  # samples of a bin: with fewer, its share of right answers says little
DIGITS = 9  # of the largest value: what agrees in them is equal but for rounding


@dataclass(frozen=True)
class Answers:
    """What a classifier said of n samples."""

    f: Array  # [n, C] scores, C ≥ 2
    y: NDArray[np.int64]  # [n] right classes
    r: Array  # [n] 1 where its answer is right, else 0
    sample: NDArray[np.int64] | None = None  # [n] whose answer it is, ascending, where samples have several

    def means(self, columns: Array, bootstrap: Bootstrap, stream: int) -> Array:
        """Means over the answers under all draws of samples; columns [n, k] → [draws, k]."""
        if self.sample is None:
            return bootstrap.means(columns, stream)
        return cluster_means(columns, self.sample, bootstrap, stream)

    def share_interval(self, hits: Array, rows: NDArray[np.bool_] | None, bootstrap: Bootstrap) -> Interval:
        """Of the mean of hits [n], 0 or 1, over all answers or some: Wilson's, or by a bootstrap over samples."""
        mine = np.ones(len(hits), bool) if rows is None else rows
        if self.sample is None:
            return wilson(float(hits[mine].mean()), int(mine.sum()))
        columns = np.stack([hits[mine], np.ones(int(mine.sum()))], 1)
        sums = cluster_sums(columns, self.sample[mine], int(self.sample[-1]) + 1)
        held = sums[sums[:, 1] > 0]
        return cluster_share(held[:, 0], held[:, 1], bootstrap)

    @property
    def p(self) -> Array:
        """Probabilities [n, C]."""
        e = np.exp(self.f - self.f.max(1, keepdims=True))
        return np.asarray(e / e.sum(1, keepdims=True))

    @property
    def c(self) -> Array:
        """Confidences [n]."""
        return np.asarray(self.p.max(1))


@dataclass(frozen=True)
class Reliability:
    """n answers in bins of about equal confidence."""

    c: Array  # [n] confidences
    r: Array  # [n] 1 where the answer is right, else 0
    bins: Places  # [n]
    sample: NDArray[np.int64] | None = None  # [n] as of `Answers`

    @classmethod
    def of(cls, answers: Answers) -> Reliability:
        """The same for any order of the samples."""
        c = answers.c
        return cls(c, answers.r, equal_count_bins(c), answers.sample)

    @property
    def excess(self) -> Array:
        """c_i − r_i in the column of the sample's bin, 0 in the others [n, B]."""
        return members(self.bins) * (self.c - self.r)[:, None]

    @property
    def design_effect(self) -> float:
        """By how much the variance of a mean over answers is larger than if all were independent (Kish 1965), d ≥ 1.

        Σ_i (Σ_t e_it)² / Σ_it e_it² over samples i and their answers t, e = c − r less its mean.
        """
        if self.sample is None:
            return 1.0
        e = self.c - self.r - (self.c - self.r).mean()
        sums, single = cluster_sums(e[:, None], self.sample, int(self.sample[-1]) + 1), float((e**2).sum())
        return max(1.0, float((sums**2).sum()) / single) if single > 0 else 1.0


def measure_confidence(answers: Answers, guess: Array, bootstrap: Bootstrap, stream: int = TRAIN) -> Confidence:
    """Everything about one split; `guess` [C] are the class shares that a constant guess answers with."""
    found = Reliability.of(answers)
    c, r = found.c, found.r
    brier, constant = brier_scores(answers), guess_scores(guess, answers.y)
    drawn = answers.means(np.column_stack([c, brier, constant, found.excess]), bootstrap, stream)  # [draws, 3 + B]
    error = calibration_error(found, drawn[:, 3:], bootstrap.seed + stream)
    useful = float(constant.mean()) > 0
    bins = [_bin(answers, found.bins == place, c, bootstrap) for place in range(found.bins.max() + 1)]
    return Confidence(
        samples=len(c),
        confidence=float(c.mean()),
        confidence_ci95=interval(drawn[:, 0]),
        accuracy=float(r.mean()),
        accuracy_ci95=answers.share_interval(r, None, bootstrap),
        overconfidence=float((c - r).mean()),
        overconfidence_ci95=overconfidence_interval(found, drawn[:, 3:]),
        ece=error.value,
        ece_ci95=error.ci95,
        ece_if_calibrated=error.if_calibrated,
        ece_if_calibrated_ci95=error.if_calibrated_ci95,
        brier=float(brier.mean()),
        brier_ci95=interval(drawn[:, 1]),
        brier_guess=float(constant.mean()),
        brier_guess_ci95=interval(drawn[:, 2]),
        brier_skill=float(1 - brier.mean() / constant.mean()) if useful else None,
        brier_skill_ci95=interval(_skill(drawn[:, 1], drawn[:, 2])) if useful else None,
        bins=bins,
        worst_bin=worst_bin(bins),
    )


def _skill(brier: Array, guess: Array) -> Array:
    """1 − brier/guess of each draw; NaN where a draw's guess is perfect."""
    return 1 - np.divide(brier, guess, out=np.full_like(brier, np.nan), where=guess > 0)


def _bin(answers: Answers, rows: NDArray[np.bool_], c: Array, bootstrap: Bootstrap) -> ConfidenceBin:
    share, ends = float(answers.r[rows].mean()), answers.share_interval(answers.r, rows, bootstrap)
    return ConfidenceBin(confidence=float(c[rows].mean()), accuracy=share, accuracy_ci95=ends, samples=int(rows.sum()))


def worst_bin(bins: Sequence[ConfidenceBin]) -> int | None:
    """The bin that adds most to the calibration error, of those that chance does not explain; None without one."""
    clear = [place for place, own in enumerate(bins) if _outside(own.confidence, own.accuracy_ci95)]
    return max(clear, key=lambda place: _part(bins[place]), default=None)


def _outside(value: float, ends: Interval) -> bool:
    return ends is not None and not ends[0] <= value <= ends[1]


def _part(own: ConfidenceBin) -> float:
    return own.samples * abs(own.confidence - own.accuracy)


def brier_scores(answers: Answers) -> Array:
    """Σ_k (p_k − y_k)² of each sample [n] (Brier 1950), y_k = 1 for the right class.

    Written as (Σ_{k≠y} p_k)² + Σ_{k≠y} p_k²: 1 − p_y would lose a confident sample.
    """
    others = answers.p
    others[np.arange(len(others)), answers.y] = 0.0
    return np.asarray(others.sum(1) ** 2 + (others**2).sum(1))


def guess_scores(q: Array, y: NDArray[np.int64]) -> Array:
    """The same of always answering q [C]: Σ q² − 2 q_y + 1  [n]."""
    return np.asarray((q**2).sum() - 2 * q[y] + 1)


# Over-confidence: mean c − mean r.


def overconfidence_interval(found: Reliability, drawn: Array) -> Interval:
    """The wider, on each side, of a bootstrap that keeps c and r of a sample together, and of the score interval.

    The bootstrap alone is too sure where hardly any answer is wrong, the other one where confidence says little.
    `drawn` [draws, B] are resampled means of `excess`, whose sum over bins is mean c − mean r.
    """
    score, paired = score_interval(found), interval(drawn.sum(1))
    return score if paired is None else (min(score[0], paired[0]), max(score[1], paired[1]))


def score_interval(found: Reliability) -> tuple[float, float]:
    """All shifts δ under which r_i ~ Bernoulli(c_i − δ) may give what was seen; for equal c it is Wilson's (1927).

    |Σ (c_i − δ − r_i)| ≤ z √(d Σ q_i (1 − q_i)), q_i = c_i − δ within 0 and 1, d the design effect.
    """
    c, r, effect = found.c, found.r, found.design_effect
    seen = float((c - r).mean())

    def excluded(shift: float) -> bool:
        q = np.clip(c - shift, 0.0, 1.0)
        return len(c) * abs(seen - shift) > Z95 * math.sqrt(effect * float((q * (1 - q)).sum()))

    return border(excluded, seen, -1.0), border(excluded, seen, 1.0)


# The expected calibration error: Σ_b |Σ_{i∈b} (c_i − r_i)| / n over bins b (Naeini et al. 2015), of equal counts.


@dataclass(frozen=True)
class CalibrationError:
    """The error of one split, and what chance alone would make of it."""

    value: float
    ci95: tuple[float, float]
    if_calibrated: float  # mean over models that are right exactly as often as they say
    if_calibrated_ci95: tuple[float, float]


def calibration_error(found: Reliability, drawn: Array, seed: int) -> CalibrationError:
    """With chance in it, |…| is above 0 even for a calibrated model, and above the truth for any.

    A bootstrap adds as much chance once more, so that its draws, from resampled means of `excess` [draws, B], lie above
    the value. The interval reaches to their 97.5 % quantile, or as far as that of over-confidence where no draw has a
    mistake; as far below the value as above it; and down to 0 where a calibrated model may show as much.
    """
    value = float(np.abs(found.excess.mean(0)).sum())
    resampled = interval(np.abs(drawn).sum(1)) or (value, value)
    least, most = score_interval(found)
    reach = max((most - least) / 2, resampled[1] - value)
    chance = np.concatenate(list(_errors_if_calibrated(found, len(drawn), seed)))
    usual = interval(chance) or (0.0, 0.0)
    below = 0.0 if value <= usual[1] else max(0.0, value - reach)
    return CalibrationError(value, (below, min(1.0, value + reach)), float(chance.mean()), usual)


def _errors_if_calibrated(found: Reliability, draws: int, seed: int) -> Iterator[Array]:
    """The error [some draws] where r_i ~ Bernoulli(c_i): the same confidences, answers drawn anew."""
    if found.sample is not None:
        yield _errors_by_signs(found, draws, seed)
        return
    order = np.argsort(found.bins, kind="stable")
    c, bins = found.c[order], found.bins[order]
    starts = np.searchsorted(bins, np.arange(bins[-1] + 1))
    rng = np.random.default_rng(seed)
    for part in blocks(draws, len(c), CACHED_GATHER):
        r = rng.random((part.stop - part.start, len(c))) < c
        yield np.abs(np.add.reduceat(c - r, starts, axis=1)).sum(1) / len(c)


def _errors_by_signs(found: Reliability, draws: int, seed: int) -> Array:
    """The same [draws] for answers that depend on each other within samples: a wild bootstrap (Liu 1988).

    What each sample adds to a bin, Σ (c − r) over its answers there less the bin's mean, gets a random sign: that keeps
    the dependence within samples, and on average no bin is off, as in a calibrated model.
    """
    assert found.sample is not None
    held = members(found.bins)
    centred = found.excess - held * (found.excess.sum(0) / held.sum(0))
    sums = cluster_sums(centred, found.sample, int(found.sample[-1]) + 1)  # [n, B]
    signs = np.random.default_rng(seed).integers(2, size=(draws, len(sums))) * 2.0 - 1.0
    return np.asarray(np.abs(signs @ sums).sum(1) / len(found.c))


# Bins of about equally many samples, by a value of each sample.


def equal_count_bins(values: Array) -> Places:
    """The bin of each of n values [n]: 0, 1, …, lowest values first, none empty, whatever the order of the samples.

    Equal values share a bin, the one in which the middle of their ranks falls: a bin may hold more than its part.

    >>> equal_count_bins(np.array([0.9, 0.5] * 20)).tolist()[:4]
    [1, 0, 1, 0]
    >>> np.bincount(equal_count_bins(np.array([1.0] * 50 + [0.2, 0.3] * 25))).tolist()
    [25, 25, 50]
    """
    n, wanted = len(values), min(MOST, max(1, len(values) // FEWEST))
    size = float(np.abs(values).max()) or 1.0
    _, group, counts = np.unique(np.round(values / size, DIGITS), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2  # of each group's ranks, from 0 to n
    _, bins = np.unique((wanted * middle / n).astype(np.int64)[group], return_inverse=True)
    return bins.astype(np.int64)


def members(bins: Places) -> Array:
    """Which samples each bin holds [n, B], 0 or 1."""
    held: Array = (bins[:, None] == np.arange(bins.max() + 1)).astype(np.float64)
    return held
