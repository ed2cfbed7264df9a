"""Sums over samples and scores from one ordinary backward pass over a batch, by random signs.

With independent signs v_ic = ±1 the gradient of Σ_ic v_ic f_ic in all parameters at once has, in the mean over v, the
square Σ_i ‖∇_θ f_i‖_F²: cross terms between samples and between scores cancel. With v replaced by r, E[r rᵀ] = Λ, the
curvature of the loss in the scores, it is the trace of the Gauss–Newton Hessian, and the same gradient G of a layer's
weights W gives every quadratic form of it:

    trace  ‖G‖²,   row j  (w_j·G_j)²,   column i  (w_i·G_i)²,   relative flatness  ‖Wᵀ G‖²

How much the draws differ gives each number its standard error.

Of a layer with one vector per sample, G is Σ_i δ_i x_iᵀ, and every one of these squares is known sample by sample from
δ_i = ∂/∂z_i and x_i: no matrix as large as W is formed, and no samples are mixed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from audit.network import DenseLayer
from audit.network.backward import Calls, Plain, is_plain, keeping, square_of_product
from audit.network.capture import Batch
from audit.network.hooks import hooked, scores
from audit.network.loss import Loss

MULTIPLIED = 1 << 16  # weights of a layer up to which Wᵀ G is formed for every draw, in double precision …
PROBES = 4  # … and random vectors that stand for W beyond it


@dataclass(frozen=True)
class Estimate:
    """Means over samples from random draws."""

    value: Tensor  # […]
    error: Tensor  # […]  standard error
    samples: int  # behind it

    def __getitem__(self, place: int | slice) -> Estimate:
        return Estimate(self.value[place], self.error[place], self.samples)


class Draws:
    """Sums over batches, drawn several times each: their mean per sample, and how far it may be off."""

    def __init__(self, population: int) -> None:
        self._population = population
        self._batches: list[Tensor] = []
        self._sizes: list[int] = []

    def add(self, draws: Tensor, size: int) -> None:
        """Takes in one batch of `size` samples: draws [R, …] of the sum over them."""
        self._batches.append(draws.double().cpu())
        self._sizes.append(size)

    def estimate(self) -> Estimate:
        """Of the mean over all samples, also where the batches hold only some of them, picked at random."""
        draws, sizes = torch.stack(self._batches), torch.tensor(self._sizes, dtype=torch.float64)  # [B, R, …]
        m, (B, R) = int(sizes.sum()), draws.shape[:2]
        means = draws.mean(1)
        value = means.sum(0) / m
        within = draws.var(1).sum(0) / (R * m**2) if R > 1 else torch.zeros_like(value)
        by_size = means - value * sizes.reshape(-1, *[1] * value.dim())
        between = by_size.square().sum(0) * B / max(1, B - 1) / m**2
        if R == 1:
            return Estimate(value, between.sqrt(), m)
        picked = (between - within).clamp(min=0) * max(0.0, 1 - m / self._population)
        return Estimate(value, (within + picked).sqrt(), m)


def added(parts: Sequence[Draws]) -> Draws:
    """The sum of several numbers that were found in the same draws."""
    total = Draws(parts[0]._population)
    for batch, size in enumerate(parts[0]._sizes):
        total.add(torch.stack([part._batches[batch] for part in parts]).sum(0), size)
    return total


@dataclass(frozen=True)
class LayerForms:
    """Quadratic forms of one layer's Gauss–Newton Hessian, means over samples."""

    trace: Estimate  # []
    relative: Estimate  # []
    all_rows: Estimate  # []  their sum
    all_columns: Estimate  # []
    rows: Estimate  # [out]
    columns: Estimate  # [in]


@dataclass(frozen=True)
class SignSums:
    """What the random signs found."""

    layers: dict[str, LayerForms]
    heads: dict[str, Draws]  # of ‖W‖² trace, trace, relative flatness, rows and columns of each layer [5]
    squares: dict[str, Estimate]  # by parameter name: mean ‖∂f/∂θ‖² and Σ θ² (∂f/∂θ)² [2]
    all_squares: Estimate  # their sums over all parameters [2]

    def total(self, names: Sequence[str]) -> Estimate:
        """Sums over some layers [5], with the errors that they have in common."""
        return added([self.heads[name] for name in names]).estimate()


