"""Regularizers on a stack do to each network what they do to one."""

from __future__ import annotations

import pytest
import torch
from references.regularizers import fisher_gradient
from tolerances import LOSSY
from torch import Tensor, nn
from twin_cases import small_architecture, small_network, small_samples

from audit.train import flatness_penalty
from audit.twins import Recipe
from audit.twins.optimizers import ALPHA, PARTS, adjustment
from audit.twins.stack import LOSSES, DenseStack, Product, chain_of
from audit.twins.training import Goal, Lesson, Training


def stacked(outputs: int) -> tuple[list[nn.Module], DenseStack]:
    networks = [small_network(outputs=outputs, seed=seed).double() for seed in range(2)]
    chain = chain_of(networks[0], torch.zeros(2, 4, dtype=torch.float64))
    assert chain is not None
    states = [dict(network.named_parameters()) for network in networks]
    return networks, DenseStack(chain, {name: torch.stack([s[name].detach() for s in states]) for name in states[0]})


def adjusted(stack: DenseStack, recipe: Recipe, x: Tensor, y: Tensor, task: str) -> dict[str, Tensor]:
    adjust = adjustment(recipe, task)
    assert adjust is not None
    gradients = adjust(stack, x, y, stack.gradients(x, y, LOSSES[task])[1])
    return {name: g.tensor() if isinstance(g, Product) else g for name, g in gradients.items()}


def test_fishers_gradient_is_that_of_the_algorithm() -> None:
    networks, stack = stacked(3)
    samples = small_samples()
    x, y = samples.x.double()[:48].reshape(2, 24, 4), samples.y[:48].reshape(2, 24)
    found = adjusted(stack, Recipe(fisher=1e4), x, y, "classification")
    for k, network in enumerate(networks):
        expected = fisher_gradient(network, nn.functional.cross_entropy, x[k], y[k], ALPHA, 1e4, PARTS)
        for (name, _), g in zip(network.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[name][k], g, rtol=LOSSY, atol=1e-10)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_the_flat_gradient_is_that_of_the_penalty(task: str) -> None:
    """With one score, random signs are exact."""
    networks, stack = stacked(1)
    samples = small_samples(task)
    x, y = samples.x.double()[:40].reshape(2, 20, 4), samples.y[:40]
    y = y.double().reshape(2, 20, 1) if task == "regression" else y.reshape(2, 20)
    plain = {
        name: g.tensor() if isinstance(g, Product) else g for name, g in stack.gradients(x, y, LOSSES[task])[1].items()
    }
    found = adjusted(stack, Recipe(flat=1e-3), x, y, task)
    for k, network in enumerate(networks):
        network.zero_grad()
        penalty = flatness_penalty(network, x[k], ["fc1", "fc2"], task=task)
        penalty.backward()
        loss = float(LOSSES[task](network(x[k])[None].detach(), y[k][None])[0].mean())
        for name, value in network.named_parameters():
            extra = torch.zeros_like(value) if value.grad is None else 1e-3 * loss / penalty.detach() * value.grad
            torch.testing.assert_close(found[name][k], plain[name][k] + extra, rtol=LOSSY, atol=1e-10)


def test_a_flatness_penalty_is_no_stronger_than_the_loss() -> None:
    _, stack = stacked(3)
    samples = small_samples()
    x, y = samples.x.double()[:48].reshape(2, 24, 4), samples.y[:48].reshape(2, 24)
    plain, found = (adjusted(stack, recipe, x, y, "classification") for recipe in (Recipe(flat=1e-9), Recipe(flat=1e9)))
    for k in range(2):
        loss = torch.cat([g[k].flatten() for g in plain.values()])
        extra = torch.cat([(found[name][k] - g[k]).flatten() for name, g in plain.items()])
        assert float(extra.norm()) == pytest.approx(float(loss.norm()), rel=1e-6)


@pytest.mark.parametrize("recipe", [Recipe(rate=0.2, batch=10, fisher=50.0), Recipe(rate=0.2, batch=10, flat=0.1)])
def test_training_with_a_regularizer_arrives(recipe: Recipe) -> None:
    samples = small_samples()
    lessons = [Lesson(seed, torch.arange(len(samples.x))) for seed in range(2)]
    assert all(one.reached for one in Training(small_architecture(), samples, recipe, lessons).run(Goal(0.1)))
