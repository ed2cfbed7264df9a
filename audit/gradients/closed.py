"""Gradients by closed forms: from what layers were given, and the signals that come back to their answers.

Signals come from backward passes, whoever runs them. Squares are summed while those still run, a few scores at a time,
so that neither the signals of all scores nor any gradient is ever kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from audit.backward import Calls, keeping
from audit.gradients.local import Form
from audit.watch import hooked

NUMBERS = 1 << 22  # numbers held at once (32 MB in float64)
SCORES = 5  # whose signals are held at once: the quickest are all, but these weigh less
CACHED = 1 << 19  # numbers worked on at once: 4 MB, which a processor's cache holds
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
        """What backward passes have to reach, in the order of their signals."""
        return [z for path in self.paths for _, z in calls[path]]

    def gradients(self, calls: Calls, signals: Sequence[Tensor], rows: Tensor) -> Gradients:
        """Of the samples `rows`, from one signal for each answer."""
        found: Gradients = {}
        for path, own in zip(self.paths, self.by_path(calls, signals), strict=True):
            pieces = [self.of_module(path, calls, some, [g[some, None] for g in own]) for some in torch.split(rows, 64)]
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
    return max(1, min(SCORES, NUMBERS // max(1, numbers)))


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
        small = rows * sum(weights.numel() for weights in self._weights.values()) <= NUMBERS
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
            most = max(1, NUMBERS // max(1, size))
            for first in range(0, len(scores), most):
                self._add(path, [own[number] for own in signals[first : first + most]], size, self._taken + first)
        self._taken += len(scores)

    def _is_of(self, name: str, path: str) -> bool:
        return name.rpartition(".")[0] == path

    def _add(self, path: str, signals: Sequence[Sequence[Tensor]], size: int, first: int) -> None:
        """The signals of the scores from `first` on at the answers of one module, a few samples at a time."""
        largest = max((g[0].numel() for g in signals[0]), default=0)
        block = max(1, CACHED // (len(signals) * max(1, size, largest)))
        for start in range(0, self._rows, block):
            rows = slice(start, min(start + block, self._rows))
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
