from __future__ import annotations

import pytest
import torch
from made_audits import as_model
from torch import nn
from zoo import build

from audit.errors import BudgetError, UsageError
from audit.network import find_layers
from audit.network.cost import budget_bytes, bytes_per_sample, chunk_size


@pytest.mark.parametrize(
    ("text", "size"), [("512MB", 512 << 20), ("2G", 2 << 30), ("1.5 GiB", 3 << 29), ("100", 100), ("3kb", 3072)]
)
def test_amounts_are_read_as_people_write_them(text: str, size: int) -> None:
    assert budget_bytes(text) == size


@pytest.mark.parametrize("text", ["much", "-1GB", "0", "2 XB", ""])
def test_nonsense_amounts_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        budget_bytes(text)
    assert str(caught.value) == f"--memory: {text!r} is not an amount of memory; write it like 512MB or 2GB."


def test_by_default_a_quarter_of_the_machine() -> None:
    assert (64 << 20) < budget_bytes(None) < (1 << 44)


def test_a_budget_below_one_sample_is_a_sentence() -> None:
    with pytest.raises(BudgetError) as caught:
        chunk_size(per_sample=3 << 20, budget=4 << 20, standing=2 << 20)
    assert str(caught.value) == (
        "The memory budget of 4 MB is too small: the model and the data take 2 MB and one sample 3 MB more; "
        "raise --memory or lower --samples."
    )


def test_chunks_fill_the_budget_but_no_more_than_helps() -> None:
    assert chunk_size(per_sample=1 << 20, budget=10 << 20, standing=0) == 10
    assert chunk_size(per_sample=1 << 20, budget=1 << 40, standing=0) == 128
    assert chunk_size(per_sample=1, budget=1 << 40, standing=0) == 1000


def test_backward_passes_in_turn_share_a_smaller_chunk() -> None:
    assert chunk_size(per_sample=1 << 20, budget=1 << 40, standing=0, in_turn=True) == 48
    assert chunk_size(per_sample=1 << 20, budget=10 << 20, standing=0, in_turn=True) == 10
    assert chunk_size(per_sample=1 << 30, budget=1 << 40, standing=0, in_turn=True) == 8


def test_samples_that_fill_the_room_are_run_in_smaller_groups() -> None:
    assert chunk_size(per_sample=1 << 29, budget=8 << 30, standing=0, in_turn=True) == 4
    assert chunk_size(per_sample=1 << 29, budget=1 << 30, standing=0, in_turn=True) == 1


@pytest.mark.parametrize("name", ["relu", "lenet", "tokens"])
def test_the_estimate_covers_what_a_record_holds(name: str) -> None:
    from audit.network.capture import Capture
    from audit.network.loss import CrossEntropy

    network, x, y = build(name)
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    (record,) = Capture(network, layers, CrossEntropy(), 7).full(x, y)
    estimate = bytes_per_sample(network, x[:4], layers, 3)
    assert record.bytes() / 7 <= estimate
    assert estimate > bytes_per_sample(network, x[:4], layers, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_estimate_covers_the_input_jacobian_of_convolutions_as_it_is_looked_at(dtype: torch.dtype) -> None:
    from audit.network.capture import Capture
    from audit.network.loss import CrossEntropy
    from audit.network.record import Products

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(98, 20)).to(dtype)
    x, y = torch.randn(5, 3, 16, 16, dtype=dtype), torch.arange(5)
    layers = find_layers(as_model(network, (3, 16, 16)), x[:4]).dense
    (record,) = Capture(network, layers, CrossEntropy(), 5).full(x, y)
    seen = Products(record).input_map
    assert seen is not None
    held = record.bytes() + sum(part.numel() * part.element_size() for part in seen)
    assert held / 5 <= bytes_per_sample(network, x[:4], layers, 20, side_by_side=False)


def test_the_estimate_covers_the_signals_that_are_held_at_once() -> None:
    network, x, _ = build("lenet")
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    answers: list[int] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _module, _inputs, z: answers.append(z[0].numel()))
    network(x[:1])
    bytes_of_one = x.element_size() * sum(answers)
    with_signals = bytes_per_sample(network, x[:4], layers, 3, side_by_side=False)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.padding_mode = "reflect"  # which no closed form is known for; without padding it changes nothing
    assert with_signals - bytes_per_sample(network, x[:4], layers, 3, side_by_side=False) == 3 * bytes_of_one


def test_many_outputs_fit_where_their_backward_passes_run_one_by_one() -> None:
    network, x, _ = build("tokens")
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    apart, beside = (bytes_per_sample(network, x[:4], layers, 200, side_by_side=side) for side in (False, True))
    assert apart < beside


def test_the_jacobian_in_the_input_counts_only_where_it_is_wanted() -> None:
    network, x, _ = build("lenet")
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    inside, beside = (bytes_per_sample(network, x[:4], layers, 100, False, to_input) for to_input in (True, False))
    assert inside - beside >= 100 * x[0].numel() * x.element_size()
