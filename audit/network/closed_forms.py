"""Gradients by closed forms: from what layers were given, and the signals that come back to their answers.

Signals come from backward passes, whoever runs them. Squares are summed while those still run, a few scores at a time,
so that neither the signals of all scores nor any gradient is ever kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audit.maths.blocks import CACHED_STACK, HELD, SAMPLE_GRADIENTS, SCORES, blocks
from audit.network.backward import Calls, keeping
from audit.network.hooks import CONVOLUTIONS, hooked
from audit.network.patches import Patches

Gradients = dict[str, Tensor]  # by parameter name [n, *shape]


class ClosedForms:
    """The named parameters of a network, each held by a module at one of the paths of `forms`."""

    def __init__(self, network: nn.Module, forms: Mapping[str, Form], names: Collection[str]) -> None:
        self.network, self.paths, self.names = network, tuple(forms), frozenset(names)
        self._forms, self._modules = forms, {path: network.get_submodule(path) for path in forms}

    @contextmanager
    def watched(self) -> Iterator[Calls]:
        """Keeps input and answer of every call of the layers while the network runs."""
        calls: Calls = defaultdict(list)
        with hooked(self.network, {path: keeping(calls, path) for path in self.paths}):
            yield calls

    def answers(self, calls: Calls) -> list[Tensor]:
        """The outputs at which backward passes leave their signals, in the order of `gradients`."""
        return [z for path in self.paths for _, z in calls[path]]

    def gradients(self, calls: Calls, signals: Sequence[Tensor], rows: Tensor) -> Gradients:
        """Of the samples `rows`, from one signal for each answer."""
        found: Gradients = {}
        for path, own in zip(self.paths, self.by_path(calls, signals), strict=True):
            parts = (rows[part] for part in blocks(max(1, len(rows)), 1, SAMPLE_GRADIENTS))
            pieces = [self.of_module(path, calls, some, [g[some, None] for g in own]) for some in parts]
            found |= {name: torch.cat([piece[name][:, 0] for piece in pieces]) for name in pieces[0]}
        return found

    def by_path(self, calls: Calls, signals: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The signals of every module's calls."""
        ends = accumulate((len(calls[path]) for path in self.paths), initial=0)
        return [signals[start:end] for start, end in pairwise(ends)]

    def of_module(self, path: str, calls: Calls, rows: Tensor | slice, signals: Sequence[Tensor]) -> Gradients:
        """By full name [n, K, *shape], summed over the module's calls; signals of the same rows [n, K, …]."""
        found: Gradients = {}
        for (x, _), g in zip(calls[path], signals, strict=True):
            for name, value in self._forms[path](self._modules[path], x[rows])(g).items():
                full = f"{path}.{name}" if path else name
                if full in self.names:
                    found[full] = found[full] + value if full in found else value
        return found


