"""Gram matrices of the loss gradients of a pool of samples, over all parameters, within bounded memory.

One forward and one backward pass leave at every layer what it was given and the signal that comes back. Of that each
layer keeps the smaller: those two factors, or its gradients. Where the pool's do not fit into the room, the layers
take turns, with a pass for each turn. Parameters without a closed form have their gradients formed by torch.func or by
plain autograd, as many at a time as fit; one that does not fit at all has some samples at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.maths.blocks import blocks
from audit.network import DenseLayer
from audit.network.capture import Capture
from audit.network.closed_forms import ClosedForms, Form, form_of
from audit.network.parameter_gradients import SampleGradients, closed_parameters
from audit.network.patches import Factors, gram, module_factors

REST = ""  # the name of everything outside the dense layers
KEPT, WORK = 2, 8  # shares of the room: half for what is kept of the pool, an eighth for products on the way
FORMED = 3  # … and a third for gradients that are formed batch by batch, and then joined
DOUBLE = 8  # bytes of a number on the way


@dataclass(frozen=True)
class Pool:
    """Samples, and the cotangents of their scores: ∂l/∂f."""

    x: Tensor  # [N, …]
    y: Tensor
    cotangent: Tensor  # [N, C], float64


@dataclass(frozen=True)
class Unit:
    """A layer with its own parameters, and what is kept of it."""

    place: str  # where its Gram matrix is added to: a dense layer's name, or `REST`
    path: str
    names: frozenset[str]  # of the parameters that count, without the path
    layer: DenseLayer | None  # None: taken by its closed form
    space: tuple[int, ...]  # of the maps that a convolution is given
    factored: bool  # whether factors are kept, not gradients
    numbers: int  # kept for each sample


def pool_grams(capture: Capture, pool: Pool, room: int) -> dict[str, Tensor]:
    """[N, N] by dense layer, and for all other parameters under `REST`, within about `room` bytes."""
    numbers = room // next(capture.network.parameters()).element_size()
    units, others = _units(capture, pool)
    grams = {layer.name: torch.zeros(len(pool.x), len(pool.x), dtype=torch.float64) for layer in capture.layers}
    for turn in _turns(units, numbers // KEPT // len(pool.x)):
        for unit, found in _passed(capture, pool, turn, room // WORK // DOUBLE):
            _add(grams, unit.place, found)
    owner = _owners(capture)
    sizes = {name: capture.network.get_parameter(name).numel() for name in others}
    for name, found in _formed(capture, pool, sizes, max(1, numbers // FORMED)):
        _add(grams, owner.get(name, REST), found)
    return grams


def _add(grams: dict[str, Tensor], place: str, found: Tensor) -> None:
    grams[place] = grams[place] + found.cpu() if place in grams else found.cpu()


def _owners(capture: Capture) -> dict[str, str]:
    """By parameter name, the dense layer that alone holds it."""
    return {
        f"{layer.module}.{short}".lstrip("."): layer.name
        for layer in capture.layers
        for short, alone in zip(("weight", "bias"), closed_parameters(capture.network, layer), strict=True)
        if alone
    }


def _units(capture: Capture, pool: Pool) -> tuple[list[Unit], tuple[str, ...]]:
    """The layers whose gradients follow from one pass, and the names of all other parameters."""
    owner, network = _owners(capture), capture.network
    dense = {layer.module: layer for layer in capture.layers if layer.patches is None}
    by_path = {name: name.rpartition(".")[0] for name, _ in network.named_parameters()}
    ours = {name for name, path in by_path.items() if path in dense and name in owner}
    names = tuple(name for name in by_path if name not in ours)
    closed = SampleGradients(network, names, pool.x, capture.fixed_batch).closed
    watched = ClosedForms(network, {path: _form(network.get_submodule(path)) for path in closed.paths}, closed.names)
    passed = capture.run(next(capture.batches(pool.x[:1], pool.y[:1])).x, closed=watched)
    n = len(passed.f)
    units = [_dense_unit(layer, {name for name in ours if by_path[name] == layer.module}) for layer in dense.values()]
    for path in closed.paths:
        calls = passed.others[path]
        held = {name for name in closed.names if by_path[name] == path}
        place = owner.get(next(iter(held)), REST)
        size = sum(network.get_parameter(name).numel() for name in held)
        factors = sum(x.numel() + z.numel() for x, z in calls) // n
        module, space, short = network.get_submodule(path), tuple(calls[0][0].shape[2:]), _short(held)
        own = len(calls) == 1 and len(calls[0][0]) == n and module_factors(module, short, space) is not None
        factored = own and factors < size
        units.append(Unit(place, path, short, None, space, factored, factors if factored else size))
    return [unit for unit in units if unit.names], tuple(name for name in names if name not in closed.names)


def _form(module: nn.Module) -> Form:
    """The closed form of a layer that has one."""
    form = form_of(module)
    assert form is not None
    return form


def _short(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.rpartition(".")[2] for name in names)


def _dense_unit(layer: DenseLayer, names: set[str]) -> Unit:
    factors = layer.tokens * (layer.in_features + layer.out_features)
    size = (layer.in_features + 1) * layer.out_features
    factored = layer.tokens == 1 or factors < size
    return Unit(layer.name, layer.module, _short(names), layer, (), factored, factors if factored else size)


def _turns(units: Sequence[Unit], numbers: int) -> Iterator[list[Unit]]:
    """Units, as many in a turn as fit; one alone where it does not."""
    turn: list[Unit] = []
    for unit in units:
        if turn and sum(each.numbers for each in turn) + unit.numbers > numbers:
            yield turn
            turn = []
        turn.append(unit)
    if turn:
        yield turn


def _passed(capture: Capture, pool: Pool, turn: Sequence[Unit], work: int) -> Iterator[tuple[Unit, Tensor]]:
    """One pass over the pool, and the Gram matrix of each unit."""
    network, kept = capture.network, {unit: _Kept(len(pool.x)) for unit in turn}
    paths = [unit.path for unit in turn if unit.layer is None]
    names = {f"{unit.path}.{name}".lstrip(".") for unit in turn for name in unit.names}
    forms = ClosedForms(network, {path: _form(network.get_submodule(path)) for path in paths}, names)
    for batch in capture.batches(pool.x, pool.y):
        with torch.enable_grad():
            passed = capture.run(batch.x, closed=forms)
        calls = {unit: (passed.others if unit.layer is None else passed.calls)[_key(unit)] for unit in turn}
        cotangent = torch.zeros_like(passed.f)
        cotangent[: batch.rows] = pool.cotangent[batch.start : batch.start + batch.rows].to(passed.f)
        answers = [z for unit in turn for _, z in calls[unit]]
        signals = iter(torch.autograd.grad(passed.f, answers, cotangent, materialize_grads=True))
        for unit in turn:
            own = [(x, next(signals)) for x, _ in calls[unit]]
            kept[unit].add(*_keep(unit, own, len(passed.f), batch.rows, forms))
    for unit in turn:
        yield unit, kept.pop(unit).gram(unit, network.get_submodule(unit.path), work)


def _key(unit: Unit) -> str:
    return unit.path if unit.layer is None else unit.layer.name


def _keep(
    unit: Unit, calls: list[tuple[Tensor, Tensor]], n: int, rows: int, forms: ClosedForms
) -> tuple[Tensor, Tensor]:
    """Factors of one batch, or its gradients and nothing, of the first `rows` samples."""
    if unit.layer is not None:
        x = torch.cat([unit.layer.arrange_input(x, n)[:rows] for x, _ in calls], 1)
        delta = torch.cat([unit.layer.arrange(g, n)[:rows] for _, g in calls], 1)
        if unit.factored:
            return x, delta
        parts = [(delta.mT @ x).flatten(1)] * ("weight" in unit.names) + [delta.sum(1)] * ("bias" in unit.names)
        return torch.cat(parts, 1), delta[:, 0, :0]
    if unit.factored:
        return calls[0][0][:rows], calls[0][1][:rows]
    found = forms.of_module(unit.path, {unit.path: calls}, slice(0, rows), [g[:rows, None] for _, g in calls])
    G = torch.cat([values.flatten(1) for values in found.values()], 1)
    return G, G[:, :0]


class _Kept:
    """What is kept of one unit, batch after batch, in memory that is taken once."""

    def __init__(self, samples: int) -> None:
        self._samples, self._filled = samples, 0
        self._columns: tuple[Tensor, ...] = ()

    def add(self, *given: Tensor) -> None:
        """Takes in one batch."""
        if not self._columns:
            self._columns = tuple(part.new_empty(self._samples, *part.shape[1:]) for part in given)
        rows = slice(self._filled, self._filled + len(given[0]))
        for column, part in zip(self._columns, given, strict=True):
            column[rows] = part
        self._filled = rows.stop

    def gram(self, unit: Unit, module: nn.Module, work: int) -> Tensor:
        """[N, N] over all batches."""
        x, signal = self._columns
        if not unit.factored:
            return gram(x)
        weight, bias = "weight" in unit.names, "bias" in unit.names
        if unit.layer is not None:
            return Factors(x, signal, lambda x, delta: (x, delta), weight, bias).gram(work)
        make = module_factors(module, unit.names, unit.space)
        assert make is not None
        return make(x, signal).gram(work)


def _formed(capture: Capture, pool: Pool, sizes: dict[str, int], numbers: int) -> Iterator[tuple[str, Tensor]]:
    """Name and Gram matrix [N, N] of parameters whose gradients are formed."""
    N, turn = len(pool.x), dict[str, int]()
    large = {name: size for name, size in sizes.items() if N * size > numbers}
    for name, size in sizes.items():
        if name in large:
            continue
        if turn and N * (sum(turn.values()) + size) > numbers:
            yield from _formed_together(capture, pool, tuple(turn))
            turn = {}
        turn[name] = size
    if turn:
        yield from _formed_together(capture, pool, tuple(turn))
    for name, size in large.items():
        yield name, _formed_alone(capture, pool, name, max(1, numbers // (2 * size)))


def _formed_together(capture: Capture, pool: Pool, names: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    ways = SampleGradients(capture.network, names, pool.x, capture.fixed_batch)
    found = ways.gradients(pool.x, pool.cotangent.to(_device(capture)))
    for name in names:
        yield name, gram(found.pop(name).flatten(1))


def _formed_alone(capture: Capture, pool: Pool, name: str, samples: int) -> Tensor:
    """Of one parameter, the gradients of two groups of samples at a time."""
    ways = SampleGradients(capture.network, (name,), pool.x, capture.fixed_batch)
    cotangent, N = pool.cotangent.to(_device(capture)), len(pool.x)
    K = torch.zeros(N, N, dtype=torch.float64)
    parts = list(blocks(N, 1, samples))
    for place, one in enumerate(parts):
        G = ways.gradients(pool.x[one], cotangent[one])[name].flatten(1)
        K[one, one] = gram(G).cpu()
        for other in parts[place + 1 :]:
            H = ways.gradients(pool.x[other], cotangent[other])[name].flatten(1)
            found = gram(G, H).cpu()
            K[one, other], K[other, one] = found, found.T
    return K


def _device(capture: Capture) -> torch.device:
    return next(capture.network.parameters()).device
