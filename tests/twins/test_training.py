"""Training to one train loss: reached, frozen, restarted, given up; the same seed gives the same twin."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from twin_cases import small_architecture, small_samples

from audit.network.loss import LOSS_OF_TASK
from audit.twins import Recipe
from audit.twins.kinds import chosen_kinds
from audit.twins.outcomes import all_scores, losses
from audit.twins.training import Goal, Lesson, Samples, Trained, Training

TARGETS = {"classification": 0.1, "binary": 0.1, "regression": 0.005}


def taught(samples: Samples, recipe: Recipe, goal: Goal, seeds: range = range(3)) -> list[Trained]:
    outputs = 3 if samples.task == "classification" else 1
    lessons = [Lesson(seed, torch.arange(len(samples.x))) for seed in seeds]
    return Training(small_architecture(outputs), samples, recipe, lessons).run(goal)


@pytest.mark.parametrize("task", TARGETS)
def test_every_network_reaches_the_target(task: str) -> None:
    samples = small_samples(task)
    found = taught(samples, Recipe(rate=0.2, batch=10), Goal(TARGETS[task]))
    for one in found:
        f = all_scores(small_architecture(3 if task == "classification" else 1).network, one, samples.x)
        exact = float(LOSS_OF_TASK[task].value(f, samples.y.double() if task == "regression" else samples.y).mean())
        assert one.reached and one.train_loss <= TARGETS[task]
        assert one.train_loss == pytest.approx(exact, rel=1e-5)
        assert losses(f, samples.y, task).shape == (len(samples.x),)


def test_one_seed_gives_one_network_whoever_is_beside_it() -> None:
    samples, recipe = small_samples(), Recipe(rate=0.2, batch=10)
    together, alone = taught(samples, recipe, Goal(0.1))[1], taught(samples, recipe, Goal(0.1), range(1, 2))[0]
    assert together.epochs == alone.epochs
    for name, value in together.tensors.items():
        torch.testing.assert_close(value, alone.tensors[name], rtol=1e-4, atol=1e-5)


def test_seeds_differ() -> None:
    first, second, _ = taught(small_samples(), Recipe(rate=0.2, batch=10), Goal(0.1))
    assert not torch.allclose(first.tensors["fc1.weight"], second.tensors["fc1.weight"])


def test_one_that_diverges_begins_anew_at_half_its_rate_and_is_counted() -> None:
    samples = small_samples("regression")
    wild = taught(samples, Recipe(rate=6.0, batch=10), Goal(0.005))
    assert all(one.restarts >= 1 for one in wild)
    assert all(one.reached for one in wild)


def test_what_cannot_be_reached_is_given_up() -> None:
    found = taught(small_samples(), Recipe(rate=0.2, batch=10, decay=0.5, epochs=500), Goal(1e-6))
    assert not any(one.reached for one in found)
    assert all(one.epochs < 500 for one in found)  # seen to be stuck


def test_the_epochs_of_a_recipe_are_the_most() -> None:
    found = taught(small_samples(), Recipe(rate=1e-4, batch=10, epochs=5), Goal(1e-3))
    assert [one.epochs for one in found] == [5, 5, 5]


def test_a_deadline_interrupts() -> None:
    found = taught(small_samples(), Recipe(rate=0.2, batch=10), Goal(1e-9, deadline=time.monotonic()))
    assert all(one.interrupted and not one.reached for one in found)


def test_dropout_trains_too_and_is_off_afterwards() -> None:
    samples = small_samples()
    found = taught(samples, Recipe(rate=0.2, batch=10, dropout=0.2), Goal(0.2))
    assert all(one.reached for one in found)


def test_epochs_of_few_batches_are_not_given_up_for_slowness() -> None:
    """Where an epoch is one step, forty of them bring a network no way; that is no rest."""
    samples = small_samples()
    recipe = Recipe(rate=0.002, batch=len(samples.x), epochs=20_000)
    (slow,) = taught(samples, recipe, Goal(0.9), range(1))
    assert slow.reached and slow.epochs > 80
    early = taught(samples, replace(recipe, epochs=80), Goal(0.0), range(1))[0]
    assert min(early.losses[-40:]) > 0.98 * min(early.losses[:40])  # as slow as what counts as stuck in larger epochs


def test_parts_of_the_train_samples_are_gone_round_as_many_times_more_often() -> None:
    half, quarter = chosen_kinds(["half", "quarter"])
    assert (half.recipe(Recipe(epochs=300)).epochs, quarter.recipe(Recipe(epochs=300)).epochs) == (600, 1200)
