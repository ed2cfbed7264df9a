"""Convolutions as dense layers over patches: how these are cut, which are found, and when they are too large."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from made_audits import AuditMaker, as_data, as_model
from torch import Tensor, nn
from zoo import build, lenet

from audit.model.base import InputSpec
from audit.network import Layers, dense_only, find_layers, nothing_to_measure
from audit.network.capture import Capture
from audit.network.cost import bytes_per_sample
from audit.network.loss import CrossEntropy
from audit.network.patches import Patches
from audit.run.setup import set_up_audit
from audit.settings import Settings

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
SHARED = "a convolution: its weights are shared over positions, so the exact duality does not hold"
ON_REQUEST = f"{SHARED}; --conv has it measured over its patches"


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """An ordinary convolution in float64, and two maps that it accepts."""
    dims = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 3), min_size=dims, max_size=dims).map(tuple)
    kernel, dilation, stride = draw(sizes), draw(sizes), draw(sizes)
    padding: object = draw(st.sampled_from(["same", "valid", "numbers"]))
    if padding == "numbers":
        padding = tuple(draw(st.integers(0, 2)) for _ in range(dims))
    if padding == "same":
        stride = (1,) * dims
    space = [d * (k - 1) + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilation, strict=True)]
    torch.manual_seed(draw(st.integers(0, 99)))
    into, out = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    module = KINDS[dims - 1](into, out, kernel, stride, padding, dilation, bias=draw(st.booleans())).double()
    return module.requires_grad_(False), torch.randn(2, into, *space, dtype=torch.float64)


@settings(max_examples=60, deadline=None)
@given(convolutions())
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_weights_times_patches_are_the_convolution(drawn: tuple[nn.Module, Tensor]) -> None:
    module, x = drawn
    patches, W = Patches.of(module, tuple(x.shape[2:])), module.weight.flatten(1)  # type: ignore[arg-type]
    z = module(x)
    own = z if module.bias is None else z - module.bias.reshape(-1, *[1] * len(patches.space))
    assert patches.positions == tuple(z.shape[2:])
    torch.testing.assert_close(patches.cut(x) @ W.T, own.flatten(2).mT)
    torch.testing.assert_close(patches.convolve(W, x), own)
    assert torch.equal(patches.columns(x).mT, patches.cut(x))


@settings(max_examples=60, deadline=None)
@given(convolutions())
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_pulling_back_is_the_derivative_by_the_input(drawn: tuple[nn.Module, Tensor]) -> None:
    module, x = drawn
    patches, leaf = Patches.of(module, tuple(x.shape[2:])), x.clone().requires_grad_()  # type: ignore[arg-type]
    z = module(leaf)
    g = torch.randn_like(z)
    (expected,) = torch.autograd.grad(z, leaf, g)
    torch.testing.assert_close(patches.vjp(module.weight.flatten(1), g.flatten(2).mT), expected.flatten(1))


def found_in(network: nn.Module, x: Tensor, conv: bool = True) -> Layers:
    return find_layers(as_model(network.double(), tuple(x.shape[1:])), x.double(), conv)


def test_convolutions_are_found_only_when_asked_for() -> None:
    network, x, _ = build("lenet")
    plain, asked = found_in(network, x[:4], conv=False), found_in(network, x[:4])
    assert [(layer.name, layer.why) for layer in plain.passed_by] == [("0", ON_REQUEST), ("3", ON_REQUEST)]
    assert asked.passed_by == ()
    assert dense_only(asked.dense) == plain.dense
    first, second = (layer for layer in asked.dense if layer.patches is not None)
    assert (first.op, first.in_features, first.out_features, first.tokens) == ("conv", 9, 3, 100)
    assert (second.op, second.in_features, second.out_features, second.tokens) == ("conv", 27, 4, 9)
    assert (first.fed_by_input, first.cut_point, second.fed_by_input) == (True, True, False)


def test_a_convolution_of_one_pixel_maps_stays_a_dense_layer() -> None:
    network, x, _ = build("conv1x1")
    plain, asked = found_in(network, x[:4], conv=False), found_in(network, x[:4])
    assert dense_only(asked.dense) == plain.dense
    assert [layer.op for layer in asked.dense] == ["conv", "conv1x1", "linear"]


class Twice(nn.Module):
    """One convolution, used on its own answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(2, 2, 3, padding=1), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(torch.relu(self.conv(x))).flatten(1))


