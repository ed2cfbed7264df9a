"""What two reports observed differently: loss, error and their gaps, new minus old, each with its interval.

With a weight other than 1 it is the difference new − weight · old: a limit of "10 % worse" is a question about the mean
of new − 1.1 · old, whose interval also knows that the old mean is no more exact than the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from audit.compare.pairs import Pairs, pair, same_samples
from audit.maths.intervals import LEVEL, mean_interval, normal_quantile, share_interval
from audit.maths.shares import difference_interval
from audit.measures.report import Report
from audit.report.fields import Interval, says

SPLITS, KINDS = ("test", "train"), ("error", "loss")
GAP_NUMBERS = ("test_error", "test_loss", "train_error", "train_loss", "error_gap", "loss_gap")
NO_ERROR = "regression has no wrong answers"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of both reports."""

    key: str = says("its path in report.json")
    old: float | None = None
    new: float | None = None
    difference: float | None = says("new minus old", default=None)
    ci95: Interval = says("95 % interval of the difference", default=None)
    samples: int | None = says("samples behind it that both reports have", default=None)
    in_use: int | None = says("samples of the report that used more of them", default=None)
    identical: bool = says("whether both models do the very same on every sample", default=False)
    paired: bool = says("whether the interval pairs both models on each sample, or treats them as independent")
    skipped: str | None = says("why it was not compared", default=None)


@dataclass(frozen=True)
class Asked:
    """Which difference, and how sure."""

    level: float = LEVEL  # share of intervals that may miss the truth
    weight: float = 1.0  # of the old value


USUAL = Asked()


def gap_differences(old: Report, new: Report, asked: Asked = USUAL) -> dict[str, Difference]:
    """By name of the number in `report.gap`; one that cannot be compared says why in `skipped`."""
    found = {f"{split}_{kind}": split_difference(old, new, split, kind, asked) for split in SPLITS for kind in KINDS}
    for kind in KINDS:
        found[f"{kind}_gap"] = _gap_difference(kind, found[f"test_{kind}"], found[f"train_{kind}"])
    return {name: found[name] for name in GAP_NUMBERS}


def split_difference(old: Report, new: Report, split: str, kind: str, asked: Asked = USUAL) -> Difference:
    """The "error" or the "loss" of one split alone."""
    pairs, name = pair(old, new, split), f"{split}_{kind}"
    if pairs is not None and pairs.enough:
        return _paired(split, kind, pairs, asked)
    if pairs is None and same_samples(old, new, split):
        return _unpaired(name, old, new, asked)
    if pairs is None:
        return _skipped(name, f"the {split} samples of the two reports differ")
    return _skipped(name, f"the two reports share {len(pairs):,} of {pairs.kept:,} {split} samples, fewer than half")


def _paired(split: str, kind: str, pairs: Pairs, asked: Asked) -> Difference:
    """Means over the common samples, and the interval of their difference."""
    name = f"{split}_{kind}"
    old, new = pairs.old.values(kind), pairs.new.values(kind)
    if old is None or new is None:
        return _skipped(name, NO_ERROR)
    if kind == "error" and asked.weight == 1:
        ci95: Interval = share_interval(old, new, asked.level)
    else:
        ci95 = mean_interval(new - asked.weight * old, asked.level)
    made = _difference(name, asked.weight * float(old.mean()), float(new.mean()), ci95, len(pairs), paired=True)
    return replace(made, in_use=pairs.in_use, identical=pairs.identical(kind))


def _unpaired(name: str, old: Report, new: Report, asked: Asked) -> Difference:
    """From both reports' own intervals, as if the samples were different ones: too wide, but right."""
    before, after = getattr(old.gap, name), getattr(new.gap, name)
    if before is None or after is None:
        return _skipped(name, NO_ERROR)
    wider = normal_quantile(asked.level / 2) / normal_quantile(LEVEL / 2)
    of_old = stretched(before, getattr(old.gap, f"{name}_ci95"), wider, asked.weight)
    of_new = stretched(after, getattr(new.gap, f"{name}_ci95"), wider)
    ci95 = difference_interval(after, asked.weight * before, of_new, of_old)
    samples = (new.data.test if name.startswith("test") else new.data.train).samples
    made = _difference(name, asked.weight * before, after, ci95, samples, paired=False)
    return replace(made, identical=before == after and old.model.sha256 == new.model.sha256)


def stretched(value: float, ci95: Interval, wider: float, weight: float = 1.0) -> Interval:
    """The interval of weight · value, `wider` times as wide."""
    if ci95 is None:
        return None
    ends = weight * (value - wider * (value - ci95[0])), weight * (value + wider * (ci95[1] - value))
    return min(ends), max(ends)


def _gap_difference(kind: str, test: Difference, train: Difference) -> Difference:
    """Test minus train: the two splits are independent samples."""
    name = f"{kind}_gap"
    for part in (test, train):
        if part.skipped is not None or part.difference is None:
            return _skipped(name, part.skipped or "one of its parts is missing")
    assert test.old is not None and test.new is not None and train.old is not None and train.new is not None
    assert test.difference is not None and train.difference is not None
    ci95 = difference_interval(test.difference, train.difference, test.ci95, train.ci95)
    made = _difference(name, test.old - train.old, test.new - train.new, ci95, None, test.paired and train.paired)
    same = test.identical and train.identical
    return replace(made, difference=test.difference - train.difference, identical=same)


def _difference(name: str, old: float, new: float, ci95: Interval, samples: int | None, paired: bool) -> Difference:
    return Difference(
        key=f"gap.{name}", old=old, new=new, difference=new - old, ci95=ci95, samples=samples, paired=paired
    )


def _skipped(name: str, why: str) -> Difference:
    return Difference(key=f"gap.{name}", paired=False, skipped=why)
