"""The gap class by class where samples have a label at every position: losses and errors of a class's positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import TEST, TRAIN, Bootstrap, cluster_share, cluster_sums, interval
from audit.measures.gap.block import ClassGap
from audit.network.records import Outcome
from audit.report.fields import Interval

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassPositions:
    """The positions of one class in a split, by the samples that have any: sums over the positions of each [m]."""

    loss: Array
    wrong: Array
    asked: Array
    stream: int

    @classmethod
    def of(cls, outcome: Outcome, index: int, stream: int) -> ClassPositions:
        """Of class `index`."""
        each = outcome.by_position
        assert each.sample is not None and each.wrong is not None
        mine = each.labels == index
        columns = np.stack([each.loss[mine], each.wrong[mine], np.ones(int(mine.sum()))], 1)
        sums = cluster_sums(columns, each.sample[mine], len(outcome.loss))
        loss, wrong, asked = sums[sums[:, 2] > 0].T
        return cls(loss, wrong, asked, stream)

    @property
    def count(self) -> int:
        """Positions."""
        return int(self.asked.sum())

    def mean(self, values: Array) -> float | None:
        """Over the positions, of sums by sample [m]."""
        return float(values.sum() / self.asked.sum()) if self.count else None

    def drawn(self, bootstrap: Bootstrap) -> Array:
        """Mean losses under all draws of samples [draws]."""
        means = bootstrap.means(np.stack([self.loss, self.asked], 1), self.stream)
        return np.asarray(means[:, 0] / means[:, 1])

    def loss_ci95(self, bootstrap: Bootstrap) -> Interval:
        """Of the mean loss."""
        return interval(self.drawn(bootstrap)) if self.count else None

    def error_ci95(self, bootstrap: Bootstrap) -> Interval:
        """Of the share of wrong answers."""
        return cluster_share(self.wrong, self.asked, bootstrap, self.stream) if self.count else None


def class_gaps_by_position(
    train: Outcome, test: Outcome, classes: Sequence[str], bootstrap: Bootstrap
) -> list[ClassGap]:
    """Means over the positions of a class, with intervals by a bootstrap over samples."""
    return [
        _class_gap(name, ClassPositions.of(train, index, TRAIN), ClassPositions.of(test, index, TEST), bootstrap)
        for index, name in enumerate(classes)
    ]


def _class_gap(name: str, train: ClassPositions, test: ClassPositions, bootstrap: Bootstrap) -> ClassGap:
    absent = " and ".join(split for split, own in (("train", train), ("test", test)) if not own.count)
    train_loss, test_loss = train.mean(train.loss), test.mean(test.loss)
    both = train_loss is not None and test_loss is not None
    return ClassGap(
        name=name,
        train_samples=train.count,
        test_samples=test.count,
        train_loss=train_loss,
        train_loss_ci95=train.loss_ci95(bootstrap),
        test_loss=test_loss,
        test_loss_ci95=test.loss_ci95(bootstrap),
        train_error=train.mean(train.wrong),
        train_error_ci95=train.error_ci95(bootstrap),
        test_error=test.mean(test.wrong),
        test_error_ci95=test.error_ci95(bootstrap),
        loss_gap=None if train_loss is None or test_loss is None else test_loss - train_loss,
        loss_gap_ci95=interval(test.drawn(bootstrap) - train.drawn(bootstrap)) if both else None,
        skipped=None if both else f"no {absent} positions of this class",
    )
