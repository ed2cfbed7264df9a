"""Twins of the dense tail on the model's own features, and labelled as such."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from twin_cases import blobs, small_folder

from audit.errors import ModelError
from audit.run.in_memory import sources_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe
from audit.twins.kinds import chosen_kinds
from audit.twins.make import Wish, make_folder
from audit.twins.problem import set_problem, tail_of


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.trunk = nn.Parameter(torch.ones(4)), nn.Linear(4, 6)
        self.head = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.trunk(x * self.scale)
        return self.head(hidden + hidden.tanh())


def test_the_tail_is_the_longest_chain() -> None:
    network, (x, _) = Trunk().eval(), blobs()
    tail = tail_of(network, x, "trunk")
    assert tail.first == "head.0"
    torch.testing.assert_close(tail.architecture.network(tail.features(x)), network(x))


def test_its_twins_are_no_whole_twins(tmp_path: Path) -> None:
    network, (x, y) = Trunk(), blobs()
    optimizer = torch.optim.SGD(network.parameters(), 0.2)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    with ExitStack() as stack:
        sources = sources_of(network, str(small_folder(tmp_path / "data")), None, stack)
        problem = set_problem(sources, Settings(), Progress(), tail=True)
    wish = Wish(kinds=chosen_kinds(["plain", "half"]), count=2, recipe=Recipe(rate=0.2, batch=10))
    made = make_folder(problem, tmp_path / "twins", wish)
    assert made.about.tail and "no band" in made.notes[0]
    assert [(twin.kind, twin.whole, twin.numbers) for twin in made.twins] == [
        (kind, False, {}) for kind in ("plain", "plain", "half", "half")
    ]
    assert all(twin.test_error is not None and twin.test_error < 0.6 for twin in made.twins)


def test_a_network_without_a_dense_end_has_no_tail() -> None:
    class Convolves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(1, 3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x[:, None])[:, :, 0]

    with pytest.raises(ModelError, match="it: does not end in dense layers one behind the other, so it has no tail"):
        tail_of(Convolves().eval(), blobs()[0], "it")
