"""The regularizers against their slow versions; each trains in a loop of five lines."""

from __future__ import annotations

import pytest
import torch
from references.regularizers import fisher_gradient, kappa_tau
from tolerances import CANCELS, EXACT
from torch import nn
from twin_cases import blobs

from audit.errors import UsageError
from audit.train import FisherRegularizer, flatness_penalty

cross_entropy = nn.functional.cross_entropy


def relu_network(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, outputs)).double()


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = blobs(24)
    return x.double(), y


def test_the_fisher_gradient_is_that_of_the_algorithm() -> None:
    network, (x, y) = relu_network(), samples()
    objective = FisherRegularizer(network, cross_entropy, alpha=1e-2, beta=7.0, parts=8)
    network.zero_grad()
    objective(x, y).backward()
    expected = fisher_gradient(relu_network(), cross_entropy, x, y, 1e-2, 7.0, 8)
    for value, g in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(value.grad, g, rtol=EXACT, atol=CANCELS)


def test_the_penalty_is_alpha_times_the_mean_square_of_the_parts_gradients() -> None:
    network, (x, y) = relu_network(), samples()
    alpha, squares = 1e-6, []
    for part, labels in zip(x.chunk(8), y.chunk(8), strict=True):
        g = torch.autograd.grad(cross_entropy(network(part), labels), list(network.parameters()))
        squares.append(sum(float(each.square().sum()) for each in g))
    found = float(FisherRegularizer(network, cross_entropy, alpha=alpha, parts=8).penalty(x, y).detach())
    assert found == pytest.approx(alpha * sum(squares) / 8, rel=1e-3)


def test_before_its_starting_epoch_it_is_the_loss_alone() -> None:
    network, (x, y) = relu_network(), samples()
    objective = FisherRegularizer(network, cross_entropy, starting_epoch=3)
    plain = cross_entropy(network(x), y)
    assert torch.equal(objective(x, y, epoch=2), plain)
    assert not torch.equal(objective(x, y, epoch=3), plain)


def test_a_batch_smaller_than_its_parts_is_taken_sample_by_sample() -> None:
    network, (x, y) = relu_network(), samples()
    few, alone = (FisherRegularizer(network, cross_entropy, parts=n).penalty(x[:3], y[:3]).detach() for n in (8, 3))
    assert torch.equal(few, alone)


@pytest.mark.parametrize("layer", ["0", "2", "4"])
def test_the_flatness_penalty_is_kappa_tau(layer: str) -> None:
    network, (x, y) = relu_network(), samples()
    found = flatness_penalty(network, x, [layer])
    torch.testing.assert_close(found.detach(), kappa_tau(network, cross_entropy, x, y, layer), rtol=EXACT, atol=CANCELS)


@pytest.mark.parametrize(("outputs", "task"), [(3, "classification"), (1, "binary")])
def test_its_gradient_is_finite_where_a_probability_is_rounded_to_0(outputs: int, task: str) -> None:
    network, (x, _) = relu_network(outputs).float(), samples()
    with torch.no_grad():
        network[4].weight *= 1e4
    flatness_penalty(network, x.float(), ["0", "2"], task=task).backward()
    gradients = [value.grad for value in network.parameters() if value.grad is not None]
    assert gradients and all(bool(g.isfinite().all()) for g in gradients)


def test_several_layers_add_up() -> None:
    network, (x, _) = relu_network(), samples()
    parts = [float(flatness_penalty(network, x, [layer]).detach()) for layer in ("0", "4")]
    assert float(flatness_penalty(network, x, ["0", "4"]).detach()) == pytest.approx(sum(parts))


def test_its_gradient_is_that_of_differences() -> None:
    network, (x, _) = relu_network(), samples()
    flatness_penalty(network, x, ["2"]).backward()
    weight, step = network[4].weight, 1e-6
    for place in ((0, 0), (2, 3)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[place] += sign * step
            values.append(float(flatness_penalty(network, x, ["2"]).detach()))
            with torch.no_grad():
                weight[place] -= sign * step
        assert weight.grad is not None
        assert float(weight.grad[place]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_random_signs_are_right_in_the_mean() -> None:
    network, (x, _) = relu_network(), samples()
    torch.manual_seed(0)
    found = float(flatness_penalty(network, x, ["0", "2"], signs=2000).detach())
    assert found == pytest.approx(float(flatness_penalty(network, x, ["0", "2"]).detach()), rel=0.05)


def test_a_layer_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match="flatness_penalty: '1' is no dense layer; the network has 0, 2, 4"):
        flatness_penalty(relu_network(), samples()[0], ["1"])


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_other_tasks(task: str) -> None:
    network, (x, y) = relu_network(1), samples()
    y = (y > 0).double()[:, None]

    def loss(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if task == "binary":
            return nn.functional.binary_cross_entropy_with_logits(f, y)
        return (f - y).square().sum(1).mean() / 2

    found = flatness_penalty(network, x, ["2"], task=task).detach()
    torch.testing.assert_close(found, kappa_tau(network, loss, x, y, "2"), rtol=EXACT, atol=CANCELS)


def test_training_with_both_lowers_what_they_penalise() -> None:
    x, y = samples()

    def trained(penalised: bool) -> nn.Module:
        network = relu_network()
        objective = FisherRegularizer(network, cross_entropy, beta=10.0 if penalised else 0.0)
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        for _ in range(150):
            optimizer.zero_grad()
            loss = objective(x, y) + (0.02 if penalised else 0.0) * flatness_penalty(network, x, ["0", "2"])
            loss.backward()
            optimizer.step()
        return network

    plain, flat = (float(flatness_penalty(trained(on), x, ["0", "2"]).detach()) for on in (False, True))
    assert flat < plain
