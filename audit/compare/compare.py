"""Compares two reports: what changed between these two models on this test set, number by number."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit import __version__
from audit.compare import (
    BETTER,
    OBSERVED,
    PRIMARY,
    SCHEMA,
    VOID,
    WORSE,
    ChangedSample,
    ChangedSamples,
    Comparison,
    Named,
    Number,
    Side,
    skipped,
    verdict,
)
from audit.compare.comparable import (
    AtOneLoss,
    check_comparable,
    network_numbers,
    samples_notes,
    short_names,
    unpaired_numbers,
    why_void,
)
from audit.compare.differences import PairedAnswers, gap_differences, pair
from audit.compare.sentences import family_note, headline, primary_note
from audit.measures import Report
from audit.report.blocks import FeatureValue, Gallery, Thumbnail


def compare_reports(
    old: Named, new: Named, command: str, at_one_loss: AtOneLoss | None = None, shown: Gallery | None = None
) -> Comparison:
    """`at_one_loss`: both sides at one train loss, for the numbers that follow it; `shown`: samples that changed."""
    check_comparable(old, [new])
    names = side_names(old, new)
    void = why_void([Named(names[0], old.report), Named(names[1], new.report)])
    primary = PRIMARY[new.report.model.task]
    observed = [*observed_numbers(old.report, new.report), *unpaired_numbers(old.report, new.report)]
    inside, matched, why = network_numbers(old.report, new.report, at_one_loss)
    numbers = [voided(number) if void else number for number in (*observed, *inside)]
    first = next(number for number in numbers if number.key == primary)
    loss = next(number for number in numbers if number.key == "gap.test_loss")
    alone = disagreements(old.report, new.report)
    samples = [*samples_notes(old.report, new.report), *few_samples_notes(old.report, new.report)]
    notes = [primary_note(first, "models"), *samples, *why, family_note(numbers, primary)]
    return Comparison(
        schema=SCHEMA,
        created=now(),
        version=__version__,
        command=command,
        about="models",
        old=side_of(names[0], [old]),
        new=side_of(names[1], [new]),
        void=void,
        primary=primary,
        verdict=VOID if void else first.verdict,
        headline=headline(first, loss, void, alone, new.report),
        numbers=numbers,
        matched=matched,
        only_old_wrong=None if alone is None else alone[0],
        only_new_wrong=None if alone is None else alone[1],
        samples=changed_samples(old.report, new.report, shown),
        notes=notes,
        appeared=only_in([new], [old]),
        disappeared=only_in([old], [new]),
    )


def observed_numbers(old: Report, new: Report) -> list[Number]:
    """Loss, error and their gaps; error is left out for regression, which has none."""
    found = gap_differences(old, new)
    entries = [entry for entry in OBSERVED if new.gap.test_error is not None or "error" not in entry.key]
    numbers = []
    for entry in entries:
        part = found[entry.key.removeprefix("gap.")]
        if part.skipped is not None or part.difference is None:
            numbers.append(skipped(entry, part.skipped))
            continue
        numbers.append(
            replace(
                skipped(entry),
                old=part.old,
                new=part.new,
                difference=part.difference,
                ci95=part.ci95,
                samples=part.samples,
                in_use=part.in_use,
                paired=part.paired,
                verdict=verdict(entry, part.difference, part.ci95, part.identical),
            )
        )
    return numbers


def disagreements(old: Report, new: Report) -> tuple[int, int] | None:
    """Test samples that only the old, and only the new model gets wrong."""
    pairs = pair(old, new, "test")
    if pairs is None or pairs.old.wrong is None or pairs.new.wrong is None or pairs.new.asked is not None:
        return None
    return int((pairs.old.wrong > pairs.new.wrong).sum()), int((pairs.new.wrong > pairs.old.wrong).sum())


def voided(number: Number) -> Number:
    """Without a verdict where the test split is void."""
    return replace(number, verdict=VOID) if number.verdict in (BETTER, WORSE) or "test" in number.key else number


def side_names(old: Named, new: Named) -> tuple[str, str]:
    """The models' file names where they tell the two apart, else the reports'."""
    paths = old.report.model.path, new.report.model.path
    return short_names(*paths) if paths[0] != paths[1] else short_names(old.name, new.name)


def side_of(name: str, members: list[Named]) -> Side:
    """What was compared."""
    first = members[0].report
    return Side(
        name=name,
        reports=[member.name for member in members],
        model_sha256=[member.report.model.sha256 for member in members],
        created=[member.report.created for member in members],
        data=first.data.path,
        data_sha256=first.data.sha256,
        train_samples=first.data.train.samples,
        test_samples=first.data.test.samples,
        parameters=first.model.parameters,
        findings=list(_findings(members).values()),
        warnings=list(dict.fromkeys(warning for member in members for warning in member.report.warnings)),
    )


def only_in(members: Sequence[Named], others: Sequence[Named]) -> list[str]:
    """Findings that ask for attention on one side and not on the other."""
    known = _findings(others)
    return [words for key, words in _findings(members).items() if key not in known]


def _findings(members: Sequence[Named]) -> dict[str, str]:
    """Findings that ask for attention, by id: level and title."""
    every = (each for member in members for each in member.report.findings if each.level in ("watch", "concern"))
    return {each.id: f"{each.level}: {each.title}" for each in every}


def now() -> str:
    """The time in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# Which test samples got worse and which got better: by wrong answers first, then by how much their loss moved.


