"""What a forward pass costs is counted, and how fast the machine is measured, without waking what they do not need."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from audit.network import cost
from audit.network.cost import NUMBER, forward_cost, machine_speed

WITHOUT_COMPILER = """
import sys, torch
from audit.network.cost import forward_cost
from audit.network.residual_traces import is_multilinear
network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
forward_cost(network, torch.ones(2, 3), ["0"]), is_multilinear(network, torch.ones(2, 3))
print("torch._dynamo" in sys.modules)
"""


def test_a_network_by_hand() -> None:
    network = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    cost = forward_cost(network, torch.ones(5, 3), ["2"])
    assert cost.numbers >= 4 + 4 + 2
    assert cost.operations == 2 * (3 * 4 + 4 * 2) + NUMBER * cost.numbers
    assert cost.behind == 0  # everything lies before the answer of the last layer


def test_watching_operators_does_not_load_torchs_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_speed_is_a_power_of_two_and_the_threads_are_as_before(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    cost._product_seconds.cache_clear()  # other tests have measured it already
    try:
        speed = machine_speed()
        assert machine_speed() == speed and cost._product_seconds.cache_info().misses == 1
        assert speed == 2.0 ** round(torch.tensor(speed).log2().item()) and torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
