"""Samples of one split, and what a network answers to them: as they are, and with something changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.data.dataset import Split
from audit.maths import Interval
from audit.maths.blocks import blocks
from audit.maths.intervals import score_bounds, student_quantile
from audit.maths.resample import Bootstrap, interval
from audit.maths.shares import wilson
from audit.measures.contract import Audit
from audit.model.base import Part, as_fed, filled
from audit.network.hooks import scores
from audit.network.loss import Loss, SquaredError
from audit.network.records import Records

SPREAD_SAMPLES = 1024  # train samples, evenly picked, that the spread of an input is measured on


@dataclass(frozen=True)
class Answers:
    """Of n samples, in their order; not their scores, which are too many to keep for every change."""

    loss: Tensor  # [n]; not finite where a score is not
    moved: Tensor  # [n] ‖f′ − f‖, how far the scores are from those without a change
    wrong: Tensor | None  # [n] 0 or 1; None for regression
    answer: Tensor | None  # [n] the class that is answered; None for regression

    @classmethod
    def of(cls, f: Tensor, before: Tensor, y: Tensor, loss: Loss) -> Answers:
        """Scores f [n, C], and those `before` a change, to samples with labels y."""
        moved = (f - before).norm(dim=1)
        value = torch.where(moved.isfinite(), loss.value(f, y), torch.inf)
        if isinstance(loss, SquaredError):
            return cls(value, moved, None, None)
        answer = f.argmax(1) if f.shape[1] > 1 else (f[:, 0] >= 0).long()
        return cls(value, moved, (~loss.correct(f, y)).double(), answer)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """One block of samples after the other."""
        loss, moved = (torch.cat(values) for values in zip(*((part.loss, part.moved) for part in parts), strict=True))
        wrong = [part.wrong for part in parts if part.wrong is not None]
        answer = [part.answer for part in parts if part.answer is not None]
        return cls(loss, moved, torch.cat(wrong) if wrong else None, torch.cat(answer) if answer else None)


@dataclass(frozen=True)
class Samples:
    """Some samples of a split, to be run as often as needed, a few at a time."""

    network: nn.Module
    x: Tensor  # [n, …] as stored
    y: Tensor
    loss: Loss
    chunk: int
    fixed_batch: int | None

    @classmethod
    def of(cls, audit: Audit, records: Records, most: int) -> Samples:
        """At most `most` of a split, drawn by the seed; all of them in their order where they are no more."""
        n = len(records)
        rng = np.random.default_rng([audit.settings.seed, n])
        rows = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
        capture = audit.capture
        chunk = capture.forward_size  # no backward pass follows but one, to the input
        return cls(audit.network, records.x[rows], records.y[rows], audit.loss, chunk, capture.fixed_batch)

    def __len__(self) -> int:
        return len(self.x)

    def blocks(self) -> Iterator[slice]:
        """Rows that are run at once."""
        return blocks(len(self.x), 1, self.chunk)

    def fed(self, values: Tensor) -> Tensor:
        """Rows of samples as the network takes them; a fixed batch is filled up."""
        return as_fed(self.network, filled(values, self.fixed_batch or 1)).clone()

    def answers(self, rows: slice, f: Tensor) -> Answers:
        """From the scores of a block of rows after a change."""
        y = self.y[rows].to(f.device)
        return Answers.of(f.detach().double(), self.unchanged[rows], y, self.loss)

    def unfilled(self) -> Answers:
        """Room for answers, taken before any is there: small tensors kept between large ones would split the heap."""
        loss, moved, wrong = torch.empty(3, len(self), dtype=torch.float64, device=self.unchanged.device)
        if isinstance(self.loss, SquaredError):
            return Answers(loss, moved, None, None)
        one = self.answers(slice(0, 1), self.unchanged[:1])
        assert one.wrong is not None and one.answer is not None
        shape = (len(self), *one.wrong.shape[1:])
        return Answers(loss, moved, wrong.new_empty(shape), one.answer.new_empty((len(self), *one.answer.shape[1:])))

    def fill(self, room: Answers, rows: slice, f: Tensor) -> None:
        """Puts the answers of a block of rows where there is room for them."""
        part = self.answers(rows, f)
        room.loss[rows], room.moved[rows] = part.loss, part.moved
        if room.wrong is not None and part.wrong is not None:
            room.wrong[rows] = part.wrong
        if room.answer is not None and part.answer is not None:
            room.answer[rows] = part.answer

    @property
    def before(self) -> Answers:
        """Of the network as it is."""
        return self.answers(slice(0, len(self)), self.unchanged)

    @cached_property
    def unchanged(self) -> Tensor:
        """Scores [n, C] of the network as it is, float64."""
        with torch.no_grad():
            parts = [scores(self.network, self.fed(self.x[rows]))[: rows.stop - rows.start] for rows in self.blocks()]
        return torch.cat(parts).double()


def is_table(split: Split, features: tuple[str, ...] | None) -> bool:
    """Whether every number of a sample is a column with a unit of its own."""
    return features is not None and split.x.ndim == 2 and len(features) == split.x.shape[1]


def input_spread(audit: Audit) -> Tensor:
    """Of each number [d]: of a table each column's own; else one for all, and 0 for tokens and masks beside them."""
    x = audit.train.x
    rows = np.unique(np.linspace(0, len(x) - 1, min(SPREAD_SAMPLES, len(x))).astype(int))
    few = x[rows].flatten(1)
    mean = few.mean(0, dtype=torch.float64)
    variance = sum(((few[row].double() - mean).square() for row in range(len(few))), torch.zeros_like(mean)) / len(few)
    if is_table(audit.data.train, audit.data.features) and not audit.model.input.parts:
        return variance.sqrt()
    spread = torch.zeros_like(mean)
    for part in audit.model.input.parts or (Part("", tuple(x.shape[1:]), x.dtype, 0),):
        if part.is_continuous:
            spread[part.start : part.stop] = variance[part.start : part.stop].mean().sqrt()
    return spread


