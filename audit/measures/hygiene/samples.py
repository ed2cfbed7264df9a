"""What every part of the hygiene measure works on: samples, duplicates, spaces to look for neighbours in, votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.data.dataset import Split
from audit.maths.shares import clearly_above
from audit.measures.contract import Audit
from audit.measures.hygiene.duplicates import Twins, coincidental
from audit.measures.hygiene.neighbours import Neighbourhood, Search, Voters, gather_votes
from audit.measures.hygiene.points import Space
from audit.network import dense_only
from audit.network.loss import TokenCrossEntropy

INPUT, STANDARDISED, FEATURES = "input", "standardised input", "features"


class Samples:
    """An audit's samples; everything is found when first asked for, and kept."""

    def __init__(self, audit: Audit, features: Tensor | None) -> None:
        self.audit = audit
        self.features = features  # [n, D] what the last dense layer is fed on train samples; None: nothing of its own
        self.classes = audit.loss.class_per_sample
        self.tagged = isinstance(audit.loss, TokenCrossEntropy)  # whether every position has a class
        self.device = next(audit.network.parameters()).device
        self.y, self.y_test = audit.train.y.to(self.device), audit.test.y.to(self.device)
        self.train_index, self.test_index = stored(audit.data.train), stored(audit.data.test)

    @cached_property
    def names(self) -> list[str]:
        """The classes by index; nothing for regression."""
        if not self.classes and not self.tagged:
            return []
        scores = max(2, self.audit.train_outcome.scores.shape[1])
        return list(self.audit.data.classes or map(str, range(scores)))

    @cached_property
    def twins(self) -> Twins:
        """Equal inputs within and across the splits."""
        train, test = self.audit.data.train, self.audit.data.test
        return Twins.of((train.x, train.y), (test.x, test.y))

    @cached_property
    def coincidences(self) -> NDArray[np.bool_]:
        """Test samples whose twin in train may be chance [m]."""
        flags = np.zeros(len(self.audit.test), dtype=bool)
        found = self.twins.across
        if found.any():
            train, seed = self.audit.data.train, self.audit.settings.seed
            flags[found] = coincidental(train.x, self.twins.train_x, self.twins.test_x[found], seed)
        return flags

    @cached_property
    def fresh(self) -> Tensor:
        """Positions of the test samples that are not in train."""
        return torch.from_numpy(np.flatnonzero(~self.twins.across)).to(self.device)

    @cached_property
    def _voters_and_places(self) -> tuple[Voters, Tensor]:
        y = self.y
        ballots = torch.nn.functional.one_hot(y, len(self.names)).double() if self.classes else self._targets(y)
        return gather_votes(torch.from_numpy(self.twins.train_x).to(self.device), ballots)

    def _targets(self, y: Tensor) -> Tensor:
        """What a sample without one class is voted on by [n, k]: its targets, or the shares of the classes in it."""
        if not self.tagged:
            return y.reshape(len(y), -1)
        counts = torch.zeros(len(y), 1 + len(self.names), dtype=torch.float64, device=y.device)
        counts.scatter_add_(1, y.clamp(min=-1) + 1, torch.ones_like(y, dtype=torch.float64))
        return counts[:, 1:] / counts[:, 1:].sum(1, keepdim=True)

    @property
    def voters(self) -> Voters:
        """The different train inputs with their labels."""
        return self._voters_and_places[0]

    @property
    def place(self) -> Tensor:
        """Each train sample's place among the voters [n]."""
        return self._voters_and_places[1]

    @cached_property
    def tried(self) -> list[Tried]:
        """Every space in which distances mean something, with how well neighbours foretell in it."""
        y = self.y_test if self.classes else self._targets(self.y_test)
        return try_spaces(self._spaces(), self.fresh, y[self.fresh], self.voters, self.classes)

    @property
    def label_space(self) -> Tried:
        """The space for labels: the better of the inputs, or the features where these clearly halve its disagreement.

        A network draws a sample towards the label it was taught, so its features hide the wrong labels that it has
        memorised; they must be far better at foretelling new labels to be preferred all the same.
        """
        winner, plain = best(self.tried), self.input_space
        if plain is None:
            return winner
        if winner.agreement is None or plain.agreement is None:
            return plain
        halved = 1 - winner.agreement <= (1 - plain.agreement) / 2
        return winner if halved and clearly_above(winner.agreement, len(self.fresh), plain.agreement) else plain

    @property
    def input_space(self) -> Tried | None:
        """The better of the input's own spaces; None for tokens, whose distances mean nothing."""
        inputs = [one for one in self.tried if one.space.name != FEATURES]
        return best(inputs) if inputs else None

    def _spaces(self) -> list[Space]:
        x, x_test = (records.x.to(self.device) for records in (self.audit.train, self.audit.test))
        spaces = []
        if self.audit.model.input.has_distances and x.is_floating_point():
            spaces = [Space.of(STANDARDISED, x, x_test, standardise=True), Space.of(INPUT, x, x_test)]
        if self.features is not None:
            spaces.append(Space.of(FEATURES, self.features, self._test_features()))
        return spaces

    def _test_features(self) -> Tensor:
        last = dense_only(self.audit.layers)[-1].name
        return torch.cat([record.layers[last].x.flatten(1) for record in self.audit.test])


