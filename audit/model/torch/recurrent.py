"""LSTM, GRU and RNN operators become the modules they were written as.

The bare operators trust the shape of the initial state blindly: a state for another batch size crashes the process,
where the module raises an error.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import nn

from audit.model.torch.constants import Constants
from audit.model.torch.graph import Draft, Node, arguments, aten

KINDS: dict[Any, tuple[Any, int, dict[str, Any]]] = {
    aten.lstm.input: (nn.LSTM, 4, {}),
    aten.gru.input: (nn.GRU, 3, {}),
    aten.rnn_tanh.input: (nn.RNN, 1, {"nonlinearity": "tanh"}),
    aten.rnn_relu.input: (nn.RNN, 1, {"nonlinearity": "relu"}),
}
"""Operator → module, gates per unit, further arguments."""


def recurrent_modules(draft: Draft, constants: Constants) -> None:
    """Rewrites every recurrent operator with constant weights in `draft`."""
    made: dict[object, str] = {}
    for node in draft.calls(*KINDS):
        given = arguments(node)
        if not all(constants.is_constant(weight) for weight in given["params"]):
            continue
        key = tuple(constants.key(weight) for weight in given["params"])
        if key not in made:
            made[key] = draft.free_path(_owner(str(given["params"][0].target)), node)
            draft.modules[made[key]] = _module(node, given, constants)
        _call(draft, node, made[key], given)


def _owner(weight: str) -> str:
    return weight.rpartition(".")[0] or "rnn"


def _module(node: Node, given: dict[str, Any], constants: Constants) -> nn.RNNBase:
    kind, gates, more = KINDS[node.target]
    weights = [constants.parameter(weight) for weight in given["params"]]
    hidden, fed_back = weights[1].shape[0] // gates, weights[1].shape[1]
    if fed_back != hidden:
        more = {**more, "proj_size": fed_back}
    module = kind(
        weights[0].shape[1],
        hidden,
        given["num_layers"],
        bias=given["has_biases"],
        batch_first=given["batch_first"],
        bidirectional=given["bidirectional"],
        device="meta",
        **more,
    )
    for name, weight in zip(module._flat_weights_names, weights, strict=True):
        setattr(module, name, weight)
    assert isinstance(module, nn.RNNBase)
    return module.eval()


def _call(draft: Draft, node: Node, path: str, given: dict[str, Any]) -> None:
    """The operator returns (y, h, c) where the module returns (y, (h, c))."""
    is_lstm = node.target is aten.lstm.input
    state = tuple(given["hx"]) if is_lstm else given["hx"]
    with draft.graph.inserting_before(node):
        answer = draft.graph.call_module(path, (given["input"], state))
        states = draft.graph.call_function(operator.getitem, (answer, 1))
    for user in list(node.users):
        position = user.args[1]
        source = (states, position - 1) if is_lstm and position else (answer, position)  # type: ignore[operator]
        draft.replace(user, operator.getitem, source)
    draft.graph.erase_node(node)
