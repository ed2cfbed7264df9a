"""Experiments on single layers: whose answer reaches whose scores?

Two small batches a and b (the same samples moved on by one, or the next batch) run through the network. Then a runs
again while one layer answers as it did for b. If only the first sample's answer is exchanged, only the first sample's
scores may move; if all are, and the scores become those of b, then everything that reaches the output runs through
that layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from audit.watch import arrange, hooked, scores, watch


class Probe:
    """A few samples, and what every layer made of them."""

    def __init__(self, network: nn.Module, example: Tensor, batch: int | None) -> None:
        self.network, self.n = network, batch or len(example)
        self.a, b = example[: self.n], example.roll(-self.n if len(example) > self.n else 1, 0)[: self.n]
        self.f_a, self.calls = watch(network, self.a)
        self.f_b, self._calls_b = watch(network, b)
        self._fewer = None if batch or self.n < 3 else watch(network, example[:-1])[1]

    def batch_axis(self, path: str) -> int | None:
        """The axis that shrinks with the batch; with a fixed batch, the first that is a multiple of it."""
        shape = self.calls[path][0][1].shape
        if self._fewer is None:
            axes = [axis for axis in range(len(shape) - 1) if shape[axis] % self.n == 0]
        else:
            fewer = self._fewer[path][0][1].shape
            axes = [axis for axis in range(len(shape)) if shape[axis] * (self.n - 1) == fewer[axis] * self.n]
        return axes[0] if axes else None

    def separable(self, path: str, axis: int) -> bool:
        """Whether the first sample's answer at this layer reaches no other sample's scores."""
        if self.n == 1:
            return True
        return torch.allclose(self._exchanged(path, axis, rows=1)[1:], self.f_a[1:], rtol=1e-4, atol=1e-6)

    def influential(self, path: str, axis: int) -> bool:
        """Whether the scores move at all when this layer answers something else."""
        return not torch.equal(self._exchanged(path, axis, rows=self.n, noise=1.0), self.f_a)

    def cut_point(self, path: str, axis: int) -> bool:
        """Whether everything that reaches the scores runs through this layer."""
        return torch.allclose(self._exchanged(path, axis, rows=self.n), self.f_b, rtol=1e-4, atol=1e-6)

    def inputs(self, path: str, batch_axis: int, feature_axis: int) -> Tensor:
        """What the layer was given [n, T, in], over all its calls."""
        return torch.cat([arrange(x, self.n, batch_axis, feature_axis) for x, _ in self.calls[path]], 1)

    @torch.no_grad()
    def _exchanged(self, path: str, axis: int, rows: int, noise: float = 0.0) -> Tensor:
        """Scores of `a` when, in its first `rows` samples, the layer answers as it does for `b`, shifted by `noise`."""
        answers = iter(self._calls_b[path])

        def exchange(_module: nn.Module, _inputs: object, z: Tensor) -> Tensor:
            other = next(answers)[1]
            mixed, source = z.clone(), other + noise * (1 + other.abs().mean())
            count = rows * z.shape[axis] // self.n
            mixed.narrow(axis, 0, count).copy_(source.narrow(axis, 0, count))
            return mixed

        with hooked(self.network, {path: exchange}):
            return scores(self.network, self.a)
