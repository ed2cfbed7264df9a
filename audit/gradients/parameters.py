"""Gradients of the parameters that no dense layer holds: sample by sample, exact, in chunks.

What a dense layer's weights do follows from x and J alone (capture.py). Convolutions, norms, embeddings, recurrent
layers, free parameters and weights that several layers share need their gradients formed. Three ways lead there, tried
in this order for each parameter, and a way is taken only if it repeats plain autograd on the first samples:

closed    a closed form at the layer, from its input and the signal that comes back to its output
mapped    torch.func: the gradient of one sample's scores, mapped over the samples
one by one plain autograd, sample after sample: always right, slow
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.gradients.local import Form, form_of
from audit.layers import DenseLayer
from audit.watch import as_fed, hooked, scores

NUMBERS = 1 << 22  # numbers held at once (32 MB in float64)
MOST_ROWS = 128  # samples at once: more do not make it faster
TRIED = 2  # samples that a way is tried on
Gradients = dict[str, Tensor]  # by parameter name [n, K, *shape]


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
        self._forms: dict[str, Form] = {}
        self._closed_names: tuple[str, ...] = ()
        self._mapped: tuple[str, ...] = ()
        self._one_by_one: tuple[str, ...] = ()
        self._rows = 1
        if self.names:
            self._choose(as_fed(self.network, example[:TRIED]))

    def gradients(self, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
        """∂(cotangent_i · f_i)/∂θ for every sample i; cotangent [n, C] → for each name [n, *shape]."""
        x = as_fed(self.network, x)
        pieces = [
            {name: values[:, 0] for name, values in part}
            for start in range(0, len(x), self._rows)
            for part in [self._parts(x[start : start + self._rows], cotangent[start : start + self._rows, None])]
        ]
        return {name: torch.cat([piece[name] for piece in pieces]) for name in self.names}

    def squares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i, over the named parameters [n], float64."""
        plain, weighted = (torch.zeros(len(x), dtype=torch.float64, device=self._device) for _ in range(2))
        if not self.names:
            return plain, weighted
        x = as_fed(self.network, x)
        C = scores(self.network, self._filled(x[:1])).shape[1]
        units = torch.eye(C, dtype=torch.float64, device=self._device)
        for start in range(0, len(x), self._rows):
            rows = slice(start, start + self._rows)
            for some in torch.split(
                units, max(1, NUMBERS // self._size)
            ):  # all scores at once, unless the network is huge
                for name, values in self._parts(x[rows], some.expand(len(x[rows]), -1, -1)):
                    squared = values.double().square().sum(1).reshape(len(values), -1)
                    plain[rows] += squared.sum(1)
                    weighted[rows] += squared @ self.values[name].double().square().flatten()
        return plain, weighted

    @property
    def _size(self) -> int:
        return sum(value.numel() for value in self.values.values())

    def _parts(self, x: Tensor, cotangents: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Name and gradients [n, K, *shape], parameter after parameter; cotangents [n, K, C]."""
        if self._forms:
            yield from self._by_form(x, cotangents, self._forms, self._closed_names).items()
        if self._mapped:
            yield from self._by_map(x, cotangents, self._mapped).items()
        if self._one_by_one:
            yield from self._by_sample(x, cotangents, self._one_by_one).items()

    def _choose(self, x: Tensor) -> None:
        """Sorts the parameters by the quickest way that repeats plain autograd on the samples x."""
        C = scores(self.network, self._filled(x[:1])).shape[1]
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(len(x), 1, C, generator=generator, dtype=torch.float64).to(self._device)
        truth = self._by_sample(x, probe, self.names)
        forms = {path: form for path in self._holders() if (form := form_of(self.network.get_submodule(path)))}
        closed = self._agreeing(truth, lambda: self._by_form(x, probe, forms, self.names)) if forms else set()
        self._forms = {path: form for path, form in forms.items() if self._held(path) & closed}
        self._closed_names = tuple(name for name in self.names if name in closed)
        rest = tuple(name for name in self.names if name not in closed)
        mapped = self._agreeing(truth, lambda: self._by_map(x, probe, rest)) if rest else set()
        self._mapped = tuple(name for name in rest if name in mapped)
        self._one_by_one = tuple(name for name in rest if name not in mapped)
        most = MOST_ROWS if self._batch is None else min(MOST_ROWS, self._batch)
        self._rows = max(1, min(most, NUMBERS // (C * self._size)))

    def _agreeing(self, truth: Gradients, attempt: Callable[[], Gradients]) -> set[str]:
        """Names whose attempted gradients are the true ones; none where the attempt fails."""
        try:
            found = attempt()
        except (RuntimeError, ValueError, IndexError):  # an operator that cannot be mapped, an odd shape
            return set()
        loose = 1e-9 if next(iter(truth.values())).dtype == torch.float64 else 1e-3
        return {name for name in truth if name in found and _same(found[name], truth[name], loose)}

    def _holders(self) -> list[str]:
        """Paths of the modules that hold a wanted parameter."""
        return [path for path, _ in self.network.named_modules() if self._held(path)]

    def _held(self, path: str) -> set[str]:
        """Names of the wanted parameters that the module at `path` itself holds."""
        owned = self.network.get_submodule(path).named_parameters(prefix=path, recurse=False)
        return {name for name, _ in owned} & set(self.names)

    def _by_form(self, x: Tensor, cotangents: Tensor, forms: dict[str, Form], names: Sequence[str]) -> Gradients:
        n, batch = len(x), self._filled(x)
        calls: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)

        def keep(path: str) -> Callable[..., Tensor]:
            def hook(_module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
                z = z if z.requires_grad else z.detach().requires_grad_()
                calls[path].append((inputs[0].detach(), z))
                return z.clone()  # what follows must not overwrite z

            return hook

        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), hooked(self.network, {p: keep(p) for p in forms}):
            f = scores(self.network, batch)
        zs = [z for path in forms for _, z in calls[path]]
        signals = [self._signals(f, zs, cotangents[:, k]) for k in range(cotangents.shape[1])]
        stacked = iter([torch.stack(column, 1)[:n] for column in zip(*signals, strict=True)])
        found: Gradients = {}
        for path, form in forms.items():
            for inputs, _ in calls[path]:
                for name, value in form(self.network.get_submodule(path), inputs[:n], next(stacked)).items():
                    full = f"{path}.{name}" if path else name
                    found[full] = found[full] + value if full in found else value
        return {name: value for name, value in found.items() if name in names}

    def _signals(self, f: Tensor, zs: list[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
        full = torch.zeros_like(f)
        full[: len(cotangent)] = cotangent.to(f.dtype)
        return torch.autograd.grad(f, zs, full, retain_graph=True, materialize_grads=True)

    def _by_map(self, x: Tensor, cotangents: Tensor, names: Sequence[str]) -> Gradients:
        values = {name: self.values[name] for name in names}

        def of_sample(x_i: Tensor, cotangents_i: Tensor) -> Gradients:
            f_i, pull = vjp(lambda given: self._score_of(given, x_i), values)[:2]
            found: Gradients = vmap(lambda cotangent: pull(cotangent)[0])(cotangents_i.to(f_i.dtype))
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

    def _filled(self, x: Tensor) -> Tensor:
        """x, filled up with repeats where the network insists on a batch size."""
        return x if self._batch is None else x[torch.arange(self._batch, device=x.device) % len(x)]

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device


def _same(a: Tensor, b: Tensor, loose: float) -> bool:
    """Equal up to rounding, on the scale of the whole."""
    return a.shape == b.shape and bool((a - b).abs().max() <= loose * max(float(b.abs().max()), 1e-300))