def sign_sums(
    network: nn.Module, layers: Sequence[DenseLayer], loss: Loss, batches: Iterable[Batch], plan: Draw
) -> SignSums:
    """Walks over the batches, with `plan.repeats` ordinary backward passes for each kind of sum."""
    forms = {layer.name: Draws(plan.population) for layer in layers}
    squares = {name: Draws(plan.population) for name, _ in network.named_parameters()}
    heads, all_squares = {layer.name: Draws(plan.population) for layer in layers}, Draws(plan.population)
    norms = {layer.name: float(sum_of_squares(_precise(layer.weight(network)))) for layer in layers}
    generator = torch.Generator().manual_seed(plan.seed)
    with differentiable(network) as parameters:
        for batch in batches:
            run, rows = Run(network, layers, parameters, batch, generator), batch.rows
            by_layer: dict[str, list[Tensor]] = {name: [] for name in forms}
            by_parameter: dict[str, list[Tensor]] = {name: [] for name in squares}
            for _ in range(plan.repeats):
                signs = _signs(run.f, rows, generator)
                for name, found in run.squares(signs).items():
                    by_parameter[name].append(found)
                for name, found in run.forms(_curved(loss, run.f, batch.y[:rows], signs)).items():
                    by_layer[name].append(found)
            all_squares.add(torch.stack([torch.stack(draws) for draws in by_parameter.values()]).sum(0), rows)
            for name, draws in by_layer.items():
                drawn = torch.stack(draws)  # [R, 4 + out + in]
                forms[name].add(drawn, rows)
                heads[name].add(torch.cat([norms[name] * drawn[:, :1], drawn[:, :4]], 1), rows)
            for name, draws in by_parameter.items():
                squares[name].add(torch.stack(draws), rows)
    return SignSums(
        {layer.name: _split(forms[layer.name].estimate(), layer) for layer in layers},
        heads,
        {name: draws.estimate() for name, draws in squares.items()},
        all_squares.estimate(),
    )


