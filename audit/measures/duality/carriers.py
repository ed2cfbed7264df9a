"""Which test samples and which classes carry the gap over pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.data.dataset import Split
from audit.maths.resample import interval, resampled_means
from audit.measures.contract import Audit
from audit.measures.duality.block import Carriers, ClassShare, SampleGap
from audit.measures.duality.intervals import share_interval
from audit.measures.duality.pairs import Pairs
from audit.network.loss import SquaredError
from audit.network.outcome import Outcome

LISTED = 20
NO_PAIRS = "no test sample has a train sample of its label, so there are no pairs to compare"

Array = NDArray[np.float64]


def find_carriers(audit: Audit, pairs: Pairs) -> Carriers:
    """The pairs with the largest gap, and the gap class by class."""
    classes = None if isinstance(audit.loss, SquaredError) else class_names(audit)
    if not len(pairs):
        return Carriers(
            pairs=0,
            unpaired=pairs.unpaired,
            gap=None,
            samples=[],
            samples_share=None,
            classes=None,
            skipped=NO_PAIRS,
        )
    test, partner = Outcome.of(chunk.test for chunk in pairs), Outcome.of(chunk.partner for chunk in pairs)
    gap = test.loss - partner.loss
    top = np.argsort(-gap, kind="stable")[:LISTED]
    total = float(gap.sum())
    draws = resampled_means(gap[:, None], audit.settings.bootstrap, audit.settings.seed)[:, 0]
    return Carriers(
        pairs=len(pairs),
        unpaired=pairs.unpaired,
        gap=float(gap.mean()),
        gap_ci95=interval(draws),
        samples=[_sample(audit, pairs, test, partner, classes, int(k)) for k in top],
        samples_share=float(gap[top].sum()) / total if total > 0 else None,
        classes=None if classes is None else _by_class(audit, test, gap, classes),
    )


def class_names(audit: Audit) -> list[str]:
    """The names of the classes; their numbers where the data has no names."""
    if audit.data.classes is not None:
        return list(audit.data.classes)
    return [str(index) for index in range(max(2, audit.test_outcome.scores.shape[1]))]


def _sample(
    audit: Audit, pairs: Pairs, test: Outcome, partner: Outcome, classes: list[str] | None, k: int
) -> SampleGap:
    return SampleGap(
        index=_stored(audit.data.test, int(pairs.rows[k])),
        partner=_stored(audit.data.train, int(pairs.partner[k])),
        label=None if classes is None else classes[int(test.labels[k])],
        prediction=_prediction(test, classes, k),
        partner_prediction=_prediction(partner, classes, k),
        test_loss=float(test.loss[k]),
        partner_loss=float(partner.loss[k]),
        gap=float(test.loss[k] - partner.loss[k]),
    )


def _by_class(audit: Audit, test: Outcome, gap: Array, classes: list[str]) -> list[ClassShare]:
    total = float(gap.sum())
    members = test.labels[:, None] == np.arange(len(classes))  # [K, classes]
    columns = np.concatenate([members * gap[:, None], members.astype(np.float64)], 1)
    parts, counts = np.split(resampled_means(columns, audit.settings.bootstrap, audit.settings.seed), 2, axis=1)
    whole, shares = parts.sum(1), []
    for label, name in enumerate(classes):
        mine = gap[test.labels == label]
        drawn = counts[:, label] > 0
        shares.append(
            ClassShare(
                name=name,
                pairs=len(mine),
                unpaired=int((audit.test_outcome.labels == label).sum()) - len(mine),
                contribution=float(mine.sum()) / len(gap),
                share=float(mine.sum()) / total if total > 0 else None,
                mean_gap=float(mine.mean()) if len(mine) else None,
                contribution_ci95=interval(parts[:, label]),
                share_ci95=share_interval(parts[:, label], whole) if total > 0 else None,
                mean_gap_ci95=interval(parts[drawn, label] / counts[drawn, label]) if len(mine) else None,
            )
        )
    return shares


def _prediction(outcome: Outcome, classes: list[str] | None, k: int) -> str | None:
    if classes is None:
        return None
    scores = outcome.scores[k]
    return classes[int(scores[0] >= 0) if len(scores) == 1 else int(scores.argmax())]


def _stored(split: Split, position: int) -> int:
    return int(split.index[position]) if len(split.index) else position