MOST = 8  # samples to either side


def changed_samples(old: Report, new: Report, shown: Gallery | None = None, most: int = MOST) -> ChangedSamples:
    """Of the samples that both reports have; of one side only those that lost, or gained, something.

    `shown` has pictures or features of them, where the data are at hand; else the reports may have some.
    """
    pairs = pair(old, new, "test")
    if pairs is None or not pairs.enough:
        return ChangedSamples()
    rise = pairs.new.loss - pairs.old.loss
    answer = np.zeros(len(rise))
    if pairs.old.wrong is not None and pairs.new.wrong is not None:
        answer = pairs.new.wrong - pairs.old.wrong
    order = np.lexsort((np.arange(len(rise)), -rise, -answer))  # those that became wrong, then by the loss
    seen, rows = _pictures(old, new, shown)
    losers = [place for place in order[:most] if (answer[place], rise[place]) > (0, 0)]
    winners = [place for place in order[::-1][:most] if (answer[place], rise[place]) < (0, 0)]
    return ChangedSamples(
        worse=[_sample(pairs, int(place), seen, rows) for place in losers],
        better=[_sample(pairs, int(place), seen, rows) for place in winners],
    )


def _sample(
    pairs: PairedAnswers, place: int, seen: dict[int, Thumbnail], rows: dict[int, list[FeatureValue]]
) -> ChangedSample:
    index = int(pairs.positions[place])
    old, new = (None if side.wrong is None else bool(side.wrong[place]) for side in (pairs.old, pairs.new))
    return ChangedSample(
        index=index,
        old_loss=float(pairs.old.loss[place]),
        new_loss=float(pairs.new.loss[place]),
        old_wrong=old,
        new_wrong=new,
        picture=seen.get(index),
        features=rows.get(index, []),
    )


def _pictures(
    old: Report, new: Report, shown: Gallery | None
) -> tuple[dict[int, Thumbnail], dict[int, list[FeatureValue]]]:
    """What is shown of test samples, by position; the new report's counts where both have it."""
    one_folder = bool(new.data.sha256) and old.data.sha256 == new.data.sha256
    every = [*([old.gallery] if one_folder else []), new.gallery, shown]
    galleries = [gallery for gallery in every if gallery is not None]
    seen = {one.index: one for gallery in galleries for one in gallery.thumbnails if one.split == "test"}
    rows = {one.index: one.features for gallery in galleries for one in gallery.rows}
    return seen, rows


# Does the difference in loss rest on a handful of samples, or on a small test set? Then its interval is less sure.


HANDFUL = 10  # samples, and at most a twentieth of all
SMALL = 200  # below this the interval of a skewed mean misses too often; see maths/intervals.py


def few_samples_notes(old: Report, new: Report) -> list[str]:
    """What a reader of the test loss must know; nothing where many samples share in it."""
    pairs = pair(old, new, "test")
    if pairs is None or not pairs.enough or pairs.identical("loss"):
        return []
    n, half, notes = len(pairs), carrying_half(pairs.new.loss - pairs.old.loss), []
    if half <= min(HANDFUL, n / 20):
        few = "One sample makes" if half == 1 else f"{half} samples make"
        notes.append(
            f"{few} up more than half of all that changed in the test loss, of {n:,} samples: its mean rests on very "
            "few of them, and its interval is less sure than it looks. Look at these samples before trusting it."
        )
    if n < SMALL:
        notes.append(
            f"With {n:,} test samples, a kind of sample rarer than about 1 in {max(2, n // 3):,} may be missing. "
            "No interval knows of it: a mean loss that rare, costly mistakes decide can be worse than it looks."
        )
    return notes


def carrying_half(differences: NDArray[np.float64]) -> int:
    """How many samples, the largest first, make up more than half of the sum of |d|.

    >>> carrying_half(np.array([0.0, 5.0, -1.0, 2.0])), carrying_half(np.ones(10))
    (1, 6)
    """
    sizes = np.sort(np.abs(differences))[::-1].cumsum()
    return int((sizes <= sizes[-1] / 2).sum()) + 1