def scores_together(numbers: int) -> int:
    """How many scores are taken in at once, if each has so many numbers in its signals."""
    return max(1, min(SCORES, HELD // max(1, numbers)))


class SquareSums:
    """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of the first `rows` samples i of a forward pass [rows], float64.

    With `cotangent` [rows, C], beside them the gradients of cotangent_i · f_i, unless they are large.
    """

    def __init__(self, forms: ClosedForms, calls: Calls, rows: int, cotangent: Tensor | None = None) -> None:
        self.forms, self._calls, self._rows = forms, calls, rows
        self.answers = forms.answers(calls)
        device = next(forms.network.parameters()).device
        self.plain, self.weighted = (torch.zeros(rows, dtype=torch.float64, device=device) for _ in range(2))
        self._weights = {name: forms.network.get_parameter(name).double().square().flatten() for name in forms.names}

        self._cotangent, self._taken = cotangent, 0
        small = rows * sum(weights.numel() for weights in self._weights.values()) <= HELD
        self.combined: Gradients | None = {} if cotangent is not None and small else None

    @property
    def together(self) -> int:
        """How many scores are best taken in at once."""
        return scores_together(sum(z.numel() for z in self.answers))

    def add(self, scores: Sequence[Sequence[Tensor]]) -> None:
        """Takes in some scores; of each, its signal at every answer."""
        signals = [self.forms.by_path(self._calls, score) for score in scores]
        for number, path in enumerate(self.forms.paths):
            size = sum(weights.numel() for name, weights in self._weights.items() if self._is_of(name, path))
            for some in blocks(len(scores), size, HELD):
                self._add(path, [own[number] for own in signals[some]], size, self._taken + some.start)
        self._taken += len(scores)

    def _is_of(self, name: str, path: str) -> bool:
        return name.rpartition(".")[0] == path

    def _add(self, path: str, signals: Sequence[Sequence[Tensor]], size: int, first: int) -> None:
        """The signals of the scores from `first` on at the answers of one module, a few samples at a time."""
        largest = max((g[0].numel() for g in signals[0]), default=0)
        for rows in blocks(self._rows, len(signals) * max(1, size, largest), CACHED_STACK):
            stacked = [torch.stack([g[rows] for g in of_call], 1) for of_call in zip(*signals, strict=True)]
            for name, values in self.forms.of_module(path, self._calls, rows, stacked).items():
                squared = values.double().square().sum(1).flatten(1)
                self.plain[rows] += squared.sum(1)
                self.weighted[rows] += squared @ self._weights[name]
                if self.combined is not None:
                    self._combine(name, rows, values, slice(first, first + len(signals)))

    def _combine(self, name: str, rows: slice, values: Tensor, scores: slice) -> None:
        assert self.combined is not None and self._cotangent is not None
        if name not in self.combined:
            self.combined[name] = values.new_zeros(self._rows, *values.shape[2:])
        shares = self._cotangent[rows, None, scores].to(values.dtype)  # [n, 1, K]
        self.combined[name][rows] += (shares @ values.flatten(2)).reshape(len(values), *values.shape[2:])


# Closed forms: a layer's gradients, sample by sample, from what went in and what comes back.
# Each form looks once at x, the input of one call of the layer, and then takes K backward signals g at its output
# to the
# gradient of every parameter for every sample and signal. None forms more than it returns, but for the unfolded
# patches.


VJP = Callable[[Tensor], dict[str, Tensor]]
"""g [n, K, …] → for each parameter's name its gradients [n, K, *shape]."""
Form = Callable[[nn.Module, Tensor], VJP]
"""module, x [n, …] → how signals become gradients."""


def form_of(module: nn.Module) -> Form | None:
    """The closed form of a layer's kind; None where there is none."""
    if isinstance(module, CONVOLUTIONS):
        return _convolution if module.padding_mode == "zeros" else None
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return _batch_norm if module.track_running_stats and not module.training else None
    if isinstance(module, nn.Embedding):
        return _embedding
    kinds: tuple[tuple[type[nn.Module], Form], ...] = (
        (nn.LayerNorm, _layer_norm),
        (nn.GroupNorm, _group_norm),
        (nn.PReLU, _leaky),
    )
    return next((form for kind, form in kinds if type(module) is kind), None)


def _convolution(module: nn.Module, x: Tensor) -> VJP:
    """∇_W = Σ_p g_p u_pᵀ over the positions p, u_p the patch that the kernel saw there: one product for all signals."""
    assert isinstance(module, CONVOLUTIONS)
    groups = module.groups
    U = Patches.of(module, tuple(x.shape[2:])).columns(x)  # [n, in·k, P]
    U = torch.unflatten(U, 1, (groups, -1)).flatten(0, 1)  # [n·G, in/G·k, P]

    def vjp(g: Tensor) -> dict[str, Tensor]:
        (n, K, out), g = g.shape[:3], g.flatten(3)  # [n, K, out, P]
        by_group = torch.unflatten(g, 2, (groups, -1)).transpose(1, 2).reshape(len(U), -1, g.shape[3])
        weight = torch.bmm(by_group, U.mT)  # [n·G, K·out/G, in/G·k]
        weight = weight.reshape(n, groups, K, out // groups, -1).transpose(1, 2)
        return _named(module, weight.reshape(n, K, *module.weight.shape), g.sum(3))

    return vjp


def _batch_norm(module: nn.Module, x: Tensor) -> VJP:
    assert isinstance(module, nn.modules.batchnorm._BatchNorm)
    return _scaled(module, F.batch_norm(x, module.running_mean, module.running_var, eps=module.eps))


def _group_norm(module: nn.Module, x: Tensor) -> VJP:
    assert isinstance(module, nn.GroupNorm)
    return _scaled(module, F.group_norm(x, module.num_groups, eps=module.eps))


def _scaled(module: nn.Module, normal: Tensor) -> VJP:
    """Of z = γ x̂ + β with one γ and β per channel: ∇_γ = Σ_p g_p x̂_p and ∇_β = Σ_p g_p over the positions p."""
    normal = normal[:, None]
    normal = normal.flatten(3) if normal.dim() > 3 else normal[..., None]

    def vjp(g: Tensor) -> dict[str, Tensor]:
        g = g.flatten(3) if g.dim() > 3 else g[..., None]
        return _named(module, (g * normal).sum(3), g.sum(3))

    return vjp


def _layer_norm(module: nn.Module, x: Tensor) -> VJP:
    """As above, with γ and β over the last axes and the positions before them."""
    assert isinstance(module, nn.LayerNorm)
    axes = len(module.normalized_shape)
    normal = F.layer_norm(x, module.normalized_shape, eps=module.eps)[:, None]

    def vjp(g: Tensor) -> dict[str, Tensor]:
        positions, product = list(range(2, g.dim() - axes)), g * normal
        return _named(module, product.sum(positions), g.sum(positions)) if positions else _named(module, product, g)

    return vjp


def _embedding(module: nn.Module, x: Tensor) -> VJP:
    """Every looked-up row gets the signal of each place where it was looked up."""
    assert isinstance(module, nn.Embedding)
    shape, width = module.weight.shape, module.embedding_dim
    x = x.remainder(len(module.weight)).long()  # negative row numbers count from the end, where there are any

    def vjp(g: Tensor) -> dict[str, Tensor]:
        n, K = g.shape[:2]
        rows = x.reshape(n, 1, -1, 1).expand(n, K, -1, width)
        weight = torch.zeros(n, K, *shape, dtype=g.dtype, device=g.device)
        return {"weight": weight.scatter_add_(2, rows, g.reshape(n, K, -1, width))}

    return vjp


def _leaky(module: nn.Module, x: Tensor) -> VJP:
    """Of z = x above 0 and a x below, a for all channels or one for each: ∇_a = Σ_p g_p min(x_p, 0)."""
    assert isinstance(module, nn.PReLU)
    below, one_slope = x.clamp(max=0)[:, None], module.num_parameters == 1

    def vjp(g: Tensor) -> dict[str, Tensor]:
        product = g * below
        if one_slope:
            return {"weight": product.flatten(2).sum(2, keepdim=True)}
        return {"weight": product.flatten(3).sum(3) if product.dim() > 3 else product}

    return vjp


def _named(module: nn.Module, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    both = {"weight": weight, "bias": bias}
    return {name: both[name] for name, _ in module.named_parameters(recurse=False)}
