"""Compares two recipes from several seeds of each: the spread between seeds is in every interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit import __version__
from audit.compare.catalogue import OBSERVED, PRIMARY, Entry, skipped, verdict
from audit.compare.compare import now, only_in, side_of, voided
from audit.compare.ground import Named, check_comparable, why_void
from audit.compare.pairs import pair
from audit.compare.result import SCHEMA, VOID, Comparison, Number
from audit.compare.seeds import compare_recipes
from audit.compare.words import family_note, primary_note, recipes_headline
from audit.errors import UsageError

Array = NDArray[np.float64]
INSIDE = (
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
        notes=[primary_note(first, "recipes"), INSIDE, family_note(numbers, primary)],
        appeared=only_in(new, old),
        disappeared=only_in(old, new),
    )


def _refuse_repeats(name: str, members: Sequence[Named]) -> None:
    """One model given twice would make the spread between seeds look smaller than it is."""
    hashes = [member.report.model.sha256 for member in members]
    if len(set(hashes)) < len(hashes):
        raise UsageError(f"--group {name}: holds the same model more than once; give each seed once.")


def _exists(entry: Entry, members: Sequence[Named]) -> bool:
    return members[0].report.gap.test_error is not None or "error" not in entry.key


def _number(entry: Entry, old: Sequence[Named], new: Sequence[Named]) -> Number:
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
