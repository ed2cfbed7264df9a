"""Are the data themselves in order? Copies across the splits, conflicting and suspect labels, class balance.

A gap measured on a test split that is partly in train is no gap, and a network that was taught wrong labels cannot be
right. Everything is counted on the samples as used, as they are fed to the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.measures.contract import Audit, Card, Fold, Measure, Measurement
from audit.measures.hygiene.answers import balance, conflicts, duplicate_pairs, near_duplicates, suspected_mislabels
from audit.measures.hygiene.block import Hygiene
from audit.measures.hygiene.card import CARDS
from audit.measures.hygiene.ground import Ground
from audit.measures.hygiene.leak import find_leak
from audit.measures.hygiene.rows import repeats
from audit.network.layers import dense_only
from audit.network.record import Record


class HygieneMeasure:
    """Duplicates, conflicts, suspect labels, balance, leaks."""

    key = "hygiene"
    question = "Are the data themselves in order?"
    cards: tuple[Card, ...] = CARDS

    def start(self, audit: Audit) -> Fold:
        """Begins to keep the features of the train samples."""
        return _HygieneFold(audit)


MEASURE: Measure = HygieneMeasure()


class _HygieneFold:
    def __init__(self, audit: Audit) -> None:
        self.audit, self.last = audit, dense_only(audit.layers)[-1]
        self.features: list[Tensor] = []

    def see(self, record: Record) -> None:
        """Takes what the last dense layer is fed, unless that is the input itself."""
        if not self.last.fed_by_input:
            self.features.append(record.layers[self.last.name].x.flatten(1))

    def finish(self) -> Measurement:
        """Everything about the data at once."""
        ground = Ground(self.audit, torch.cat(self.features) if self.features else None)
        twins, train = ground.twins, self.audit.data.train
        outcomes = self.audit.train_outcome, self.audit.test_outcome
        searched = len(train) / max(train.total, len(train))
        near_count, near = near_duplicates(ground)
        conflicting = conflicts(ground)
        return Measurement(
            network=Hygiene(
                duplicates_across_splits=int(twins.across.sum()),
                duplicates_within_train=repeats(twins.train_x),
                duplicates_within_test=repeats(twins.test_x),
                near_duplicates=near_count,
                conflicting_labels=conflicting.within_train + conflicting.across_splits,
                duplicate_pairs=duplicate_pairs(ground),
                near=near,
                conflicts=conflicting,
                suspected_mislabels=suspected_mislabels(ground),
                class_balance=balance(ground),
                leaked=find_leak(twins, ground.coincidences, *outcomes, searched, self.audit.settings),
            )
        )
