"""Samples to look at: which pictures the page shows, and what stands beneath them."""

from __future__ import annotations

from audit.measures.duality.block import SampleGap
from audit.measures.hygiene.block import Neighbour, Suspect
from audit.measures.report import Report
from audit.report.blocks import NEIGHBOURS, PAIRS, SUSPECTS, FeatureDifference, Thumbnail
from audit.report.numbers import number, share, signed

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
