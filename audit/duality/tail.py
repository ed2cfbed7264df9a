"""The network behind a layer, run alone: a walk along a line in W changes the layer's answer, not what leads to it.

The rest of the network is cut out of its graph where that can be traced and where nothing leads round the layer. It
must then give the network's own losses; otherwise the whole network is run, with the layer's answer shifted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, fx, nn

from audit.duality.answers import Answers, stands_alone
from audit.duality.dual import as_raw, shifted_losses
from audit.layers import DenseLayer

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