class Run:
    """One batch's forward pass, and what backward passes from its scores find."""

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[DenseLayer],
        parameters: Mapping[str, nn.Parameter],
        batch: Batch,
        generator: torch.Generator,
    ) -> None:
        plain = [layer for layer in layers if is_plain(layer)]
        calls: Calls = {layer.name: [] for layer in plain}
        with hooked(network, {layer.module: keeping(calls, layer.name) for layer in plain}):
            self.f = scores(network, batch.x)
        self._names = {f"{layer.module}.weight".lstrip("."): layer for layer in layers}
        self.plain = {
            f"{layer.module}.weight".lstrip("."): Plain.of(layer, network, calls, len(self.f)) for layer in plain
        }
        self._formed = {name: value for name, value in parameters.items() if name not in self.plain}
        self.weights = {name: value for name, value in self._formed.items() if name in self._names}
        self._generator = generator

    def squares(self, signs: Tensor) -> dict[str, Tensor]:
        """‖G‖² and Σ θ² G² [2] of every parameter, by its name."""
        gradients, deltas = self.backward(signs, self._formed)
        found = {name: _squares(G, self._formed[name]) for name, G in gradients.items()}
        return found | {name: self.plain[name].squares(delta) for name, delta in deltas.items()}

    def forms(self, curved: Tensor) -> dict[str, Tensor]:
        """Every quadratic form [4 + out + in] of each layer, by its name."""
        gradients, deltas = self.backward(curved, self.weights)  # backward passes need go no further than the weights
        found = {self._names[name].name: self.plain[name].forms(delta) for name, delta in deltas.items()}
        for name, G in gradients.items():
            G, W = (part.reshape(len(part), -1) for part in (G, self.weights[name].detach()))
            found[self._names[name].name] = _forms(G, W, self._generator)
        return found

    def backward(
        self, cotangent: Tensor, parameters: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradients of some parameters, and those of plain layers in their answers [n, out]."""
        targets = [*parameters.values(), *(plain.z for plain in self.plain.values())]
        grad = partial(torch.autograd.grad, retain_graph=True, materialize_grads=True)
        found = iter(grad(self.f, targets, cotangent) if targets else ())
        gradients = {name: next(found) for name in parameters}
        return gradients, {name: plain.arranged(next(found)) for name, plain in self.plain.items()}


def gradient_squares(
    network: nn.Module, layers: Sequence[DenseLayer], loss: Loss, batches: Iterable[Batch], seed: int
) -> tuple[float, float]:
    """‖mean g_i‖² and mean ‖g_i‖², g_i the gradient of sample i's loss in all dense weights.

    The first from the sum of the gradients, the second from one with random signs for each batch, or sample by sample.
    """
    generator, samples, signed = torch.Generator().manual_seed(seed), 0, 0.0
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    gathered: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    with differentiable(network) as parameters:
        for batch in batches:
            run, rows = Run(network, layers, parameters, batch, generator), batch.rows
            g = torch.zeros_like(run.f)
            g[:rows] = loss.gradient(run.f.detach().double()[:rows], batch.y[:rows]).to(g)
            signs = torch.randint(2, (len(g), 1), generator=generator).to(g) * 2 - 1
            formed, deltas = run.backward(g, run.weights)
            for name, part in formed.items():
                sums[name] = sums[name].to(part.device) + _precise(part)
            for name, delta in deltas.items():
                gathered[name].append((delta[:rows], run.plain[name].x[:rows].to(delta)))
            mixed = run.backward(signs * g, run.weights)[0] if run.weights else {}
            signed += sum(float(sum_of_squares(_precise(part))) for part in mixed.values())
            samples += rows
    of_mean = sum(float(sum_of_squares(total / samples)) for total in sums.values())
    for parts in gathered.values():
        delta, x = (torch.cat(column) for column in zip(*parts, strict=True))
        signed += float(delta.double().square().sum(1) @ x.double().square().sum(1))
        of_mean += square_of_product(delta / samples, x)
    return of_mean, signed / samples


@dataclass(frozen=True)
class Draw:
    """How the signs are drawn."""

    population: int  # samples that the batches were picked from
    repeats: int  # draws for each batch
    seed: int


@contextmanager
def differentiable(network: nn.Module) -> Iterator[Mapping[str, nn.Parameter]]:
    """The network's parameters, with gradients for a while."""
    parameters = dict(network.named_parameters())
    before = {name: value.requires_grad for name, value in parameters.items()}
    try:
        with torch.enable_grad():
            network.requires_grad_(True)
            yield parameters
    finally:
        for name, value in parameters.items():
            value.requires_grad_(before[name])


def _signs(f: Tensor, rows: int, generator: torch.Generator) -> Tensor:
    """±1 [n, C], and 0 for samples that only fill up a batch."""
    v = torch.randint(2, tuple(f.shape), generator=generator).to(f) * 2 - 1
    v[rows:] = 0
    return v


def _curved(loss: Loss, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """R = Lᵀ v with Lᵀ L = Λ, so that E[r rᵀ] = Λ  [n, C]; y of the samples that do not only fill up a batch."""
    r, rows = torch.zeros_like(v), len(y)
    r[:rows] = loss.curvature_root_transposed_times(f.detach().double()[:rows], y, v.double()[:rows]).to(v)
    return r


def _squares(G: Tensor, theta: Tensor) -> Tensor:
    """‖G‖² and Σ θ² G² [2]."""
    G, theta = _precise(G.detach()), _precise(theta.detach())
    return torch.stack([sum_of_squares(G), sum_of_squares(G * theta)])


def _precise(values: Tensor) -> Tensor:
    """In double precision, where a copy costs little; rounding is far below the error of the draws in any case."""
    return values.double() if values.numel() <= MULTIPLIED else values


def sum_of_squares(values: Tensor) -> Tensor:
    """The sum of the squares [], row by row: no copy of a large matrix, and no long sum in single precision."""
    rows = values.reshape(len(values), -1) if values.dim() else values.reshape(1, 1)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths.double().square().sum()


def _forms(G: Tensor, W: Tensor, generator: torch.Generator) -> Tensor:
    """Trace, relative flatness, sums of rows and columns, rows and columns, one after the other [4 + out + in]."""
    weighted = _precise(G * W)
    rows, columns = weighted.sum(1).double().square(), weighted.sum(0).double().square()
    head = torch.stack([sum_of_squares(_precise(G)), _relative(G, W, generator), rows.sum(), columns.sum()])
    return torch.cat([head, rows, columns])


def _relative(G: Tensor, W: Tensor, generator: torch.Generator) -> Tensor:
    """‖Wᵀ G‖²; of a large layer the mean of ‖(W s)ᵀ G‖² over random signs s, since the product is dear."""
    if W.numel() <= MULTIPLIED:
        return (W.double().T @ G.double()).square().sum()
    signs = torch.randint(2, (W.shape[1], PROBES), generator=generator).to(W) * 2 - 1
    return ((W @ signs).T @ G).double().square().sum() / PROBES


def _split(every: Estimate, layer: DenseLayer) -> LayerForms:
    rows, columns = slice(4, 4 + layer.out_features), slice(4 + layer.out_features, None)
    return LayerForms(every[0], every[1], every[2], every[3], every[rows], every[columns])
