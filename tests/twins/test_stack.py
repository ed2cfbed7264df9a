"""K networks at once are the same as one after another, whatever the optimizer, the loss and the architecture."""

from __future__ import annotations

import pytest
import torch
from references.training import binary, half_squared_error, one_by_one
from tolerances import CANCELS, EXACT
from torch import Tensor, nn
from twin_cases import blobs, small_architecture, small_network, small_samples

from audit.twins import Recipe
from audit.twins.optimizers import optimizer_for
from audit.twins.stack import LOSSES, AnyStack, DenseStack, Stack, chain_of
from audit.twins.training import drawn_start

RECIPES = {
    "sgd": (Recipe(rate=0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd with decay": (Recipe(rate=0.1, decay=0.01), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01)),
    "momentum": (
        Recipe(rate=0.05, momentum=0.9, decay=0.01),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    ),
    "adam": (
        Recipe(optimizer="adam", rate=0.01, decay=0.01),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.01),
    ),
    "adamw": (
        Recipe(optimizer="adamw", rate=0.01, decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    ),
}
REFERENCE = {"classification": nn.functional.cross_entropy, "binary": binary, "regression": half_squared_error}


def trained(stack: Stack, recipe: Recipe, batches: list[tuple[Tensor, Tensor]], task: str) -> dict[str, Tensor]:
    rates = torch.full((len(next(iter(stack.parameters.values()))),), recipe.rate, dtype=torch.float64)
    optimizer = optimizer_for(recipe, stack.parameters, rates)
    for x, y in batches:
        _, gradients = stack.gradients(x, y, LOSSES[task])
        optimizer.step(gradients)
    return stack.parameters


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "any"])
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("task", REFERENCE)
def test_a_stack_trains_as_its_networks_do(name: str, task: str, dense: bool) -> None:
    recipe, make = RECIPES[name]
    network = small_network(outputs={"classification": 3}.get(task, 1)).double().requires_grad_(False)
    samples = small_samples(task)
    x, y = samples.x.double(), samples.y.double() if task == "regression" else samples.y
    starts = [drawn_start(network, recipe, seed) for seed in range(3)]
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(len(x), (3, 7), generator=draw) for _ in range(20)]
    parameters = {key: torch.stack([start[key] for start in starts]) for key in starts[0]}
    chain = chain_of(network, x[:8])
    assert chain is not None
    stack: Stack = DenseStack(chain, parameters) if dense else AnyStack(network, parameters)
    found = trained(stack, recipe, [(x[at], y[at]) for at in rows], task)
    own = [[(x[at[k]], y[at[k]]) for at in rows] for k in range(3)]
    expected = one_by_one(network, starts, own, make, REFERENCE[task])
    for k, one in enumerate(expected):
        for key, value in one.items():
            torch.testing.assert_close(found[key][k], value, rtol=EXACT, atol=CANCELS)


def test_a_stack_answers_as_its_networks_do() -> None:
    network, (x, _) = small_network().eval(), blobs()
    start = {name: value.detach()[None].expand(2, *value.shape) for name, value in network.named_parameters()}
    chain = chain_of(network, x[:8])
    assert chain is not None
    for stack in (DenseStack(chain, dict(start)), AnyStack(network, dict(start))):
        torch.testing.assert_close(stack.scores(x.expand(2, *x.shape))[1], network(x).detach(), rtol=1e-5, atol=1e-6)


def test_keeping_some_leaves_these_as_they_are() -> None:
    architecture = small_architecture()
    stack = architecture.stacked(Recipe(), [0, 1, 2, 3])
    before = {name: value.clone() for name, value in stack.parameters.items()}
    stack.keep(torch.tensor([1, 3]))
    for name, value in stack.parameters.items():
        assert torch.equal(value, before[name][[1, 3]])


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x + self.first(x).relu())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x))


@pytest.mark.parametrize(
    "network",
    [Skips(), Twice(), nn.Sequential(nn.Linear(4, 3), nn.Softplus()), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))],
)
def test_what_is_no_chain_is_not_taken_for_one(network: nn.Module) -> None:
    assert chain_of(network, blobs()[0][:8]) is None


def test_running_statistics_are_each_networks_own() -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).eval().requires_grad_(False)
    starts = [drawn_start(network, Recipe(), seed) for seed in range(2)]
    stack = AnyStack(network, {name: torch.stack([start[name] for start in starts]) for name in starts[0]})
    x, y = blobs()
    stack.gradients(torch.stack([x[:20], x[20:40]]), torch.stack([y[:20], y[20:40]]), LOSSES["classification"])
    first, second = (stack.buffers(k)["1.running_mean"] for k in range(2))
    z = x[:20] @ starts[0]["0.weight"].T + starts[0]["0.bias"]
    torch.testing.assert_close(first, 0.1 * z.mean(0), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(first, second)
    assert torch.equal(network[1].running_mean, torch.zeros(5))  # the network itself stays as it is
