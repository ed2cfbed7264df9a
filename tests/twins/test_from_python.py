"""`make_twins`: a module and samples at hand, a recipe as an object, the owner's own training."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from twin_cases import blobs, fitted_network, small_network

from audit import make_twins
from audit.errors import ModelError, UsageError
from audit.twins import Recipe
from audit.twins.work import Change

TRAIN, TEST = blobs(), blobs(seed=1)


def test_a_module_is_left_as_it_is_and_twins_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = fitted_network()
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    asked = {"recipe": {"rate": 0.2, "batch": 10}, "kinds": ["plain"], "count": 2}
    made = make_twins(network, TRAIN, TEST, **asked)
    assert len(made.twins) == 2 and made.recipe == Recipe(rate=0.2, batch=10)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert make_twins(network, TRAIN, TEST, **asked).twins == made.twins
    assert len(list((tmp_path / "gen-audit" / "twins").iterdir())) == 1


def own(seed: int, x: Tensor, y: Tensor, change: Change) -> nn.Module:
    network = small_network(seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), 0.05, weight_decay=change.recipe.decay)
    for _ in range(300):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        if loss <= change.goal.target:
            break
        loss.backward()
        optimizer.step()
    return network


def test_the_owners_training(tmp_path: Path) -> None:
    asked = {"train_with": own, "kinds": ["plain", "half"], "count": 2, "folder": tmp_path}
    made = make_twins(fitted_network(), TRAIN, TEST, **asked)
    assert [twin.train_samples for twin in made.twins] == [60, 60, 30, 30]
    assert all(twin.matched and twin.whole for twin in made.twins)


def test_what_an_owners_training_must_return(tmp_path: Path) -> None:
    asked = {"kinds": ["plain"], "count": 1, "folder": tmp_path}
    with pytest.raises(UsageError, match=r"train_with: answered with a int; return the trained nn\.Module"):
        make_twins(fitted_network(), TRAIN, TEST, train_with=lambda *_: 1, **asked)
    with pytest.raises(ModelError, match=r"has no 'fc1\.weight'; return the audited architecture"):
        make_twins(fitted_network(), TRAIN, TEST, train_with=lambda *_: nn.Linear(4, 3), **asked)


def test_two_recipes_are_refused() -> None:
    with pytest.raises(UsageError, match="train_with has its own recipe; leave recipe out, or train_with"):
        make_twins(fitted_network(), TRAIN, TEST, train_with=own, recipe=Recipe())
