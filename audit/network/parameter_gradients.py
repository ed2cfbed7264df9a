"""Gradients of the parameters that no dense layer holds: sample by sample, exact, in chunks.

What a dense layer's weights do follows from x and J alone (network/capture). Convolutions, norms, embeddings, recurrent
layers, free parameters and weights that several layers share need their gradients formed. Four ways lead there, tried
in this order for each parameter, and a way is taken only if it repeats plain autograd on the first samples:

closed    a closed form at the layer, from its input and the signal that comes back to its output
unrolled  for recurrent layers: from what each step was given and the signal that comes back to it
mapped    torch.func: the gradient of one sample's scores, mapped over the samples
one by one plain autograd, sample after sample: always right, slow
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.maths.blocks import HELD, MAPPED_SAMPLES, blocks
from audit.model.base import as_fed, filled
from audit.network import DenseLayer
from audit.network.backward import Calls, one_by_one
from audit.network.closed_forms import ClosedForms, Form, Gradients, SquareSums, form_of
from audit.network.hooks import scores
from audit.network.unrolled import Unrolled, is_recurrent

TRIED = 2  # samples that a way is tried on
AGREEMENT = 1e-9  # relative to the largest entry, in double precision


def closed_parameters(network: nn.Module, layer: DenseLayer) -> tuple[bool, bool]:
    """Whether W and b of a dense layer belong to it alone, so that x and J say everything about them."""
    owned = dict(network.get_submodule(layer.module).named_parameters(recurse=False))
    uses = [parameter for _, parameter in network.named_parameters(remove_duplicate=False)]
    alone = {name: sum(other is parameter for other in uses) == 1 for name, parameter in owned.items()}
    return alone["weight"], alone.get("bias", False)


def other_parameters(network: nn.Module, layers: Sequence[DenseLayer]) -> tuple[str, ...]:
    """Names of the parameters that are not those of one dense layer alone."""
    closed = set()
    for layer in layers:
        for name, alone in zip(("weight", "bias"), closed_parameters(network, layer), strict=True):
            if alone:
                closed.add(f"{layer.module}.{name}" if layer.module else name)
    return tuple(name for name, _ in network.named_parameters() if name not in closed)


class SampleGradients:
    """Per-sample gradients of the named parameters of a network whose samples do not mix.

    `example` holds a few samples to try the ways on; `fixed_batch` is a batch size that the network insists on.
    """

    def __init__(
        self, network: nn.Module, names: Sequence[str], example: Tensor, fixed_batch: int | None = None
    ) -> None:
        self.network, self.names, self._batch = network, tuple(names), fixed_batch
        self.values = {name: network.get_parameter(name).detach() for name in names}
        self.closed = ClosedForms(network, {}, ())
        self._unrolled = Unrolled(network, {}, fixed_batch)
        self._mapped: tuple[str, ...] = ()
        self._one_by_one: tuple[str, ...] = ()
        self._outputs = 1
        if self.names:
            self._choose(example[:TRIED])

    def gradients(self, x: Tensor, cotangent: Tensor, closed: Gradients | None = None) -> Gradients:
        """∂(cotangent_i · f_i)/∂θ for every sample i; cotangent [n, C] → for each name [n, *shape].

        `closed` are those of the parameters with closed forms, where another pass has left them.
        """
        x, pieces = as_fed(self.network, x), []
        for rows in blocks(len(x), 1, self._at_once(1)):
            some, signals = x[rows], cotangent[rows]
            known = self._by_form(some, signals, self.closed) if closed is None and self.closed.paths else {}
            unrolled = {name: values[:, 0] for name, values in self._unrolled.gradients(some, signals[:, None]).items()}
            formed = {name: values[:, 0] for name, values in self._formed(some, signals[:, None])}
            pieces.append(known | unrolled | formed)
        nothing = {name: value.new_empty(0, *value.shape) for name, value in self.values.items()}
        pieces = [nothing | piece for piece in pieces or [nothing]]
        joined = {name: torch.cat([piece[name] for piece in pieces]) for name in self.names}
        return joined | (closed or {})

    def squares(self, x: Tensor, closed: SquareSums | None = None) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i, over the named parameters [n], float64.

        `closed` are those over the parameters with closed forms, where another pass has left them.
        """
        plain, weighted = (torch.zeros(len(x), dtype=torch.float64, device=self._device) for _ in range(2))
        if closed is not None:
            plain, weighted = closed.plain.clone(), closed.weighted.clone()
        x = as_fed(self.network, x)
        for total, sums_of_unrolled in zip((plain, weighted), self._unrolled.squares(x), strict=True):
            total += sums_of_unrolled
        for rows in blocks(len(x), 1, self._at_once(self._outputs)):
            if closed is None and self.closed.paths:
                sums = self._closed_squares(x[rows])
                plain[rows] += sums.plain
                weighted[rows] += sums.weighted
            for name, values in self._of_units(x[rows]):
                squared = values.double().square().sum(1).reshape(len(values), -1)
                plain[rows] += squared.sum(1)
                weighted[rows] += squared @ self.values[name].double().square().flatten()
        return plain, weighted

    @property
    def _size(self) -> int:
        return sum(value.numel() for value in self.values.values())

    def _closed_squares(self, x: Tensor) -> SquareSums:
        f, calls = self._watched(x, self.closed)
        sums = SquareSums(self.closed, calls, len(x))
        one_by_one(f, [], sums)
        return sums

    def _of_units(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Name and gradients of some scores, of the parameters without a closed form."""
        if not (self._mapped or self._one_by_one):
            return
        units = torch.eye(self._outputs, dtype=torch.float64, device=self._device)
        for some in blocks(len(units), self._size, HELD):  # all scores at once, unless the network is huge
            yield from self._formed(x, units[some].expand(len(x), -1, -1))

    def _formed(self, x: Tensor, cotangents: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Name and gradients [n, K, *shape] of parameters without a closed form; cotangents [n, K, C]."""
        if self._mapped:
            yield from self._by_map(x, cotangents, self._mapped).items()
        if self._one_by_one:
            yield from self._by_sample(x, cotangents, self._one_by_one).items()

    def _choose(self, example: Tensor) -> None:
        """Sorts the parameters by the quickest way that repeats plain autograd on the samples given."""
        closed, unrolled, mapped = self._ways(example)
        self.closed = ClosedForms(
            self.network, self._forms(tuple(name for name in self.names if name in closed)), closed
        )
        self._unrolled = Unrolled(self.network, {name: self.values[name] for name in unrolled}, self._batch)
        self._mapped = tuple(name for name in self.names if name in mapped)
        self._one_by_one = tuple(name for name in self.names if name not in closed | unrolled | mapped)
        self._outputs = scores(self.network, filled(as_fed(self.network, example[:1]), self._batch or 1)).shape[1]

    def _at_once(self, gradients: int) -> int:
        """Samples, each with so many gradients of all parameters."""
        most = MAPPED_SAMPLES if self._batch is None else min(MAPPED_SAMPLES, self._batch)
        return max(1, min(most, HELD // max(1, gradients * self._size)))

    def _ways(self, example: Tensor) -> tuple[set[str], set[str], set[str]]:
        """Names of the parameters whose closed form, whose unrolled and whose mapped gradients are right.

        In double precision: in single precision rounding alone switches units of a deep network on and off.
        """
        network = self.network
        if next(network.parameters()).dtype != torch.float64:
            self.network = copy.deepcopy(network).double()
            self.values = {name: self.network.get_parameter(name).detach() for name in self.names}
        try:
            return self._tried(as_fed(self.network, example))
        finally:
            self.network = network
            self.values = {name: network.get_parameter(name).detach() for name in self.names}

    def _tried(self, x: Tensor) -> tuple[set[str], set[str], set[str]]:
        C = scores(self.network, filled(x[:1], self._batch or 1)).shape[1]
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(len(x), C, generator=generator, dtype=torch.float64).to(self._device)
        closed, unrolled, mapped = set[str](), set[str](), set[str]()
        for names in _few_together({name: value.numel() for name, value in self.values.items()}):
            truth = {name: values[:, 0] for name, values in self._by_sample(x, probe[:, None], names).items()}
            every = ClosedForms(self.network, self._forms(names), names)
            if every.paths:
                closed |= self._agreeing(truth, functools.partial(self._by_form, x, probe, every))
            if any(is_recurrent(self._holder(name)) for name in names):
                unrolled |= self._agreeing(truth, functools.partial(self._by_steps, x, probe, names))
            if rest := tuple(name for name in names if name not in closed | unrolled):
                mapped |= self._agreeing(truth, functools.partial(self._mapped_once, x, probe, rest))
        return closed, unrolled, mapped

    def _holder(self, name: str) -> nn.Module:
        return self.network.get_submodule(name.rpartition(".")[0])

    def _by_steps(self, x: Tensor, cotangent: Tensor, names: Sequence[str]) -> Gradients:
        """[n, *shape] by name, of those that recurrent layers hold."""
        values = {name: self.values[name] for name in names if is_recurrent(self._holder(name))}
        found = Unrolled(self.network, values, self._batch).gradients(x, cotangent[:, None])
        return {name: each[:, 0] for name, each in found.items()}

    def _forms(self, names: Collection[str]) -> dict[str, Form]:
        """By path, of the modules that have a closed form and hold one of the parameters."""
        paths = dict.fromkeys(name.rpartition(".")[0] for name in names)
        return {path: form for path in paths if (form := form_of(self.network.get_submodule(path)))}

    def _agreeing(self, truth: Gradients, attempt: Callable[[], Gradients]) -> set[str]:
        """Names whose attempted gradients are the true ones; none where the attempt fails."""
        try:
            found = attempt()
        except (RuntimeError, ValueError, IndexError):  # an operator that cannot be mapped, an odd shape
            return set()
        return {name for name in truth if name in found and _same(found[name], truth[name])}

    def _by_form(self, x: Tensor, cotangent: Tensor, forms: ClosedForms) -> Gradients:
        """[n, *shape] by name, from one signal for each sample."""
        f, calls = self._watched(x, forms)
        full = torch.zeros_like(f)
        full[: len(x)] = cotangent.to(f.dtype)
        signals = torch.autograd.grad(f, forms.answers(calls), full, materialize_grads=True)
        return forms.gradients(calls, signals, torch.arange(len(x), device=f.device))

    def _watched(self, x: Tensor, forms: ClosedForms) -> tuple[Tensor, Calls]:
        """Scores, and what the layers with closed forms were given and answered."""
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), forms.watched() as calls:
            return scores(self.network, filled(x, self._batch or 1)), calls

    def _mapped_once(self, x: Tensor, cotangent: Tensor, names: Sequence[str]) -> Gradients:
        return {name: values[:, 0] for name, values in self._by_map(x, cotangent[:, None], names).items()}

    def _by_map(self, x: Tensor, cotangents: Tensor, names: Sequence[str]) -> Gradients:
        values = {name: self.values[name] for name in names}

        def of_sample(x_i: Tensor, cotangents_i: Tensor) -> Gradients:
            f_i, vjp_i = vjp(lambda given: self._score_of(given, x_i), values)[:2]
            found: Gradients = vmap(lambda cotangent: vjp_i(cotangent)[0])(cotangents_i.to(f_i.dtype))
            return found

        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")  # an operator without a batching rule is slow here, not wrong
            mapped: Gradients = vmap(of_sample)(x, cotangents)
        return mapped

    def _by_sample(self, x: Tensor, cotangents: Tensor, names: Sequence[str]) -> Gradients:
        values = {name: self.values[name].clone().requires_grad_() for name in names}
        leaves, found = list(values.values()), []
        for x_i, cotangents_i in zip(x, cotangents, strict=True):
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                f_i = self._score_of(values, x_i)
                rows = [
                    torch.autograd.grad(f_i, leaves, cotangent.to(f_i.dtype), retain_graph=True, materialize_grads=True)
                    if f_i.requires_grad
                    else tuple(torch.zeros_like(leaf) for leaf in leaves)
                    for cotangent in cotangents_i
                ]
            found.append([torch.stack(column) for column in zip(*rows, strict=True)])
        return {name: torch.stack(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}

    def _score_of(self, values: dict[str, Tensor], x_i: Tensor) -> Tensor:
        """Scores f [C] of one sample under the given parameters."""
        n = self._batch or 1
        f: Tensor = functional_call(self.network, values, (x_i[None].expand(n, *x_i.shape),))
        return f.reshape(n, -1)[0]

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device


def _few_together(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Names, as many together as have few numbers: what is formed to try them out is several times their size.

    >>> list(_few_together({"a": 3, "b": HELD, "c": 1, "d": 2}))
    [('a',), ('b',), ('c', 'd')]
    """
    group: list[str] = []
    for name, size in sizes.items():
        if group and sum(sizes[each] for each in group) + size > HELD:
            yield tuple(group)
            group = []
        group.append(name)
    if group:
        yield tuple(group)


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, on the scale of the whole."""
    return a.shape == b.shape and bool((a - b).abs().max() <= AGREEMENT * max(float(b.abs().max()), 1e-300))
