"""What one forward pass costs: operations and numbers written, counted, not timed; and how fast this machine is."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

GROUPED = 16.0  # a multiplication of a convolution in groups takes the time of so many of a plain one
NUMBER = 8.0  # … and writing a number that of so many
SIDE = 768  # of the square matrices that the speed is measured on
ROUNDS = 3


@dataclass(frozen=True)
class Cost:
    """One forward pass of one sample."""

    operations: float  # multiplications and additions, slow ones counted several times
    numbers: float  # written on the way: what a backward pass keeps


def forward_cost(network: nn.Module, x: Tensor) -> Cost:
    """Of a sample of x [n, …], as the network takes it."""
    counter = _Counter()
    with torch.no_grad(), counter:
        network(x)
    return Cost((counter.operations + NUMBER * counter.numbers) / len(x), counter.numbers / len(x))


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.numbers = 0.0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator, and adds what it costs."""
        found = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in flop_registry:
            counted = float(flop_registry[packet](*args, **(kwargs or {}), out_val=found))
            self.operations += counted * (GROUPED if _in_groups(packet, args) else 1.0)
        self.numbers += sum(part.numel() for part in _tensors(found))
        return found


def _in_groups(packet: Any, args: Any) -> bool:
    return packet is torch.ops.aten.convolution and len(args) > 8 and args[8] > 1


def _tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [] if found._is_view() else [found]
    return [part for part in found if isinstance(part, Tensor)] if isinstance(found, (tuple, list)) else []


def machine_speed(dtype: torch.dtype = torch.float64) -> float:
    """Operations per second of large matrix products, as a power of two: coarse, so that two runs agree."""
    a = torch.rand(SIDE, SIDE, dtype=dtype)
    a @ a
    best = math.inf
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - begin)
    return float(2 ** round(math.log2(2 * SIDE**3 / best)))
