"""How much of the test split is copied from train, and does it void the verdict?

Evidence are twins with the same label that chance does not explain: those that resemble no other train row even in
parts, or, where rows repeat by nature, the excess over the share of repeated rows within train.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit.blocks.hygiene import GapWithout, Leak
from audit.gap import measure_gap
from audit.hygiene.rows import Twins
from audit.outcome import Outcome
from audit.resample import wilson
from audit.settings import Settings

VOID = 0.1  # share of unexplained copies, at the lower end of its interval, that voids the verdict
ENOUGH = 0.01  # … and that does so if leaving the copies out moves the gap
Flags = NDArray[np.bool_]


def find_leak(twins: Twins, chance: Flags, train: Outcome, test: Outcome, searched: float, settings: Settings) -> Leak:
    """`chance` [m]: twins that may be coincidence; `searched`: share of the train samples on disk that were used."""
    copied = twins.across_same_label
    share, natural = float(copied.mean()), float(twins.repeated_in_train.mean())
    unexplained = float((copied & ~chance).mean())
    interval = wilson(unexplained, len(copied))
    beyond = wilson(share, len(copied))[0] - wilson(natural, len(twins.train_x))[1]
    lowest = 1.0 if twins.same_samples() else max(interval[0], beyond) / searched
    without = _gap_without(copied, train, test, settings)
    moved = without is not None and without.moved and lowest >= ENOUGH
    return Leak(
        share=share,
        share_ci95=wilson(share, len(copied)),
        copies=int(copied.sum()),
        coincidences=int((copied & chance).sum()),
        repeated_within_train=natural,
        unexplained_share=unexplained,
        unexplained_share_ci95=interval,
        searched=searched,
        estimated_share=min(1.0, share / searched),
        void=lowest >= VOID or moved,
        why=_why(twins, int((copied & ~chance).sum()), lowest, moved, searched),
        without_copies=without,
        skipped=None if without else _no_gap(copied),
    )


def _gap_without(copied: Flags, train: Outcome, test: Outcome, settings: Settings) -> GapWithout | None:
    """The gap with the copied test samples left out, beside the interval of the gap with them."""
    if not copied.any() or copied.all():
        return None
    whole = measure_gap(train, test, None, settings.bootstrap, settings.seed)
    fresh = measure_gap(train, _only(test, ~copied), None, settings.bootstrap, settings.seed)
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
        moved=moved,
    )


def _only(outcome: Outcome, rows: Flags) -> Outcome:
    wrong = None if outcome.wrong is None else outcome.wrong[rows]
    return replace(
        outcome, scores=outcome.scores[rows], labels=outcome.labels[rows], loss=outcome.loss[rows], wrong=wrong
    )


def _outside(value: float | None, interval: tuple[float, float] | None) -> bool:
    return value is not None and interval is not None and not interval[0] <= value <= interval[1]


def _no_gap(copied: Flags) -> str:
    if copied.any():
        return "Every test sample is in train with the same label: none is left to measure a gap on."
    return "No test sample is in train with the same label: the gap without copies is the gap."


def _why(twins: Twins, unexplained: int, lowest: float, moved: bool, searched: float) -> str:
    tests, found = len(twins.test_x), int(twins.across_same_label.sum())
    part = "" if searched == 1 else f" (only {searched:.1%} of the train samples were searched)"
    if twins.same_samples():
        return "Train and test hold the very same samples: the test split says nothing about new data."
    if lowest >= VOID:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same label{part}, more than chance explains: "
            "the test split is no evidence about new data."
        )
    if moved:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same label{part}, and without them the gap "
            "lies outside its own 95 % interval: the reported gap misleads."
        )
    if not found:
        return f"No test sample is in train with the same label{part}."
    if not unexplained:
        return (
            f"{found:,} of {tests:,} test samples are in train with the same label{part}: in data with so few "
            "different values that is chance."
        )
    return f"{found:,} of {tests:,} test samples are in train with the same label{part}: too few to change the verdict."
