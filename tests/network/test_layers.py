from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from made_audits import as_model
from torch import Tensor, nn
from zoo import Tied, build

from audit.errors import ModelError
from audit.model.base import InputSpec
from audit.network import DenseLayer, Layers, find_layers, nothing_to_measure


def layers_of(network: nn.Module, x: Tensor, **changes: object) -> Layers:
    return find_layers(as_model(network.double(), tuple(x.shape[1:]), **changes), x.double())


def by_name(layers: Layers) -> dict[str, DenseLayer]:
    return {layer.name: layer for layer in layers.dense}


def test_a_plain_network_is_a_chain_of_cut_points_fed_by_the_input() -> None:
    network, x, _ = build("relu")
    first, second, third = find_layers(as_model(network, (6,)), x[:4]).dense
    assert [(layer.name, layer.in_features, layer.out_features) for layer in (first, second, third)] == [
        ("0", 6, 7),
        ("2", 7, 5),
        ("4", 5, 3),
    ]
    assert first.cut_point and second.cut_point and third.cut_point
    assert (first.fed_by_input, second.fed_by_input) == (True, False)


def test_a_layer_beside_a_skip_is_no_cut_point() -> None:
    network, x, _ = build("residual")
    found = {layer.name: layer.cut_point for layer in find_layers(as_model(network, (6,)), x[:4]).dense}
    assert found == {"first": True, "inner": False, "head": True}


def test_a_layer_used_twice_is_one_layer() -> None:
    torch.manual_seed(0)
    shared = by_name(layers_of(Tied(), torch.randn(4, 6)))["shared"]
    assert (shared.calls, shared.tokens) == (2, 2)


def test_two_layers_with_one_weight_know_of_each_other() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    network[2].weight = network[0].weight
    found = by_name(layers_of(network, torch.randn(4, 6)))
    assert (found["0"].tied_with, found["2"].tied_with, found["4"].tied_with) == (("2",), ("0",), ())


@pytest.mark.parametrize(("name", "axis"), [("tokens", 0), ("tokens-second-axis", 1)])
def test_tokens_are_found_on_either_axis(name: str, axis: int) -> None:
    network, x, _ = build(name)
    embed = by_name(find_layers(as_model(network, (5, 4)), x[:4]))["embed"]
    assert (embed.tokens, embed.batch_axis) == (5, axis)


def test_windows_folded_into_the_batch_are_tokens_of_their_sample() -> None:
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.head = nn.Linear(3, 4), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            folded = self.patch(x.reshape(-1, 3)).tanh()  # [2n, 4]: sample by sample
            return self.head(folded.reshape(len(x), 8))

    torch.manual_seed(0)
    patch = by_name(layers_of(Windows(), torch.randn(4, 6)))["patch"]
    assert (patch.tokens, patch.batch_axis) == (2, 0)


def test_windows_folded_the_other_way_round_are_passed_by() -> None:
    class Interleaved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.head = nn.Linear(3, 4), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            halves = torch.cat([x[:, :3], x[:, 3:]])  # [2n, 3]: all first halves, then all second ones
            first, second = self.patch(halves).tanh().chunk(2)
            return self.head(torch.cat([first, second], 1))

    torch.manual_seed(0)
    layers = layers_of(Interleaved(), torch.randn(4, 6))
    assert [(layer.name, layer.why) for layer in layers.passed_by] == [
        ("patch", "its inputs cannot be told apart by sample")
    ]


def test_convolutions_on_single_points_are_dense_layers() -> None:
    network, x, _ = build("conv1x1")
    layers = find_layers(as_model(network, (1, 7, 7)), x[:4])
    assert [(layer.name, layer.op) for layer in layers.dense] == [("3", "conv1x1"), ("6", "linear")]


def test_every_other_layer_with_weights_has_its_reason() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.pointwise = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)
            self.slope, self.head, self.spare = nn.PReLU(), nn.Linear(50, 3), nn.Linear(3, 3)
            self.ignored = nn.Linear(50, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.slope(self.pointwise(self.norm(self.conv(x)))).flatten(1)
            return self.head(h) + 0 * self.ignored(h)

    torch.manual_seed(0)
    layers = layers_of(Mixed().eval(), torch.randn(4, 1, 7, 7))
    reasons = {layer.name: layer.why for layer in layers.passed_by}
    assert [layer.name for layer in layers.dense] == ["head"]
    assert reasons == {
        "conv": "a convolution: its weights are shared over positions, so the exact duality does not hold; "
        "--conv has it measured over its patches",
        "norm": "a normalisation: one factor per feature, not a weight matrix",
        "pointwise": "a 1×1 convolution over a map larger than 1×1: its weights are shared over positions; "
        "--conv has it measured over its patches",
        "slope": "an activation with a learnt slope, not a weight matrix",
        "spare": "it is never used on the way from the input to the audited output",
        "ignored": "the audited output does not depend on it",
    }


def test_names_and_ops_come_from_the_file_where_it_has_them() -> None:
    network, x, _ = build("relu")
    model = as_model(network, (6,), names={"0": "encoder.fc1"}, ops={"0": "gemm"})
    first = find_layers(model, x[:4]).dense[0]
    assert (first.name, first.op, first.module) == ("encoder.fc1", "gemm", "0")


def test_a_network_without_dense_layers_is_listed_and_said_not_to_be_measurable() -> None:
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Conv2d(1, 3, 7), nn.Flatten()).double(), torch.randn(4, 1, 7, 7).double()
    model = as_model(network, (1, 7, 7))
    found = find_layers(model, x)
    assert found.dense == () and [layer.name for layer in found.passed_by] == ["0"]
    assert nothing_to_measure(model, found, convolutions=False) == (
        "model: no dense layer was found (it has 0 (conv)); gen-audit measures dense layers, so audit a model that has "
        "one, such as a network with a linear head, or have its convolutions measured with --conv."
    )


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_fixed_batch_is_enough_to_find_everything(batch: int) -> None:
    for name in ("tokens", "residual"):
        network, x, _ = build(name, n=10)
        model = as_model(network, tuple(x.shape[1:]))
        fixed = replace(model, input=InputSpec("x", tuple(x.shape[1:]), batch=batch))
        assert find_layers(fixed, x[: 2 * batch]) == find_layers(model, x[:4])


def test_equal_samples_do_not_make_a_bypassed_layer_a_cut_point() -> None:
    network, x, _ = build("residual")
    first_two_equal = torch.cat([x[:1], x[:1], x[1:2]])
    found = by_name(find_layers(as_model(network, (6,)), first_two_equal))
    assert (found["first"].cut_point, found["inner"].cut_point) == (True, False)


def test_single_precision_finds_the_same_layers() -> None:
    for name in ("relu", "residual", "tokens", "conv1x1"):
        network, x, _ = build(name)
        model = as_model(network, tuple(x.shape[1:]))
        single = replace(model, network=copy.deepcopy(network).float())
        assert find_layers(single, x[:3].float()) == find_layers(model, x[:3])


def test_a_network_that_overflows_is_not_said_to_have_no_dense_layer() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).double()
    with torch.no_grad():
        network[1].weight.fill_(1e300)
    with pytest.raises(ModelError, match="answers NaN or infinity to the samples it was tried on; check the weights"):
        layers_of(network, torch.full((3, 4), 1e300, dtype=torch.float64))
