"""Which test samples got worse and which got better: by wrong answers first, then by how much their loss moved."""

from __future__ import annotations

import numpy as np

from audit.compare.differences import Pairs, pair
from audit.compare.result import ChangedSample, ChangedSamples
from audit.measures.report import Report
from audit.report.blocks import FeatureValue, Gallery, Thumbnail

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


def _sample(pairs: Pairs, place: int, seen: dict[int, Thumbnail], rows: dict[int, list[FeatureValue]]) -> ChangedSample:
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
