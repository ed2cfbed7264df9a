"""What the page says and shows of the data: samples to look at, copies, conflicts, suspect labels, class balance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.findings.rule import label as label
from audit.findings.rule import within
from audit.measures import Report
from audit.measures.duality.block import SampleGap
from audit.measures.hygiene.block import ClassBalance, Hygiene, Neighbour, Suspect, SuspectedMislabels
from audit.report.blocks import NEIGHBOURS, PAIRS, SUSPECTS, FeatureDifference, Thumbnail
from audit.report.fields import Interval
from audit.report.numbers import number, percent, points, share, signed

# Samples to look at: which pictures the page shows, and what stands beneath them.


FEATURES = 3  # of a pair of rows
SCALE = 2  # how much larger than stored a picture is shown
Pictures = dict[tuple[str, int], Thumbnail]


def pictures(report: Report) -> Pictures:
    """Every stored picture by split and position."""
    found = report.gallery.thumbnails if report.gallery else []
    return {(picture.split, picture.index): picture for picture in found}


def pairs(report: Report) -> list[tuple[SampleGap, Thumbnail, Thumbnail]]:
    """The costliest pairs with both pictures; none where there are no pictures."""
    seen, over_pairs = pictures(report), report.network.duality
    rows = over_pairs.samples[:PAIRS] if over_pairs else []
    wanted = [(row, ("test", row.index), ("train", row.partner)) for row in rows]
    return [(row, seen[test], seen[train]) for row, test, train in wanted if test in seen and train in seen]


def suspects(report: Report) -> list[tuple[Suspect, Thumbnail, list[Thumbnail]]]:
    """The strongest suspect labels with their picture and those of their neighbours."""
    seen, hygiene = pictures(report), report.hygiene
    rows = hygiene.suspected_mislabels.suspects[:SUSPECTS] if hygiene else []
    return [
        (row, seen["train", row.index], [seen["train", near.index] for near in _beside(row, seen)])
        for row in rows
        if ("train", row.index) in seen
    ]


def _beside(suspect: Suspect, seen: Pictures) -> list[Neighbour]:
    nearest = suspect.neighbours[:NEIGHBOURS]
    return [near for near in nearest if ("train", near.index) in seen]


def suspect_words(suspect: Suspect) -> str:
    """What the given label is and what the neighbours say."""
    around = f"{share(suspect.agreement)} of its neighbours are {suspect.neighbours_label}"
    return f"labelled {suspect.label}; {around}"


def differences(report: Report) -> dict[tuple[int, int], str]:
    """For rows of a table: in which features a test sample and its train partner differ most, in words."""
    found = report.gallery.pairs if report.gallery else []
    return {(pair.index, pair.partner): _apart(pair.features[:FEATURES]) for pair in found}


def compared(rows: list[SampleGap], differ: dict[tuple[int, int], str]) -> list[SampleGap]:
    """The rows that have such words."""
    return [row for row in rows if (row.index, row.partner) in differ]


def _apart(features: list[FeatureDifference]) -> str:
    parts = [
        f"{feature.name}: {number(feature.test)} against {number(feature.partner)}"
        + ("" if feature.deviations is None else f" ({signed(feature.deviations, 1)}\N{NO-BREAK SPACE}σ)")
        for feature in features
    ]
    return "; ".join(parts) or "no feature: their inputs are equal"


# What the page says in words about the data themselves: copies, conflicts, suspect labels, class balance.


SPACES = {
    "input": "the input as fed to the model",
    "standardised input": "the input with every feature standardised",
    "features": "what the last dense layer is fed",
}


def _block(report: Report) -> Hygiene:
    """What was found; the page asks only where there is something."""
    assert report.hygiene is not None
    return report.hygiene


def counted(count: int, total: int, things: str, what: str) -> str:
    """How many of all things are something.

    >>> counted(0, 1000, "test samples", "also in train"), counted(1, 50, "rows", "odd"), counted(5, 50, "rows", "odd")
    ('0 of the 1,000 test samples are also in train', '1 of the 50 rows is odd', '5 of the 50 rows are odd')
    """
    return f"{number(count)} of the {number(total)} {things} {'is' if count == 1 else 'are'} {what}"


def copies_sentences(report: Report) -> list[str]:
    """How much of the test split is in train, exactly or nearly, and where only a part of train was searched."""
    block, tests = _block(report), report.data.test.samples
    exact, leak = block.duplicates_across_splits, block.leaked
    part = f" ({percent(exact / tests)})" if exact else ""
    sentences = [f"{counted(exact, tests, 'test samples', f'also in train, number for number{part}')}."]
    if leak.coincidences:
        sentences.append(
            f"For {number(leak.coincidences)} of them that may be chance: other train samples share half of their "
            "values."
        )
    sentences.append(_near_sentence(block))
    if leak.searched < 1:
        sentences.append(
            f"Only {percent(leak.searched)} of the train samples on disk were searched; a search of all of them "
            f"would find about {percent(leak.estimated_share)} of the test samples with the same {label(report)}."
        )
    sentences.append(
        f"Within train {_repeat(block.duplicates_within_train)}, within test {_repeat(block.duplicates_within_test)}."
    )
    return sentences


def told_sentence(report: Report) -> str:
    """Whether test inputs are like train inputs, as far as a simple classifier can tell."""
    found = _block(report).told_apart
    if found is None or found.accuracy is None or found.by_chance is None:
        return found.skipped if found is not None and found.skipped else "This was not asked."
    low, high = found.by_chance
    verdict = "they differ" if found.differ else "no difference was found"
    return (
        f"A simple classifier, asked of {number(found.samples)} inputs one by one without having seen the one, tells "
        f"{share(found.accuracy)} rightly; of random divisions of the same inputs {share(low)} to {share(high)}, in 95 "
        f"of 100 cases: {verdict}."
    )


def _near_sentence(block: Hygiene) -> str:
    count, near = block.near_duplicates, block.near
    if count is None:
        return f"Near duplicates were not looked for. {near.skipped or ''}".rstrip()
    if not count:
        return "No other test sample comes closer to a train sample than chance would bring it."
    come = f"{number(count)} more {'comes' if count == 1 else 'come'} far closer to a train sample than chance would"
    if near.within_train is None:
        return f"{come}."
    return f"{come}; within train, {percent(near.within_train)} of the samples have such a twin."


def _repeat(count: int) -> str:
    return f"{number(count) if count else 'no'} {'sample repeats' if count < 2 else 'samples repeat'} an earlier one"


def conflicts_sentence(report: Report) -> str:
    """Equal inputs with different answers, and what they mean for any model."""
    found, name = _block(report).conflicts, label(report)
    if not found.within_train + found.across_splits:
        return f"No sample's input is in train with another {name}."
    return (
        f"The inputs of {number(found.within_train)} train and {number(found.across_splits)} test samples are in "
        f"train with another {name}: no model can be right on all of them. Which {name} is wrong, if any, cannot be "
        "told from that."
    )


def without_copies_sentence(report: Report) -> str:
    """The gap on the test samples that are not in train, or why there is none."""
    leak, gap = _block(report).leaked, report.gap
    fresh = leak.without_copies
    if fresh is None:
        return leak.skipped or "The gap without copies was not measured."
    error = ""
    if fresh.error_gap is not None:
        error = (
            f" and the error gap {points(fresh.error_gap)}{within(fresh.error_gap_ci95, 'points')} instead of "
            f"{points(gap.error_gap)}"
        )
    return (
        f"On the {number(fresh.samples)} test samples without a copy in train the loss gap is "
        f"{number(fresh.loss_gap)}{within(fresh.loss_gap_ci95)} instead of {number(gap.loss_gap)}{error}: "
        f"{'outside' if fresh.moved else 'within'} the 95 % interval of the gap with the copies."
    )


def mislabels_sentences(report: Report) -> list[str]:
    """How many labels are suspect, against what chance would give, and what rate of wrong ones that points to."""
    block, samples = _block(report).suspected_mislabels, report.data.train.samples
    asked = block.asked or samples
    if block.count is None:
        return [f"Not measured. {block.skipped or ''}".rstrip()]
    part = f" ({percent(block.share)})" if block.count else ""
    chance = block.expected_by_chance
    yardstick = (
        "" if chance is None else f"; if train labels were as right as test labels, {_about(chance)} would be by chance"
    )
    sentences = [f"{counted(block.count, asked, 'train labels', f'suspect{part}')}{yardstick}."]
    if asked < samples:
        sentences.append(f"These {number(asked)} were drawn at random from {number(samples)}.")
    if block.estimated_rate is not None:
        sentences.append(
            f"The share of wrong train labels beyond those in test is estimated at {percent(block.estimated_rate)}"
            f"{within(block.estimated_rate_ci95, 'percent')}{_beyond_chance(block.estimated_rate_ci95)}."
        )
    elif not block.caveat:
        sentences.append("No rate can be told: the neighbours foretell test labels no better than guessing would.")
    return sentences + ([block.caveat] if block.caveat else [])


def _about(chance: float) -> str:
    return f"about {number(round(chance))}" if chance >= 1 or not chance else "fewer than one"


def _beyond_chance(bounds: Interval) -> str:
    if bounds is None:
        return ""
    if bounds[0] > 0:
        return ": more than chance explains"
    return "; the interval includes zero, so these samples do not show that any is wrong"


def space_sentence(block: SuspectedMislabels) -> str:
    """Where the neighbours were looked for, and how well they foretell labels there and elsewhere."""
    space = block.space or "no space"
    agreement = {tried.name: tried.agreement for tried in block.spaces}
    chosen = agreement.pop(space, None)
    foretell = "" if chosen is None else f", where neighbours foretell {share(chosen)} of the test labels"
    others = [f"{SPACES.get(name, name)} ({share(value)})" for name, value in agreement.items() if value is not None]
    also = f" Also tried: {'; '.join(others)}." if others else ""
    return f"Neighbours are those in {SPACES.get(space, space)}{foretell}.{also}"


def balance_sentences(block: ClassBalance, unit: str = "sample") -> list[str]:
    """Whether the classes of train and test are in proportion, and which are missing."""
    if block.train is None:
        return [block.skipped or "Not measured."]
    chance = f"p = {number(block.p_value)}, from {number(block.draws)} random re-divisions of the samples"
    if block.differ:
        verdict = f"differ by more than chance ({chance}); that alone can widen or narrow the gap"
    else:
        verdict = f"differ no more than chance would make them ({chance})"
    sentences = [
        f"The proportions of the classes in train and test {verdict}.",
        f"All classes of train have the same number of {unit}s."
        if block.ratio == 1
        else f"The largest class of train has {number(block.ratio)} times as many {unit}s as the smallest.",
    ]
    for split, missing in (("train", block.missing_in_train), ("test", block.missing_in_test)):
        if missing:
            sentences.append(f"Without any {split} {unit}: {listed(missing)}.")
    return sentences


def listed(names: Sequence[Any], most: int = 10) -> str:
    """The first of some names.

    >>> listed(["a", "b"]), listed(range(12), 3)
    ('a, b', '0, 1, 2 and 9 more')
    """
    more = f" and {number(len(names) - most)} more" if len(names) > most else ""
    return ", ".join(str(name) for name in names[:most]) + more


def class_rows(block: ClassBalance, most: int) -> list[tuple[str, int, float, int, float]]:
    """Name, train count and share, test count and share; of many classes those whose shares differ most."""
    train, test = block.train or {}, block.test or {}
    all_train, all_test = sum(train.values()) or 1, sum(test.values()) or 1
    rows = [(name, train[name], train[name] / all_train, test[name], test[name] / all_test) for name in train]
    return rows if len(rows) <= most else sorted(rows, key=lambda row: -abs(row[2] - row[4]))[:most]


def summary(report: Report) -> str:
    """One line about the data, for a comment."""
    block = report.hygiene
    if block is None:
        return "not part of this audit."
    near, mislabels, balance = block.near_duplicates, block.suspected_mislabels, block.class_balance
    nearly = "not looked for" if near is None else number(near)
    parts = [f"test samples also in train: {number(block.duplicates_across_splits)} exactly, near ones {nearly}"]
    parts.append(f"conflicting {label(report)}s: {number(block.conflicting_labels)}")
    if mislabels.count is not None:
        chance = mislabels.expected_by_chance
        by_chance = "" if chance is None else f" ({_about(chance)} by chance)"
        parts.append(f"suspect train labels: {number(mislabels.count)}{by_chance}")
    if mislabels.estimated_rate is not None:
        bounds = within(mislabels.estimated_rate_ci95, "percent")
        parts.append(f"estimated wrong: {percent(mislabels.estimated_rate)}{bounds}")
    if balance.differ is not None:
        parts.append(f"class proportions {'differ' if balance.differ else 'alike'}")
    return f"{'the verdict is void; ' if block.leaked.void else ''}{'; '.join(parts)}."
