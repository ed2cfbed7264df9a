"""How much of the test split is copied from train, and does it void the verdict?

Evidence are twins with the same label that chance does not explain: those that resemble no other train row even in
parts, or, where rows repeat by nature, the excess over the share of repeated rows within train.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import Bootstrap, interval
from audit.maths.shares import wilson
from audit.measures.gap.measure import measure_gap
from audit.measures.hygiene.block import GapWithout, Leak
from audit.measures.hygiene.duplicates import Twins
from audit.network.records import Outcome
from audit.report.fields import Interval

VOID = 0.1  # share of unexplained copies, at the lower end of its interval, that voids the verdict
ENOUGH = 0.01  # … and that does so if leaving the copies out moves the gap
Flags = NDArray[np.bool_]


def find_leak(
    twins: Twins, chance: Flags, train: Outcome, test: Outcome, searched: float, bootstrap: Bootstrap
) -> Leak:
    """`chance` [m]: twins that may be coincidence; `searched`: share of the train samples on disk that were used."""
    copied, answer = twins.across_same_label, _answer(test)
    share, natural = float(copied.mean()), float(twins.repeated_in_train.mean())
    unexplained = float((copied & ~chance).mean())
    unexplained_ci95 = wilson(unexplained, len(copied))
    beyond = wilson(share, len(copied))[0] - wilson(natural, len(twins.train_x))[1]
    lowest = 1.0 if twins.same_samples() else max(unexplained_ci95[0], beyond) / searched
    without = _gap_without(copied, train, test, bootstrap)
    moved = without is not None and without.moved and lowest >= ENOUGH
    return Leak(
        share=share,
        share_ci95=wilson(share, len(copied)),
        copies=int(copied.sum()),
        coincidences=int((copied & chance).sum()),
        repeated_within_train=natural,
        repeated_within_train_ci95=wilson(natural, len(twins.train_x)),
        unexplained_share=unexplained,
        unexplained_share_ci95=unexplained_ci95,
        searched=searched,
        estimated_share=min(1.0, share / searched),
        estimated_share_ci95=_over(wilson(share, len(copied)), searched),
        void=lowest >= VOID or moved,
        why=_why(twins, int((copied & ~chance).sum()), lowest, moved, searched, answer),
        without_copies=without,
        skipped=None if without else _no_gap(copied, answer),
    )


def _over(ends: tuple[float, float], searched: float) -> tuple[float, float]:
    return min(1.0, ends[0] / searched), min(1.0, ends[1] / searched)


def _gap_without(copied: Flags, train: Outcome, test: Outcome, bootstrap: Bootstrap) -> GapWithout | None:
    """The gap with the copied test samples left out, beside the interval of the gap with them."""
    if not copied.any() or copied.all():
        return None
    whole = measure_gap(train, test, None, bootstrap)
    fresh = measure_gap(train, _only(test, ~copied), None, bootstrap)
    moved = _outside(fresh.loss_gap, whole.loss_gap_ci95) or _outside(fresh.error_gap, whole.error_gap_ci95)
    return GapWithout(
        samples=int((~copied).sum()),
        loss_gap=fresh.loss_gap,
        loss_gap_ci95=fresh.loss_gap_ci95,
        error_gap=fresh.error_gap,
        error_gap_ci95=fresh.error_gap_ci95,
        loss_gap_shift=fresh.loss_gap - whole.loss_gap,
        error_gap_shift=None
        if fresh.error_gap is None or whole.error_gap is None
        else fresh.error_gap - whole.error_gap,
        loss_gap_shift_ci95=_shift_interval(test.loss, None, copied, bootstrap),
        error_gap_shift_ci95=None if test.wrong is None else _shift_interval(test.wrong, test.asked, copied, bootstrap),
        moved=moved,
    )


def _answer(test: Outcome) -> str:
    """What a sample comes with."""
    return "target" if test.wrong is None else "label" if test.asked is None else "labels"


def _shift_interval(
    values: NDArray[np.float64], asked: NDArray[np.float64] | None, copied: Flags, bootstrap: Bootstrap
) -> Interval:
    """Of the mean over the samples that are no copies, minus the mean over all; over answers where it says how many."""
    fresh = (~copied).astype(np.float64)
    columns = [values, values * fresh, fresh] if asked is None else [values, values * fresh, asked * fresh, asked]
    everything, without, share, *whole = bootstrap.means(np.stack(columns, 1)).T
    some = share > 0
    mean = everything / whole[0] if whole else everything
    return interval(without[some] / share[some] - mean[some])


def _only(outcome: Outcome, rows: Flags) -> Outcome:
    wrong, asked = (None if part is None else part[rows] for part in (outcome.wrong, outcome.asked))
    scores, labels, loss = outcome.scores[rows], outcome.labels[rows], outcome.loss[rows]
    return replace(outcome, scores=scores, labels=labels, loss=loss, wrong=wrong, asked=asked)


def _outside(value: float | None, ends: Interval) -> bool:
    return value is not None and ends is not None and not ends[0] <= value <= ends[1]


def _no_gap(copied: Flags, answer: str) -> str:
    if copied.any():
        return f"Every test sample is in train with the same {answer}: none is left to measure a gap on."
    return f"No test sample is in train with the same {answer}: the gap without copies is the gap."


def _why(twins: Twins, unexplained: int, lowest: float, moved: bool, searched: float, answer: str) -> str:
    """`answer` is what a sample comes with: a label, or the target of a regression."""
    tests, found = len(twins.test_x), int(twins.across_same_label.sum())
    part = "" if searched == 1 else f" (only {searched:.1%} of the train samples were searched)"
    if twins.same_samples():
        return "Train and test hold the very same samples: the test split says nothing about new data."
    if lowest >= VOID:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}, more than chance "
            "explains: the test split is no evidence about new data."
        )
    if moved:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}, and without them the gap "
            "lies outside its own 95 % interval: the reported gap misleads."
        )
    if not found:
        return f"No test sample is in train with the same {answer}{part}."
    if not unexplained:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}: in data with so few "
            "different values that is chance."
        )
    return (
        f"{found:,} of {tests:,} test samples are in train with the same {answer}{part}: too few to change the verdict."
    )
