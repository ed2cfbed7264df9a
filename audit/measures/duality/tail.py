"""The network behind a layer, run alone: a walk along a line in W changes the layer's answer, not what leads to it.

The rest of the network is cut out of its graph where that can be traced and where nothing leads round the layer. It
must then give the network's own losses; otherwise the whole network is run, with the layer's answer shifted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn

from audit.measures.duality.dual_weights import as_raw, shifted_losses
from audit.network.capture import Capture
from audit.network.hooks import hooked, scores
from audit.network.layers import DenseLayer

AGREEMENT = 1e-10

Losses = Callable[[float], Tensor]  # t → losses [n]


class Lines:
    """Losses of a few samples along straight lines in the weights of one layer."""

    def __init__(self, answers: Answers, layer: DenseLayer) -> None:
        self._capture, self._layer, self._x = answers.capture, layer, answers.x
        capture, x, y = answers.capture, answers.x, answers.y
        self._y = y.to(next(capture.network.parameters()).device)
        self._tail = None if capture.fixed_batch else cut_behind(capture.network, layer)
        if self._tail is None:
            self.own = torch.cat([record.loss for record in capture.forward(x, y)])  # losses at W itself [n]
            return
        self._given, self._z, f = answers.of(layer)
        self.own = capture.loss.value(f.double(), self._y)
        if not torch.allclose(self._tail_losses(self._z), self.own, rtol=AGREEMENT, atol=AGREEMENT):
            self._tail = None

    @property
    def mean_loss(self) -> float:
        """L at W itself."""
        return float(self.own.mean())

    def along(self, E: Tensor) -> Losses:
        """Losses with the layer's weights at W + t E; E [out, in]."""
        if self._tail is None:
            return lambda t: self._whole_losses(t * E)
        if self._layer.patches is not None:
            moved = self._layer.patches.convolve(E, self._given)
        else:
            moved = as_raw(self._layer.arrange_input(self._given, len(self._x)) @ E.T, self._z, self._layer)
        return lambda t: self._tail_losses(self._z + t * moved)

    @torch.no_grad()
    def _tail_losses(self, z: Tensor) -> Tensor:
        assert self._tail is not None
        f = self._tail(z).reshape(len(self._x), -1).double()
        return self._capture.loss.value(f, self._y)

    def _whole_losses(self, change: Tensor) -> Tensor:
        size = self._capture.forward_size
        parts = zip(torch.split(self._x, size), torch.split(self._y, size), strict=True)
        return torch.cat([shifted_losses(self._capture, self._layer, lambda x: x @ change.T, *part) for part in parts])


def cut_behind(network: nn.Module, layer: DenseLayer) -> fx.GraphModule | None:
    """The network from the layer's answer on, or None where it cannot be had alone."""
    if not stands_alone(layer):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = network if isinstance(network, fx.GraphModule) else fx.symbolic_trace(network)
            return _cut(traced, layer.module)
    except Exception:  # code that cannot be traced may fail in any way at all; the whole network still runs
        return None


def _cut(traced: fx.GraphModule, path: str) -> fx.GraphModule | None:
    graph = fx.Graph()
    graph.output(graph.graph_copy(traced.graph, {}))
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == path]
    if len(calls) != 1:
        return None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_before(calls[0]):
        calls[0].replace_all_uses_with(graph.placeholder("answer"))
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    for node in inputs:
        if node.users:
            return None
        graph.erase_node(node)
    return fx.GraphModule(traced, graph)


# What dense layers are given and what they answer on a few samples, in their raw shapes: all layers in one run.


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
