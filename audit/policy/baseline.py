"""Compares a number with the same number of an earlier report: only where that means something, and with an interval.

Two reports are comparable number by number. What is measured on the test split needs the same test samples; a gap, and
whatever is measured inside the network, needs the same train samples, too. Curvature follows the train loss, so it says
nothing between two models that were fitted to different losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from audit.compare.comparable import CHANGE_NUMBERS, NETWORK, architecture, at_one_train_loss, follows_train_loss
from audit.compare.differences import Asked, Difference, gap_differences, same_samples, stretched
from audit.maths.shares import difference_interval
from audit.measures import Report
from audit.measures.catalogue import KEYS_OF_REPORT
from audit.policy import Bound, Interval, Status
from audit.report.paths import Found

HIGHER_IS_BETTER = ("_accuracy", "_r2")
LOWER_IS_BETTER = ("_error", "_loss", "_rmse", "_gap")
UNPAIRED = "not paired sample by sample, since a report kept no outcomes: the interval is wider than it need be"
OF_THE_INPUT = (
    *("network.fisher.robustness", "network.sensitivity.dimensionality", "network.sensitivity.mean_rank"),
    *(f"network.sensitivity.{name}" for name in ("mls", "input_invariant_mls", "normalized_mls")),
    *(f"network.sensitivity.{name}" for name in ("mean_log_volume", "log_mean_volume", "mean_log_volume_centred")),
)
"""Numbers of the network that do not run over its layers and weights, so that any two networks share them."""
ON_SPLITS = {*KEYS_OF_REPORT, "layers", "network"} - {"hygiene"}
"""Blocks that were measured with the model on the samples; hygiene is about the data."""


@dataclass(frozen=True)
class Worsening:
    """By how much a number rose from the baseline, or fell where that is worse, as with accuracy and R²."""

    new: float
    old: float
    by: float
    interval: Interval
    caveat: str | None = None  # why it says nothing although it could be computed
    has_bad_side: bool = True  # whether a rise is known to be for the worse
    basis: str | None = None  # which samples it rests on, where these are not the same ones, one by one


@dataclass(frozen=True)
class Baseline:
    """A report and the one it is held against."""

    new: Report
    old: Report

    @cached_property
    def paired(self) -> dict[str, Difference]:
        """Differences of losses and errors over the samples that both reports have, by path."""
        found = gap_differences(self.old, self.new)
        return {f"gap.{name}": difference for name, difference in found.items()}

    def worsening(self, new: Found, old: Found, share: float = 0.0) -> Worsening | str:
        """The comparison of one number, or why there is none.

        Held against a share of the baseline's number, the interval is that of new − (1 + share) · old, moved to where
        the difference is: the limit itself is as uncertain as the baseline.
        """
        why_not = self._not_comparable(new.path)
        if why_not:
            return why_not
        error = self.paired.get(new.path.replace("_accuracy", "_error"))
        if error is not None and error.skipped is None:
            return self._from_samples(new.path, error, share)
        if old.missing is not None:
            return f"in the baseline: {old.missing}"
        sign = -1 if new.path.endswith(HIGHER_IS_BETTER) else 1
        return Worsening(
            new.value,
            old.value,
            by=sign * (new.value - old.value),
            interval=_oriented(sign, _of_independent(new, old, 1 + sign * _signed(share, old.value))),
            caveat=self._caveat(new.path),
            has_bad_side=new.path.startswith("gap.") and new.path.endswith(HIGHER_IS_BETTER + LOWER_IS_BETTER),
        )

    def _from_samples(self, path: str, difference: Difference, share: float) -> Worsening:
        """Both models on the same samples. An accuracy is 1 minus an error, so it falls by what the error rises."""
        assert difference.old is not None and difference.new is not None and difference.difference is not None
        new, old, by, interval = difference.new, difference.old, difference.difference, difference.ci95
        accuracy = path.endswith("_accuracy")
        if share:
            weight = 1 - share if accuracy else 1 + _signed(share, old)
            weighted = gap_differences(self.old, self.new, Asked(weight=weight))[difference.key.removeprefix("gap.")]
            assert weighted.difference is not None
            interval = _moved(weighted.ci95, by - weighted.difference)
        if accuracy:
            new, old = 1 - new, 1 - old
        if difference.identical and self.new.model.sha256 == self.old.model.sha256:
            return Worsening(new, old, by, (0.0, 0.0))
        return Worsening(new, old, by, interval, basis=_basis(difference))

    def rounding(self, path: str) -> float:
        """How far a mean loss can move by rounding alone: by as much as each network is off its file's own runtime.

        Cross-entropy moves by at most twice the largest change δ of a score, ½‖f − y‖² by about δ √(2 C loss).
        """
        if not path.startswith("gap.") or not path.endswith(("_loss", "loss_gap")):
            return 0.0
        off = max((parity.max_abs_diff for one in (self.new, self.old) if (parity := one.model.parity)), default=0.0)
        squared = self.new.model.loss == "mse"
        slope = (2 * self.new.model.outputs * max(self.old.gap.test_loss, self.new.gap.test_loss)) ** 0.5
        return off * (slope if squared else 2.0)

    def _not_comparable(self, path: str) -> str | None:
        for key in ("task", "loss"):
            before, now = getattr(self.old.model, key), getattr(self.new.model, key)
            if before != now:
                return f"the baseline's {key} is {before}, not {now}"
        if path in self.paired:
            skipped = self.paired[path].skipped
            return skipped and f"{skipped}; make a baseline on these data"
        for split in _rests_on(path):
            if not same_samples(self.old, self.new, split):
                return f"the baseline was judged on other {split} samples; make a baseline on these data"
        if not path.startswith(NETWORK):
            return None
        if path not in OF_THE_INPUT and architecture(self.old) != architecture(self.new):
            return "it runs over layers and weights, and the baseline's network has different ones"
        return self._other_settings()

    def _other_settings(self) -> str | None:
        now, before = self.new.settings, self.old.settings
        for name in CHANGE_NUMBERS:
            if name in now and name in before and now[name] != before[name]:
                return f"the baseline was made with {name} = {before[name]}, not {now[name]}; make it anew"
        return None

    def _caveat(self, path: str) -> str | None:
        """Numbers that follow the train loss compare only where both models were fitted to the same one."""
        if not follows_train_loss(path) or at_one_train_loss(self.old, self.new):
            return None
        now, before = self.new.gap.train_loss, self.old.gap.train_loss
        return (
            f"this number follows the train loss, which is {now:.3g} here and {before:.3g} in the baseline: a "
            "difference would say nothing"
        )


def _basis(difference: Difference) -> str | None:
    """What a reader must know of the samples behind a difference."""
    if not difference.paired:
        return UNPAIRED
    kept, in_use = difference.samples, difference.in_use
    return f"on the {kept:,} of {in_use:,} samples that both have" if kept and in_use and kept < in_use else None


def _of_independent(new: Found, old: Found, weight: float = 1.0) -> Interval:
    """From both intervals, as if the samples were different ones: too wide, so that it never calls too early."""
    if new.interval is None and old.interval is None:
        return None
    of_old = stretched(old.value, span(old.value, old.interval), 1.0, weight)
    between = difference_interval(new.value, weight * old.value, span(new.value, new.interval), of_old)
    return _moved(between, (weight - 1) * old.value)


def _signed(share: float, old: float) -> float:
    """A share of |old| as a share of old."""
    return -share if old < 0 else share


def _moved(interval: Interval, by: float) -> Interval:
    return None if interval is None else (interval[0] + by, interval[1] + by)


def _oriented(sign: int, interval: Interval) -> Interval:
    return interval if interval is None or sign > 0 else (-interval[1], -interval[0])


def _rests_on(path: str) -> tuple[str, ...]:
    """The splits that a number was measured on; numbers about the data or the file rest on none."""
    block, *inner = path.split(".")
    if block not in ON_SPLITS:
        return ()
    named = tuple(split for split in ("test", "train") if split in inner[:1] or inner[-1].startswith(f"{split}_"))
    return named if named and block in KEYS_OF_REPORT else ("test", "train")


# Decides between an interval and a limit, and leaves open what the interval leaves open.


def status_of(value: float, interval: Interval, bound: Bound, limit: float) -> Status:
    """Passed where the whole interval keeps the limit, failed where none of it does, else inconclusive.

    >>> status_of(0.04, (0.03, 0.06), "max", 0.05)
    'inconclusive'
    >>> status_of(0.04, None, "max", 0.05)
    'passed'
    """
    low, high = span(value, interval)
    if bound == "min":
        low, high, limit = -high, -low, -limit
    if high <= limit:
        return "passed"
    return "failed" if low > limit else "inconclusive"


def span(value: float, interval: Interval) -> tuple[float, float]:
    """The interval, widened to hold the value: a percentile interval of a skewed number may lie beside it."""
    low, high = interval or (value, value)
    return min(low, value), max(high, value)