def stored(split: Split) -> NDArray[np.int64]:
    """Positions of the samples in the split as stored [n]."""
    return split.index if len(split.index) else np.arange(len(split), dtype=np.int64)


# How well the neighbours in a space foretell the labels of new samples.


MAJORITY = 0.5  # share of the neighbours that agree on another label …
DOMINANCE = 4  # … and are at least this many times as many as those that have the given one


@dataclass(frozen=True)
class Tried:
    """A space, and how well the neighbours in it foretell the labels of test samples that are not in train."""

    search: Search
    around_test: Neighbourhood | None  # None: there is no such test sample
    agreement: float | None  # share of labels that win their vote; minus the squared error for regression

    @property
    def space(self) -> Space:
        """Where the neighbours are looked for."""
        return self.search.space


@dataclass(frozen=True)
class Votes:
    """The neighbours' votes on the given labels."""

    own: Tensor  # [q] share of the neighbours with the given label
    top: Tensor  # [q] largest share of another label
    label: Tensor  # [q] which one; of equal ones the first

    @property
    def outvoted(self) -> float:
        """Share of labels with fewer votes than another one; a tie counts half, as if a coin were thrown."""
        return float(((self.top > self.own).double() + (self.top >= self.own).double()).mean() / 2)

    @property
    def suspect(self) -> Tensor:
        """Whether the rule calls the label suspect [q]."""
        return (self.top >= MAJORITY) & (self.top >= DOMINANCE * self.own)


def judge(votes: Tensor, y: Tensor) -> Votes:
    """Vote counts [q, C] on given labels [q]."""
    shares = votes / votes.sum(1, keepdim=True).clamp(min=1)
    own = shares.gather(1, y[:, None])[:, 0]
    top, label = shares.scatter(1, y[:, None], -1.0).max(1)
    return Votes(own, top, label)


def try_spaces(spaces: Sequence[Space], fresh: Tensor, y: Tensor, voters: Voters, classes: bool) -> list[Tried]:
    """Each space with its votes on the fresh test samples (positions [q], labels y [q] or [q, C])."""
    return [_try(Search(space, voters), fresh, y, classes) for space in spaces]


def best(tried: Sequence[Tried]) -> Tried:
    """The space whose neighbours foretell best; of equally good ones the first."""
    return max(tried, key=lambda one: -np.inf if one.agreement is None else one.agreement)


def _try(search: Search, fresh: Tensor, y: Tensor, classes: bool) -> Tried:
    if not len(fresh):
        return Tried(search, None, None)
    around = search.around(search.space.test, fresh)
    if classes:
        return Tried(search, around, 1 - judge(around.votes, y).outvoted)
    error = (around.votes / around.voters[:, None] - y).square().sum(1).mean()
    return Tried(search, around, -float(error))
