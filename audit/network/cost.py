"""What one forward pass costs: operations and numbers written, counted, not timed; and how fast this machine is."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from audit.network.hooks import Operators, hooked

GROUPED = 16.0  # a multiplication of a convolution in groups takes the time of so many of a plain one
NUMBER = 8.0  # … and writing a number that of so many
SIDE = 768  # of the square matrices that the speed is measured on
ROUNDS = 3


@dataclass(frozen=True)
class Cost:
    """One forward pass of one sample."""

    operations: float  # multiplications and additions, slow ones counted several times
    numbers: float  # written on the way: what a backward pass keeps
    behind: float  # of the operations, those from the first dense layer on: what backward passes to it run through


def forward_cost(network: nn.Module, x: Tensor, dense: Sequence[str]) -> Cost:
    """Of a sample of x [n, …], as the network takes it; `dense`: paths of its dense layers."""
    counter = _Counter()
    reached: list[float] = []

    def reach(_module: nn.Module, _inputs: tuple[Tensor, ...], _answer: Tensor) -> None:
        reached.append(counter.total)

    with torch.no_grad(), hooked(network, dict.fromkeys(dense, reach)), counter:
        network(x)
    behind = counter.total - min(reached, default=0.0)
    return Cost(counter.total / len(x), counter.numbers / len(x), behind / len(x))


class _Counter(Operators):
    """Counts while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.numbers = 0.0, 0.0

    @property
    def total(self) -> float:
        """Operations, and numbers written as if they were some."""
        return self.operations + NUMBER * self.numbers

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
    """Operations per second of large matrix products on all threads, as a power of two: coarse, so that two runs agree.

    Measured on one thread, in its own processor time: what else the machine is doing must not change the plan, and
    threads that wait for each other are busy without getting on.
    """
    threads = torch.get_num_threads()
    a = torch.rand(SIDE, SIDE, dtype=dtype)
    best = math.inf
    torch.set_num_threads(1)
    try:
        a @ a
        for _ in range(ROUNDS):
            begin = time.thread_time()
            a @ a
            best = min(best, time.thread_time() - begin)
    finally:
        torch.set_num_threads(threads)
    return float(2 ** round(math.log2(2 * SIDE**3 * threads / max(best, 1e-6))))