# What a change did to n samples: means of paired differences, with their intervals.
#
# A difference of a sample is the mean over the draws of what was random. Where one draw is shared by all samples, as a
# change of weights is, the draws are a second source of chance: the interval's half widths are √(h² + (t σ/√m)²), h by
# the samples, σ the standard deviation over m independent draws, t Student's with m − 1 degrees of freedom.


Array = NDArray[np.float64]


def column(values: Tensor) -> Array:
    """[n] as numpy has it."""
    return np.asarray(values.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Effect:
    """Answers before and after a change, sample by sample."""

    before: Answers
    after: Sequence[Answers]  # by draw
    shared: bool  # whether a draw is one for all samples; then draws are pairs of opposite ones

    @property
    def finite(self) -> bool:
        """Whether all scores and losses are."""
        return all(bool(each.loss.isfinite().all()) for each in self.after)

    def loss_differences(self) -> Array:
        """[draws, n]."""
        return np.stack([column(each.loss - self.before.loss) for each in self.after])

    def score_differences(self) -> Array:
        """‖f′ − f‖ [draws, n]."""
        return np.stack([column(each.moved) for each in self.after])


class Means:
    """Means of columns over samples and draws, under one bootstrap over the samples."""

    def __init__(self, columns: Sequence[Array], bootstrap: Bootstrap, stream: int) -> None:
        stacked = np.stack([each.mean(0) for each in columns], 1)  # [n, k] of columns [draws, n]
        scale = np.maximum(np.abs(stacked).max(0), np.finfo(np.float64).tiny)
        self._columns, self._drawn = columns, bootstrap.means(stacked / scale, stream) * scale

    def mean(self, place: int) -> float:
        """Of one column."""
        return float(self._columns[place].mean())

    def ci95(self, place: int, shared: bool = False) -> Interval:
        """Its interval; wider where draws are `shared` by all samples."""
        ends, mean = interval(self._drawn[:, place]), self.mean(place)
        if ends is None:
            return None
        slack = draw_error(self._columns[place].mean(1)) if shared else 0.0
        return mean - math.hypot(mean - ends[0], slack), mean + math.hypot(ends[1] - mean, slack)


def draw_error(by_draw: Array) -> float:
    """Half width of the 95 % interval of a mean over draws [2 m], whose opposite pairs stand side by side."""
    pairs = by_draw.reshape(-1, 2).mean(1)
    if len(pairs) < 2:
        return 0.0
    return student_quantile(len(pairs) - 1) * float(pairs.std(ddof=1)) / math.sqrt(len(pairs))


def error_change(effect: Effect) -> dict[str, Any]:
    """Share of wrong answers after the change, and paired with the share before; nothing for regression.

    With b samples answered wrongly only after the change and c only before, means over draws, the interval of
    (b − c)/n is Tango's (1998).
    """
    before, answer = effect.before.wrong, effect.before.answer
    if before is None or answer is None:
        return {}
    wrong = np.stack([column(each.wrong) for each in effect.after if each.wrong is not None])  # [draws, n]
    other = np.stack([column(each.answer.ne(answer)) for each in effect.after if each.answer is not None])
    differences = wrong - column(before)
    n, by_draw = wrong.shape[1], differences.mean(1)
    b, c = np.clip(differences, 0, None).mean(0).sum(), np.clip(-differences, 0, None).mean(0).sum()
    low, high = score_bounds(float(b), float(c), n)
    change, slack = float(by_draw.mean()), draw_error(by_draw) if effect.shared else 0.0
    return {
        "error": float(wrong.mean()),
        "error_ci95": wilson(float(wrong.mean()), n),
        "error_change": change,
        "error_change_ci95": (change - math.hypot(change - low, slack), change + math.hypot(high - change, slack)),
        "error_change_std": spread(by_draw),
        "answers_changed": float(other.mean()),
        "answers_changed_ci95": wilson(float(other.mean()), n),
    }


def spread(by_draw: Array) -> float | None:
    """Standard deviation over draws; None of a single one."""
    return float(by_draw.std(ddof=1)) if len(by_draw) > 1 else None


def rmse(means: Means, place: int, outputs: int) -> dict[str, Any]:
    """Root mean squared error over samples and outputs, from a column of losses ½ ‖f − y‖²."""
    ends = means.ci95(place)
    size = [math.sqrt(max(0.0, 2 * value / outputs)) for value in (means.mean(place), *(ends or ()))]
    return {"rmse": size[0], "rmse_ci95": (size[1], size[2]) if ends else None}


@torch.no_grad()
def everything(samples: Samples) -> Answers:
    """A whole run with the weights as they are now."""
    parts = []
    for rows in samples.blocks():
        f = scores(samples.network, samples.fed(samples.x[rows]))[: rows.stop - rows.start]
        parts.append(samples.answers(rows, f))
    return Answers.joined(parts)
