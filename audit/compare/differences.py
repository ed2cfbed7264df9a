"""What two reports observed differently: loss, error and their gaps, new minus old, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

from audit.compare.means import difference_interval, mean_interval
from audit.compare.pairs import Pairs, pair, same_samples
from audit.compare.shares import share_interval
from audit.fields import Interval, says
from audit.report import Report

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
    paired: bool = says("whether the interval pairs both models on each sample, or treats them as independent")
    skipped: str | None = says("why it was not compared", default=None)


def gap_differences(old: Report, new: Report) -> dict[str, Difference]:
    """By name of the number in `report.gap`; one that cannot be compared says why in `skipped`."""
    parts = {split: _split_differences(old, new, split) for split in ("test", "train")}
    found = {**parts["test"], **parts["train"]}
    for kind in ("error", "loss"):
        found[f"{kind}_gap"] = _gap_difference(kind, found[f"test_{kind}"], found[f"train_{kind}"])
    return {name: found[name] for name in GAP_NUMBERS}


def _split_differences(old: Report, new: Report, split: str) -> dict[str, Difference]:
    pairs = pair(old, new, split)
    kinds = ("error", "loss")
    if pairs is not None:
        return {f"{split}_{kind}": _paired(split, kind, pairs) for kind in kinds}
    if same_samples(old, new, split):
        return {f"{split}_{kind}": _unpaired(f"{split}_{kind}", old, new) for kind in kinds}
    why = f"the {split} samples of the two reports differ"
    return {f"{split}_{kind}": _skipped(f"{split}_{kind}", why) for kind in kinds}


def _paired(split: str, kind: str, pairs: Pairs) -> Difference:
    """Means over the common samples, and the interval of their difference."""
    name = f"{split}_{kind}"
    old, new = pairs.old.values(kind), pairs.new.values(kind)
    if old is None or new is None:
        return _skipped(name, NO_ERROR)
    ci95 = mean_interval(new - old) if kind == "loss" else share_interval(old, new)
    return _difference(name, float(old.mean()), float(new.mean()), ci95, len(pairs), paired=True)


def _unpaired(name: str, old: Report, new: Report) -> Difference:
    """From both reports' own intervals, as if the samples were different ones: too wide, but right."""
    before, after = getattr(old.gap, name), getattr(new.gap, name)
    if before is None or after is None:
        return _skipped(name, NO_ERROR)
    ci95 = difference_interval(after, before, getattr(new.gap, f"{name}_ci95"), getattr(old.gap, f"{name}_ci95"))
    samples = (new.data.test if name.startswith("test") else new.data.train).samples
    return _difference(name, before, after, ci95, samples, paired=False)


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
    return replace(made, difference=test.difference - train.difference)


def _difference(name: str, old: float, new: float, ci95: Interval, samples: int | None, paired: bool) -> Difference:
    return Difference(
        key=f"gap.{name}", old=old, new=new, difference=new - old, ci95=ci95, samples=samples, paired=paired
    )


def _skipped(name: str, why: str) -> Difference:
    return Difference(key=f"gap.{name}", paired=False, skipped=why)
