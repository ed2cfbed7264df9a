"""What a walk over the network costs: operations, bytes, and how many samples may be on the table at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from audit.errors import BudgetError
from audit.maths.blocks import CHUNK_BYTES, CHUNK_BYTES_IN_TURN
from audit.network import DenseLayer, Layers, PassedBy, entrance
from audit.network.closed_forms import form_of, scores_together
from audit.network.hooks import Operators, hooked
from audit.settings.limits import budget_bytes as budget_bytes

# What one forward pass costs: operations and numbers written, counted, not timed; and how fast this machine is.


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
    threads that wait for each other are busy without getting on. A program measures it once, so that all of its audits
    are planned alike.
    """
    return float(2 ** round(math.log2(2 * SIDE**3 * torch.get_num_threads() / _product_seconds(dtype))))


@cache
def _product_seconds(dtype: torch.dtype) -> float:
    """What one product takes on one thread; the best of some."""
    threads = torch.get_num_threads()
    a = torch.rand(SIDE, SIDE, dtype=dtype, generator=torch.Generator().manual_seed(0))
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
    return max(best, 1e-6)


# The memory budget: how much there is, and how many samples may be on the table at once.


FEW_SHARE = 4  # a few samples at once, however large they are, but no more than this part of the room
OVERHEAD = 2.0  # temporaries of autograd and of the measures, over what the estimate counts


@torch.no_grad()
def bytes_per_sample(
    network: nn.Module,
    example: Tensor,
    layers: tuple[DenseLayer, ...],
    outputs: int,
    side_by_side: bool = True,
    to_input: bool = True,
) -> int:
    """Upper estimate of what one sample needs in a forward and `outputs` backward passes.

    Activations once, their gradients once, or once per output where the backward passes run side by side, and for each
    dense layer its input, answer and Jacobian; at other layers' answers, the signals of the scores held at once. The
    Jacobian in the input only where backward passes go down `to_input`.
    """
    counted, observed = [example.numel()], [0]

    def count(module: nn.Module, _inputs: object, output: object) -> None:
        counted.append(_numbers(output))
        if form_of(module) is not None:
            observed.append(_numbers(output))

    leaves = [module for module in network.modules() if not any(True for _ in module.children())]
    handles = [module.register_forward_hook(count) for module in leaves]
    try:
        network(example)
    finally:
        for handle in handles:
            handle.remove()
    activations, answers = (sum(parts) / len(example) for parts in (counted, observed))
    dense = sum(_layer_numbers(layer, outputs) for layer in layers)
    size = torch.finfo(next(network.parameters()).dtype).bits // 8
    if to_input and entrance(layers) is None:  # ∂f/∂input comes from the backward passes, and is looked at in float64
        dense += outputs * (int((1 + 8 / size) * example.numel() / len(example)) + outputs)
    held = 0.0 if side_by_side else answers * min(outputs, scores_together(int(answers)))
    return int(size * (OVERHEAD * (activations * (1 + (outputs if side_by_side else 1)) + dense) + held))


def _layer_numbers(layer: DenseLayer, outputs: int) -> int:
    """Numbers that a layer adds for each sample.

    The patches of a convolution are many times its input, and their pseudo-inverse takes as much again.
    """
    numbers = layer.tokens * (layer.in_features + (outputs + 3) * layer.out_features)
    width = layer.out_features if layer.has_wide_input else layer.in_features
    numbers += outputs * (layer.tokens * width + outputs)  # J W or narrower, and its Gram matrix, while looked at
    if layer.patches is None:
        return numbers
    return numbers + 3 * layer.tokens * layer.in_features + outputs * layer.patches.channels * prod(layer.patches.space)


def without_what_does_not_fit(
    network: nn.Module, example: Tensor, layers: Layers, outputs: int, room: int, to_input: bool = True
) -> Layers:
    """The layers, without the largest convolutions where one batch like `example` would not fit into `room` with them.

    Dense layers are never left out: where they do not fit, the whole audit does not.
    """
    kept, passed = list(layers.dense), list(layers.passed_by)
    convolutions = [layer for layer in kept if layer.patches is not None]
    for largest in sorted(convolutions, key=lambda layer: _layer_numbers(layer, outputs), reverse=True):
        needed = len(example) * bytes_per_sample(network, example, tuple(kept), outputs, False, to_input)
        if needed <= room or len(kept) == 1:
            break
        kept.remove(largest)
        why = (
            f"a convolution with {largest.tokens:,} patches of {largest.in_features:,} numbers: with it "
            f"{_samples(len(example))} {_readable(needed)}, more than the memory budget leaves; raise --memory"
        )
        passed.append(PassedBy(largest.name, largest.op, why))
    return replace(layers, dense=tuple(kept), passed_by=tuple(passed))


def _samples(count: int) -> str:
    return "one sample takes" if count == 1 else f"one batch of {count} samples takes"


def chunk_size(per_sample: int, budget: int, standing: int, in_turn: bool = False) -> int:
    """Samples per chunk: as many as fit into the budget beside what stands in memory anyway, but no more than help.

    A few are run together even where they are large, unless they fill a good part of the room. Fewer help where
    convolutions have the backward passes run `in_turn`: a cache should hold what these share.
    """
    room, comfortable = budget - standing, CHUNK_BYTES_IN_TURN if in_turn else CHUNK_BYTES
    if room < per_sample:
        raise BudgetError(
            f"The memory budget of {_readable(budget)} is too small: the model and the data take {_readable(standing)} "
            f"and one sample {_readable(per_sample)} more; raise --memory or lower --samples."
        )
    few = min(8, room // FEW_SHARE // per_sample)
    return max(1, min(room // per_sample, max(few, comfortable // per_sample), 1000))


def _numbers(output: object) -> int:
    if isinstance(output, Tensor):
        return output.numel()
    return sum(_numbers(part) for part in output) if isinstance(output, (tuple, list)) else 0


def _readable(size: int) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.3g} {unit}"
        size //= 1024
    raise AssertionError
