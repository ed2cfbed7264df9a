"""A network that has run once, every value kept, so that it can run again from any of its layers on.

"What would the scores be, had this layer answered something else?" is asked of every layer. A graph only computes again
what depends on that layer, which for the last layers of a large network is next to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from audit.watch import hooked, watch


class Replay:
    """Scores `f` [n, C] of x, and input and output of every `calls` of every dense layer and convolution."""

    @torch.no_grad()
    def __init__(self, network: nn.Module, x: Tensor) -> None:
        self._network, self._x = network, x
        self._graph = network if isinstance(network, fx.GraphModule) and not _overwrites(network) else None
        self._values: dict[fx.Node, object] = {}
        runner = self._run_and_keep if self._graph is not None else network
        self.f, self.calls = watch(network, x, runner)

    def _run_and_keep(self, x: Tensor) -> Tensor:
        assert self._graph is not None
        interpreter = fx.Interpreter(self._graph, garbage_collect_values=False)
        answer: Tensor = interpreter.run(x)
        self._values = interpreter.env
        return answer

    @torch.no_grad()
    def again(self, path: str, answers: list[Tensor]) -> Tensor:
        """The scores, had the layer given these answers, one for each of its calls."""
        if self._graph is None:
            return self._from_the_start(path, answers)
        layer, given = self._network.get_submodule(path), iter(answers)
        changed: dict[fx.Node, object] = {}
        for node in self._graph.graph.nodes:
            if node.op == "call_module" and self._network.get_submodule(str(node.target)) is layer:
                changed[node] = next(given)
        stale = _behind(self._graph, changed)
        known = {node: value for node, value in self._values.items() if node not in stale}
        answer: Tensor = fx.Interpreter(self._graph).run(self._x, initial_env=known | changed)
        return answer.reshape(len(self._x), -1)

    def _from_the_start(self, path: str, answers: list[Tensor]) -> Tensor:
        given = iter(answers)
        with hooked(self._network, {path: lambda _module, _inputs, _z: next(given)}):
            answer: Tensor = self._network(self._x)
        return answer.reshape(len(self._x), -1)


def _behind(network: fx.GraphModule, sources: dict[fx.Node, object]) -> set[fx.Node]:
    """Every node whose value depends on one of the sources."""
    found = set(sources)
    for node in network.graph.nodes:
        if node.op == "output" or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _overwrites(network: fx.GraphModule) -> bool:
    """Whether a value may change after it was kept: by a module that works in place, or an operator such as add_."""
    if any(getattr(module, "inplace", False) for module in network.modules()):
        return True
    return any(_mutates(node) for node in network.graph.nodes)


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op == "call_function" and schema is not None:
        return bool(schema.is_mutable)
    return node.op == "call_method" and str(node.target).endswith("_")