class Scaled(nn.Conv1d):
    """Calls itself a convolution and answers something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def one_dimensional(conv: nn.Module) -> nn.Sequential:
    return nn.Sequential(conv, nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (
            one_dimensional(nn.Conv1d(2, 4, 3, groups=2)),
            "a grouped convolution: no output sees all channels of a patch, so there is no one weight matrix",
        ),
        (
            one_dimensional(nn.Conv1d(2, 2, 3, groups=2)),
            "a grouped convolution: no output sees all channels of a patch, so there is no one weight matrix",
        ),
        (
            one_dimensional(nn.Conv1d(2, 4, 3, padding=1, padding_mode="reflect")),
            "a convolution with reflect padding: only zeros around a map are measured",
        ),
        (Twice(), "a convolution that is used 2 times: its patches are not those of one map"),
        (
            one_dimensional(Scaled(2, 4, 3)),
            "not an ordinary convolution: it answers something else than its weights times its patches",
        ),
    ],
)
def test_other_convolutions_are_passed_by_with_their_reason(network: nn.Module, why: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 2, 6)
    with torch.no_grad():
        network(x)
    network.requires_grad_(False)
    assert [layer.why for layer in found_in(network, x).passed_by] == [why]
    assert [layer.why for layer in found_in(network, x, conv=False).passed_by] == [SHARED]


def test_a_network_of_convolutions_alone_is_measured_when_asked_for() -> None:
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(2), nn.AdaptiveAvgPool1d(1)), torch.randn(4, 1, 5, 5)
    assert [layer.op for layer in dense_only(found_in(network, x).dense)] == ["conv"]
    grouped = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten())
    model, found = as_model(grouped, (2, 3, 3)), found_in(grouped, torch.randn(4, 2, 3, 3), conv=False)
    assert nothing_to_measure(model, found, False).endswith("such as a network with a linear head.")


def test_frames_folded_into_the_batch_are_patches_of_their_sample() -> None:
    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv1d(2, 3, 2), nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            folded = torch.relu(self.conv(x.flatten(0, 1)))  # [2n, 3, 4]
            return self.head(folded.reshape(len(x), 24))

    torch.manual_seed(0)
    network, x = Frames().double().requires_grad_(False), torch.randn(4, 2, 2, 5).double()
    conv = found_in(network, x).dense[0]
    assert (conv.op, conv.tokens, conv.fed_by_input) == ("conv", 8, True)
    (record,) = Capture(network, (conv,), CrossEntropy(), 4).full(x, torch.arange(4) % 3)
    layer = record.layers["conv"]
    torch.testing.assert_close(layer.x @ conv.weight(network).T + network.conv.bias, layer.z)


def test_a_fixed_batch_finds_the_same_convolutions() -> None:
    network, x, _ = build("lenet", n=10)
    model = as_model(network, (1, 12, 12))
    fixed = replace(model, input=InputSpec("x", (1, 12, 12), batch=5))
    assert find_layers(fixed, x, True) == find_layers(model, x[:4], True)


def test_the_estimate_covers_the_patches() -> None:
    network, x, y = build("lenet")
    layers = found_in(network, x[:4]).dense
    (record,) = Capture(network, layers, CrossEntropy(), 7).full(x, y)
    assert record.bytes() / 7 <= bytes_per_sample(network, x[:4], layers, 3)


def test_a_convolution_beyond_the_budget_is_passed_by_with_a_sentence() -> None:
    torch.manual_seed(0)
    network = lenet(size=28).double().requires_grad_(False)
    x, y = torch.randn(6, 1, 28, 28).numpy(), (torch.arange(6) % 3).numpy()
    model, data = as_model(network, (1, 28, 28)), as_data(x, y, x, y)
    audit = set_up_audit(model, data, "classification", Settings(conv=True, memory="1MB"))
    assert [layer.name for layer in audit.layers] == ["3", "7", "9"]
    assert [(layer.name, layer.op) for layer in audit.passed_by] == [("0", "conv")]
    assert audit.passed_by[0].why == (
        "a convolution with 676 patches of 9 numbers: with it one sample takes 1 MB, more than the memory budget "
        "leaves; raise --memory"
    )
    roomy = set_up_audit(model, data, "classification", Settings(conv=True, memory="1GB"))
    assert len(roomy.layers) == 4 and roomy.passed_by == ()


def test_chunks_shrink_with_the_patches(make_audit: AuditMaker) -> None:
    network, x, y = build("lenet")
    tables = (x.numpy(), y.numpy(), x.numpy(), y.numpy())
    chunks = [make_audit(network, *tables, conv=conv, memory="2MB").capture.chunk for conv in (False, True)]
    assert chunks[1] < chunks[0]
