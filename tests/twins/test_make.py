"""A folder of twins is made, gone on with and extended; what was left out is named."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from twin_cases import blobs, fitted_network, small_folder

from audit.errors import ModelError, UsageError
from audit.run.in_memory import sources_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe, read_twins, read_weights, write_twins
from audit.twins.kinds import KINDS, Kind, chosen_kinds
from audit.twins.make import Wish, make_folder
from audit.twins.outcomes import measuring
from audit.twins.problem import Problem, set_problem
from audit.twins.recipes import ORDINARY
from audit.twins.work import Task, Workplace, make

RECIPE = Recipe(rate=0.2, batch=10)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    folder = small_folder(tmp_path_factory.mktemp("blobs"))
    with ExitStack() as stack:
        return set_problem(sources_of(fitted_network(), str(folder), None, stack), Settings(), Progress())


def wish(*kinds: str, count: int = 2) -> Wish:
    return Wish(kinds=chosen_kinds(kinds), count=count, recipe=RECIPE)


def test_twins_have_the_models_train_loss_and_its_numbers(problem: Problem, tmp_path: Path) -> None:
    made = make_folder(problem, tmp_path, wish("plain", "half", "wrong-labels"))
    assert [(twin.kind, twin.seed) for twin in made.twins] == [
        (kind, seed) for kind in ("plain", "half", "wrong-labels") for seed in range(2)
    ]
    plain, half = made.of("plain"), made.of("half")
    assert all(twin.reached and twin.matched for twin in (*plain, *half))
    assert all(set(twin.numbers) == set(made.model) for twin in plain)
    assert "network.fisher.gamma" in made.model and "layers.fc1.flatness.kappa_tau" in made.model
    assert all(not twin.numbers and twin.train_samples == 30 for twin in half)
    assert plain[0].numbers != plain[1].numbers
    outcomes = made.outcomes
    assert outcomes[0].unseen.rows.size == 0
    first, second = (outcomes[place].unseen.rows for place in (2, 3))
    assert sorted([*first, *second]) == list(range(60))  # each train sample is unseen by one of two halves
    assert made.test_outcomes.shape == (6, 60)
    assert np.mean(1 - made.test_outcomes[0]) == pytest.approx(plain[0].test_error)
    found = dict(made.left_out)
    assert found["decay"] == "not asked for"


def test_a_folder_is_gone_on_with(problem: Problem, tmp_path: Path) -> None:
    first = make_folder(problem, tmp_path, wish("plain", count=1))
    said: list[str] = []
    more = make_folder(problem, tmp_path, replace(wish("plain", "decay", count=2), say=said.append))
    assert more.twins[0] == first.twins[0]
    assert [(twin.kind, twin.seed) for twin in more.twins] == [("plain", 0), ("plain", 1), ("decay", 0), ("decay", 1)]
    assert [line.split(",")[0] for line in said] == ["plain (given): 1 twin", "decay (given): 2 twins"]
    again: list[str] = []
    make_folder(problem, tmp_path, replace(wish("plain", "decay", count=2), say=again.append))
    assert not again
    at_once = make_folder(problem, tmp_path / "other", wish("plain", count=2))
    for twin, one in zip(more.twins[:2], at_once.twins, strict=True):
        assert one.test_loss == pytest.approx(twin.test_loss, rel=1e-4)


def test_another_model_or_recipe_is_refused(problem: Problem, tmp_path: Path) -> None:
    make_folder(problem, tmp_path, wish("plain", count=1))
    with pytest.raises(UsageError, match="holds twins of another model, other data, another train loss or another re"):
        make_folder(problem, tmp_path, replace(wish("plain"), recipe=Recipe(rate=0.1)))


@pytest.mark.slow
def test_without_a_recipe_the_family_is_found(problem: Problem, tmp_path: Path) -> None:
    made = make_folder(problem, tmp_path, replace(wish("plain"), recipe=None))
    assert not made.recipe_given and made.family in made.families
    assert made.recipe == made.families[made.family]
    starts = {name for name in made.families if name.endswith(("-glorot", "-he"))}
    assert set(made.families) - starts == set(ORDINARY) and len(starts) == 2
    assert read_twins(tmp_path).family == made.family


def test_a_search_that_is_gone_on_with_makes_no_twin_twice(problem: Problem, tmp_path: Path) -> None:
    """Also where the twins of a recipe could not be measured."""
    made = make_folder(problem, tmp_path, replace(wish("plain"), recipe=None))
    none = {"numbers": {}, "matched": False, "reached": False}
    unmeasured = tuple(replace(twin, **none) if twin.family == "adam" else twin for twin in made.twins)
    write_twins(tmp_path, replace(made, family="", twins=unmeasured))
    again = make_folder(problem, tmp_path, replace(wish("plain"), recipe=None))
    names = [twin.name for twin in read_twins(tmp_path).twins]
    assert len(names) == len(set(names)) and again.family != "adam"


def test_a_spent_budget_names_what_it_left_out(problem: Problem, tmp_path: Path) -> None:
    made = make_folder(problem, tmp_path, replace(wish("plain", "half"), budget=1e-9))
    assert not made.twins
    assert dict(made.left_out)["plain"] == "no time was left within the budget of 1 s"


def test_the_weights_of_a_twin_give_its_errors_again(problem: Problem, tmp_path: Path) -> None:
    made = make_folder(problem, tmp_path, wish("plain", count=1))
    network = fitted_network()
    weights = read_weights(tmp_path, made.twins[0])
    network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()}, strict=False)
    x, y = blobs(seed=1)
    error = float((network(x).argmax(1) != y).double().mean())
    assert error == pytest.approx(made.twins[0].test_error)


def test_a_kind_of_ones_own(problem: Problem, tmp_path: Path) -> None:
    own = Kind("hot", "three times the rate", "Would a higher rate help?", 1, lambda r: replace(r, rate=3 * r.rate))
    made = make_folder(problem, tmp_path, Wish(kinds=chosen_kinds(["plain"], [own]), count=1, recipe=RECIPE))
    assert [twin.kind for twin in made.twins] == ["plain", "hot"]


def test_a_change_that_needs_another_rate_gets_one(problem: Problem, tmp_path: Path) -> None:
    wild = replace(RECIPE, rate=25.0)
    made = make_folder(problem, tmp_path, replace(wish("large-start"), recipe=wild))
    rates = {twin.recipe.rate for twin in made.of("large-start") if twin.recipe is not None}
    assert max(rates) < wild.rate and all(twin.matched for twin in made.of("large-start"))


def test_weight_decay_is_as_strong_as_the_models_train_loss_asks_for(problem: Problem) -> None:
    """Settled far below it, twins would be softened; where they cannot come down to it, they would have no numbers."""
    (decay,) = chosen_kinds(["decay"])
    weak, strong = (replace_decay(decay, value) for value in (3e-3, 1.0))
    place = Workplace(problem, measuring(problem.model, problem.data, problem.task, problem.settings))
    for kind, sign in ((weak, 1), (strong, -1)):
        made = [each.twin for each in make(place, Task(kind, "given", RECIPE, (0,)))]
        used = {twin.recipe.decay for twin in made if twin.recipe is not None}
        first = kind.recipe(RECIPE).decay
        assert all(sign * value > sign * first for value in used) and all(twin.matched for twin in made)


def replace_decay(kind: Kind, value: float) -> Kind:
    return replace(kind, recipe=lambda recipe: replace(recipe, decay=value), measured=False)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--kinds: there is no kind 'plane'; the kinds are plain, half, quarter"):
        chosen_kinds(["plane"])


def test_kinds_are_one_table() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert all(kind.change and kind.question.endswith("?") and kind.count >= 4 for kind in KINDS)


def test_time_is_kept_by_the_clock(problem: Problem, tmp_path: Path) -> None:
    begin = time.monotonic()
    make_folder(problem, tmp_path, replace(wish("plain", "longer", "quiet", count=8), budget=1.0))
    assert time.monotonic() - begin < 20


def test_a_layer_without_a_known_start_is_refused(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 3), nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    folder = small_folder(tmp_path)
    with ExitStack() as stack, pytest.raises(ModelError, match=r"nobody can tell how .* initialised, so the network"):
        set_problem(sources_of(Scaled(), str(folder), None, stack), Settings(), Progress())
