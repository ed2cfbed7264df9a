"""What dense layers are given and what they answer on a few samples, in their raw shapes: all layers in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from audit.capture import Capture
from audit.layers import DenseLayer
from audit.watch import hooked, scores

Met = tuple[Tensor, Tensor, Tensor]  # a layer's input, its answer, and the scores [n, C]


def stands_alone(layer: DenseLayer) -> bool:
    """Whether everything runs through the layer, once, and its weights are used nowhere else."""
    return layer.cut_point and layer.calls == 1 and not layer.tied_with


class Answers:
    """Runs the samples when a layer is first asked for: with all layers if those fit into `room` bytes, or alone."""

    def __init__(self, capture: Capture, layers: Sequence[DenseLayer], x: Tensor, y: Tensor, room: int = 0) -> None:
        self.capture, self.x, self.y = capture, x, y
        alone = [layer for layer in layers if stands_alone(layer)]
        numbers = sum(layer.tokens * (layer.in_features + layer.out_features) for layer in alone)
        self._layers = alone if 8 * len(x) * numbers <= room else []
        self._met: dict[str, Met] = {}

    def of(self, layer: DenseLayer) -> Met:
        """Of a layer that is called once."""
        if layer.name not in self._met:
            together = layer in self._layers
            found = _run(self.capture, self._layers if together else [layer], self.x, self.y)
            if not together:
                return found[layer.name]
            self._met = found
        return self._met[layer.name]


@torch.no_grad()
def _run(capture: Capture, layers: Sequence[DenseLayer], x: Tensor, y: Tensor) -> dict[str, Met]:
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {layer.name: [] for layer in layers}

    def keeping(name: str) -> Callable[..., None]:
        return lambda _module, inputs, z: seen[name].append((inputs[0].clone(), z.clone()))

    with hooked(capture.network, {layer.module: keeping(layer.name) for layer in layers}):
        f = torch.cat([scores(capture.network, xs) for _, _, xs, _ in capture.batches(x, y, capture.forward_size)])
    return {layer.name: (*_joined(layer, seen[layer.name]), f) for layer in layers}


def _joined(layer: DenseLayer, parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    given, answers = zip(*parts, strict=True)
    return torch.cat(given, layer.batch_axis), torch.cat(answers, layer.batch_axis)
