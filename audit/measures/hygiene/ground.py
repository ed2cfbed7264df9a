"""What every part of the hygiene measure stands on: samples, twins, spaces, and train as an electorate."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.data.dataset import Split
from audit.maths.shares import wilson
from audit.measures.contract import Audit
from audit.measures.hygiene.mislabels import Tried, best, try_spaces
from audit.measures.hygiene.neighbours import Electorate, gather_votes
from audit.measures.hygiene.rows import Twins, coincidental
from audit.measures.hygiene.space import Space
from audit.network.layers import dense_only
from audit.network.loss import SquaredError

INPUT, STANDARDISED, FEATURES = "input", "standardised input", "features"


class Ground:
    """An audit's samples; everything is found when first asked for, and kept."""

    def __init__(self, audit: Audit, features: Tensor | None) -> None:
        self.audit = audit
        self.features = features  # [n, D] what the last dense layer is fed on train samples; None: nothing of its own
        self.classes = not isinstance(audit.loss, SquaredError)
        self.device = next(audit.network.parameters()).device
        self.y, self.y_test = audit.train.y.to(self.device), audit.test.y.to(self.device)
        self.train_index, self.test_index = stored(audit.data.train), stored(audit.data.test)

    @cached_property
    def names(self) -> list[str]:
        """The classes by index; nothing for regression."""
        if not self.classes:
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
    def _electorate(self) -> tuple[Electorate, Tensor]:
        y = self.y
        ballots = torch.nn.functional.one_hot(y, len(self.names)).double() if self.classes else y.reshape(len(y), -1)
        return gather_votes(torch.from_numpy(self.twins.train_x).to(self.device), ballots)

    @property
    def voters(self) -> Electorate:
        """The different train inputs with their labels."""
        return self._electorate[0]

    @property
    def place(self) -> Tensor:
        """Each train sample's place among the voters [n]."""
        return self._electorate[1]

    @cached_property
    def tried(self) -> list[Tried]:
        """Every space in which distances mean something, with how well neighbours foretell in it."""
        y = self.y_test if self.classes else self.y_test.reshape(len(self.y_test), -1)
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
        return winner if halved and wilson(winner.agreement, len(self.fresh))[0] > plain.agreement else plain

    @property
    def input_space(self) -> Tried | None:
        """The better of the input's own spaces; None for tokens, whose distances mean nothing."""
        inputs = [one for one in self.tried if one.space.name != FEATURES]
        return best(inputs) if inputs else None

    def _spaces(self) -> list[Space]:
        x, x_test = (records.x.to(self.device) for records in (self.audit.train, self.audit.test))
        spaces = []
        if x.is_floating_point():
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
