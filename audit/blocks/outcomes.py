"""What the model did on each sample, kept so that two reports can be compared sample by sample. Not on the page."""

from __future__ import annotations

from dataclasses import dataclass

from audit.fields import says


@dataclass(frozen=True, kw_only=True)
class SplitOutcomes:
    """One split, in the order of its positions."""

    sha256: str = says("of the samples and labels in use, as read: equal in two reports that judged the same samples")
    samples: int = says("samples in use; where there are more than positions, a fixed draw of them is kept")
    positions: list[int] = says("in the split as stored, ascending")
    loss: list[float] = says("loss of each sample; for regression half its squared error")
    wrong: list[int] | None = says("1 where the answer is wrong, else 0; null for regression", default=None)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Both splits."""

    train: SplitOutcomes
    test: SplitOutcomes
