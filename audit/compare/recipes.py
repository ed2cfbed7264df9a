"""Compares two recipes from several seeds of each, whose spread is in every interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audit import __version__
from audit.compare import OBSERVED, PRIMARY, SCHEMA, VOID, Comparison, Named, Number, skipped, verdict
from audit.compare.comparable import check_comparable, why_void
from audit.compare.compare import now, only_in, side_of, voided
from audit.compare.differences import pair
from audit.compare.sentences import family_note, primary_note, recipes_headline
from audit.errors import UsageError
from audit.maths.intervals import student_quantile
from audit.report.fields import Compared

Array = NDArray[np.float64]
NOT_OF_RECIPES = (
    "Numbers from inside the network are not compared between recipes; compare two models to see them side by side."
)


def compare_groups(old: Sequence[Named], new: Sequence[Named], names: tuple[str, str], command: str) -> Comparison:
    """At least two reports of each recipe, all judged on the same test samples."""
    for name, members in zip(names, (old, new), strict=True):
        if len(members) < 2:
            raise UsageError(f"--group {name}: has one report; give at least two seeds of each recipe.")
        _refuse_repeats(name, members)
    check_comparable(old[0], [*old[1:], *new])
    void = why_void([*old, *new])
    primary = PRIMARY[new[0].report.model.task]
    found = [_number(entry, old, new) for entry in OBSERVED if _exists(entry, new)]
    numbers = [voided(number) if void else number for number in found]
    first = next(number for number in numbers if number.key == primary)
    return Comparison(
        schema=SCHEMA,
        created=now(),
        version=__version__,
        command=command,
        about="recipes",
        old=side_of(names[0], list(old)),
        new=side_of(names[1], list(new)),
        void=void,
        primary=primary,
        verdict=VOID if void else first.verdict,
        headline=recipes_headline(first, void, len(old), len(new)),
        numbers=numbers,
        notes=[primary_note(first, "recipes"), NOT_OF_RECIPES, family_note(numbers, primary)],
        appeared=only_in(new, old),
        disappeared=only_in(old, new),
    )


def _refuse_repeats(name: str, members: Sequence[Named]) -> None:
    """One model given twice would make the spread between seeds look smaller than it is."""
    hashes = [member.report.model.sha256 for member in members]
    if len(set(hashes)) < len(hashes):
        raise UsageError(f"--group {name}: holds the same model more than once; give each seed once.")


def _exists(entry: Compared, members: Sequence[Named]) -> bool:
    return members[0].report.gap.test_error is not None or "error" not in entry.key


def _number(entry: Compared, old: Sequence[Named], new: Sequence[Named]) -> Number:
    split, _, kind = entry.key.removeprefix("gap.").partition("_")
    splits = ("test", "train") if kind == "gap" else (split,)
    column = split if kind == "gap" else kind
    values = [_values(part, column, old, new) for part in splits]
    missing = next((part for part, found in zip(splits, values, strict=True) if found is None), None)
    if missing is not None:
        return skipped(entry, f"not compared: the reports do not share all their {missing} samples")
    both = [part for part in values if part is not None]
    result = compare_recipes(both)
    return replace(
        skipped(entry),
        old=result.old,
        new=result.new,
        difference=result.new - result.old,
        ci95=result.ci95,
        samples=None if len(both) > 1 else both[0][0].shape[1],
        paired=True,
        verdict=verdict(
            entry,
            result.new - result.old,
            result.ci95,
            identical=result.seeds_share is None and result.new == result.old,
        ),
        seeds_share=result.seeds_share,
    )


def _values(split: str, kind: str, old: Sequence[Named], new: Sequence[Named]) -> tuple[Array, Array] | None:
    """(old [K, n], new [K, n]) where all reports hold the outcomes of the same samples."""
    first, rows = old[0].report, list[Array]()
    for member in (*old, *new):
        pairs = pair(first, member.report, split)
        values = None if pairs is None else pairs.new.values(kind)
        if values is None or (rows and len(values) != len(rows[0])):
            return None
        rows.append(values)
    return np.stack(rows[: len(old)]), np.stack(rows[len(old) :])


# Two recipes, several seeds of each, the same samples: the 95 % interval of the difference of the recipes' means.
# Two kinds of chance are in it: which seeds were trained and which samples were drawn. With v_k the mean of seed k over
# the samples and D_i the difference on sample i of the means over seeds,
#   SE² = s²(v of new)/K_new + s²(v of old)/K_old + s²(D)/n,
# and each part is widened by Student's factor t of its own degrees of freedom, K − 1 and n − 1, before they are added:
# the interval is the difference ± √(Σ t² · part) (Zou & Donner 2008). One number of degrees for all (Satterthwaite
# 1946) is estimated from the parts and misses where few seeds spread unequally.
# Measured with 100 samples and no true difference: share of intervals that exclude it (nominal 5 %), in brackets with
# Satterthwaite's; spreads between seeds in units of the samples' standard error.
#   2 and 2 seeds: spreads 2, 2: 0.5 % (5.7 %); 0, 4: 2.8 % (11 %)     2 and 5 seeds: spreads 4, 0.1: 2.3 % (10 %)
#   3 and 3 seeds: spreads 3, 3: 1.6 % (5.0 %); 0, 6: 4.6 % (7.5 %)    5 and 5 seeds: spreads 0, 4: 3.8 % (4.9 %)
# The price: two seeds of each recipe tell only large differences. Three or more are needed for a sharp answer.


Part = tuple[float, int]  # a variance and its degrees of freedom


@dataclass(frozen=True)
class RecipeDifference:
    """The difference of two recipes in one number."""

    old: float
    new: float
    ci95: tuple[float, float]
    seeds_share: float | None  # part of the variance that comes from the seeds; None where there is none at all


def compare_recipes(splits: Sequence[tuple[Array, Array]]) -> RecipeDifference:
    """`splits` holds (old [K_old, n], new [K_new, n]) of one split, or of test and train for test minus train."""
    signs = (1.0, -1.0)[: len(splits)]
    old, new = (sum(sign * part[side].mean(1) for sign, part in zip(signs, splits, strict=True)) for side in (0, 1))
    of_seeds = [_part(np.asarray(values)) for values in (old, new)]
    of_samples = [_part(there.mean(0) - here.mean(0)) for here, there in splits]
    variance = sum(part for part, _ in (*of_seeds, *of_samples))
    difference = float(np.mean(new) - np.mean(old))
    half = math.sqrt(sum(student_quantile(free) ** 2 * part for part, free in (*of_seeds, *of_samples)))
    return RecipeDifference(
        old=float(np.mean(old)),
        new=float(np.mean(new)),
        ci95=(difference - half, difference + half),
        seeds_share=sum(part for part, _ in of_seeds) / variance if variance > 0 else None,
    )


def _part(values: Array) -> Part:
    """Variance of the mean of `values`, and its degrees of freedom."""
    return float(values.var(ddof=1) / len(values)), len(values) - 1
