"""Whose errors these are, and which other trainings make fewer."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from audit.maths.intervals import LEVEL, normal_quantile, standard_error, student_quantile
from audit.measures import Report
from audit.report.twins import Contradicted, Effect, Labels, Remedy, WhoseErrors
from audit.twins import TwinSet
from audit.twins.kinds import KINDS, Kind

# Whose errors? Test samples that nobody gets right, and those that this model alone gets wrong; labels in doubt.


LEAST = 4  # plain twins
SHOWN = 8
NEARLY_ALL = 0.9
MOST = 0.5
UNSEEN = ("half", "quarter")  # kinds whose twins have not seen all samples
TWICE = 2  # twins that have not seen a sample, without which nothing is said of its label
SURE = 0.8  # mean probability that they give the class they agree on
FEW = "four or more plain twins are needed"
OTHER_TESTS = "the twins were tried on other test samples than the report keeps outcomes of"
NO_CLASSES = "a regression has no wrong answers"
NO_PARTS = "twins on a part of the train samples are needed"

Floats = NDArray[np.float64]


def whose_errors(report: Report, twins: TwinSet) -> WhoseErrors:
    """The model's mistakes beside those of its plain twins."""
    if twins.about.task == "regression":
        return WhoseErrors(skipped=NO_CLASSES)
    chosen = [one for twin, one in zip(twins.twins, twins.outcomes, strict=True) if _is_plain(twins, twin)]
    if len(chosen) < LEAST:
        return WhoseErrors(skipped=FEW)
    kept = None if report.outcomes is None else report.outcomes.test
    if kept is None or kept.wrong is None or not np.array_equal(np.sort(chosen[0].tests), kept.positions):
        return WhoseErrors(skipped=OTHER_TESTS)
    order = np.argsort(chosen[0].tests, kind="stable")
    wrong = 1 - np.stack([one.test for one in chosen])[:, order]  # [K, n]
    mine, positions, share = np.asarray(kept.wrong, bool), np.asarray(kept.positions), wrong.mean(0)
    hard, own = mine & (share == 1), mine & (share <= 1 - NEARLY_ALL)
    loss = np.asarray(kept.loss)
    return WhoseErrors(
        tests=len(mine),
        wrong=int(mine.sum()),
        shared=int((mine & (share >= MOST)).sum()),
        hard=_costliest(hard, loss, positions),
        own=_costliest(own, loss, positions),
        hard_count=int(hard.sum()),
        own_count=int(own.sum()),
        own_expected=_alone(wrong, mine),
        saved_count=int((~mine & (share >= NEARLY_ALL)).sum()),
    )


def labels_in_doubt(
    twins: TwinSet, given: NDArray[np.int64], names: Collection[str], neighbours: Collection[int] | None
) -> Labels:
    """Train labels that all twins contradict which have not seen the sample. `given`: of every train position."""
    parts = [
        one.unseen
        for twin, one in zip(twins.twins, twins.outcomes, strict=True)
        if twin.kind in UNSEEN and twin.family == twins.family
    ]
    if twins.about.task == "regression":
        return Labels(skipped="a regression has no labels")
    if not parts:
        return Labels(skipped=NO_PARTS)
    rows = np.concatenate([part.rows for part in parts])
    found, place, counts = np.unique(rows, return_inverse=True, return_counts=True)
    answers = np.zeros((len(found), len(names)))
    np.add.at(answers, (place, np.concatenate([part.answers for part in parts]).astype(np.int64)), 1.0)
    sure = np.bincount(place, np.concatenate([part.confidence for part in parts])) / counts
    told, labels = answers.argmax(1), given[found]
    doubted = (answers.max(1) == counts) & (counts >= TWICE) & (sure >= SURE) & (told != labels)
    looked_at, called = int((counts >= TWICE).sum()), list(names)
    order = np.flatnonzero(doubted)[np.argsort(-sure[doubted], kind="stable")]
    return Labels(
        looked_at=looked_at,
        contradicted=int(doubted.sum()),
        share=float(doubted.sum()) / max(1, looked_at),
        both=None if neighbours is None else int(np.isin(found[doubted], list(neighbours)).sum()),
        samples=[
            Contradicted(
                index=int(found[place]),
                label=called[int(labels[place])],
                told=called[int(told[place])],
                twins=int(counts[place]),
                confidence=float(sure[place]),
            )
            for place in order
        ],
    )


def _is_plain(twins: TwinSet, twin: object) -> bool:
    return (twin.kind, twin.family) == ("plain", twins.family)  # type: ignore[attr-defined]


def _costliest(chosen: NDArray[np.bool_], loss: Floats, positions: NDArray[np.int64]) -> list[int]:
    places = np.flatnonzero(chosen)
    return [int(positions[place]) for place in places[np.argsort(-loss[places], kind="stable")][:SHOWN]]


def _alone(wrong: Floats, mine: NDArray[np.bool_]) -> float:
    """Samples that one twin gets wrong and nearly all others right, the model among these; the mean over twins."""
    K, every = len(wrong), np.vstack([wrong, mine[None]])
    others = (every.sum(0) - wrong) / K  # share of wrong answers without the twin's own [K, n]
    return float(((wrong == 1) & (others <= 1 - NEARLY_ALL)).sum(1).mean())


# What a change of the training did to the test error of this architecture on these data.
#
# The effect is the mean over a kind's twins minus that over the plain ones. Two things make it uncertain, and their
# variances add: which twins were made (Welch's two samples), and which test samples there are (all twins answer the
# same ones, so the difference is taken sample by sample).


LEAST_OF_KIND = 2  # twins of a kind, and of plain ones
SMALL = 0.05  # of the plain twins' error: what lies within is called no difference


def remedies(twins: TwinSet) -> list[Remedy]:
    """Of every kind that an owner could train by, the one that lowered the error most first."""
    tried = [kind for kind in KINDS if kind.remedy]
    plain = _wrong(twins, "plain")
    if len(plain) < LEAST_OF_KIND:
        return []
    found = [(kind, wrong) for kind in tried if len(wrong := _wrong(twins, kind.name)) >= LEAST_OF_KIND]
    effects = [_remedy(kind, wrong, plain, len(found)) for kind, wrong in found]
    return sorted(effects, key=lambda remedy: remedy.effect)


def _wrong(twins: TwinSet, kind: str) -> Floats:
    """[twins, tests] 1 where wrong, 0 where right; the loss for regression."""
    found = [
        one.test
        for twin, one in zip(twins.twins, twins.outcomes, strict=True)
        if (twin.kind, twin.family) == (kind, twins.family)
        and (twin.reached or twin.matched)  # not those that diverged
    ]
    values = np.stack(found) if found else np.empty((0, 0))
    return values if twins.about.task == "regression" else 1 - values


def _remedy(kind: Kind, wrong: Floats, plain: Floats, tried: int) -> Remedy:
    effect = float(wrong.mean() - plain.mean())
    of_twins = [float(part.mean(1).var(ddof=1)) / len(part) for part in (wrong, plain)]
    of_tests = float(standard_error(wrong.mean(0) - plain.mean(0), ddof=1))
    error = math.hypot(math.sqrt(sum(of_twins)), of_tests)
    t = student_quantile(_freedom(of_twins, of_tests, (len(wrong), len(plain))))
    wide = normal_quantile(LEVEL / 2 / tried) / normal_quantile(LEVEL / 2) * t * error  # for all that were tried
    return Remedy(
        kind=kind.name,
        change=kind.change,
        twins=len(wrong),
        effect=effect,
        ci95=(effect - t * error, effect + t * error),
        verdict=_verdict(effect, wide, float(plain.mean())),
    )


def _freedom(of_twins: list[float], of_tests: float, counts: tuple[int, int]) -> float:
    """Welch's degrees of freedom: those of the test samples are many."""
    known = sum(variance**2 / (count - 1) for variance, count in zip(of_twins, counts, strict=True))
    total = (sum(of_twins) + of_tests**2) ** 2
    return min(1e6, total / known) if known > 0 else 1e6


def _verdict(effect: float, half: float, level: float) -> Effect:
    if effect + half < 0:
        return "helps"
    if effect - half > 0:
        return "hurts"
    return "no difference" if max(abs(effect - half), abs(effect + half)) <= SMALL * level else "cannot tell"
