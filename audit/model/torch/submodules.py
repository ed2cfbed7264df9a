"""Convolutions, normalisations, embeddings and recurrent layers become the modules that everyone knows.

Layers are listed and judged by their type, so an operator with loose weights would be a layer without a name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from audit.model.torch.graph import Constants, Node, WorkingGraph, arguments, aten, shape_of

Given = dict[str, Any]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def weight_modules(work: WorkingGraph, constants: Constants) -> None:
    """Rewrites every call that one of `BUILDERS` understands."""
    made: dict[object, str] = {}
    for node in work.calls(*BUILDERS):
        given = arguments(node)
        tensors = {name: value for name, value in given.items() if name in TENSORS and value is not None}
        if "weight" not in tensors or not all(constants.is_constant(value) for value in tensors.values()):
            continue
        rest = tuple(repr(value) for name, value in given.items() if name not in ("input", "indices", *tensors))
        key = (str(node.target), rest, *(constants.key(value) for value in tensors.values()))
        if key not in made:
            weights = {name: constants.parameter(value) for name, value in tensors.items()}
            module = BUILDERS[node.target](node, given, weights)
            if module is None:
                continue
            made[key] = work.free_path(constants.label(tensors["weight"])[0], node)
            work.modules[made[key]] = _filled(module, weights)
        _call(work, node, made[key], given.get("indices") or given["input"])


TENSORS = ("weight", "bias", "running_mean", "running_var")


def _call(work: WorkingGraph, node: Node, path: str, x: Node) -> None:
    """Calls the module instead of `node`; operators that return (y, statistics…) are read through getitem(0)."""
    if not isinstance(node.meta.get("val"), (tuple, list)):
        work.replace(node, path, (x,), kind="call_module")
        return
    for user in list(node.users):
        assert user.target is operator.getitem and user.args[1] == 0
        work.replace(user, path, (x,), kind="call_module")
    work.graph.erase_node(node)


def _filled(module: nn.Module, weights: dict[str, nn.Parameter]) -> nn.Module:
    for name, value in weights.items():
        if name in TENSORS[2:]:
            setattr(module, name, value.detach())
        else:
            setattr(module, name, value)
    if getattr(module, "num_batches_tracked", None) is not None:
        module.num_batches_tracked = torch.tensor(0)
    return module.eval()


def _convolution(node: Node, given: Given, weights: dict[str, nn.Parameter]) -> nn.Module | None:
    weight: Tensor = weights["weight"]
    axes = weight.dim() - 2
    if given.get("transposed") or not 1 <= axes <= 3 or len(shape_of(given["input"])) != axes + 2:
        return None
    padding = given["padding"]
    kind: Any = CONVOLUTIONS[axes - 1]
    module: nn.Module = kind(
        in_channels=weight.shape[1] * given["groups"],
        out_channels=weight.shape[0],
        kernel_size=tuple(weight.shape[2:]),
        stride=_per_axis(given["stride"], axes),
        padding=padding if isinstance(padding, str) else _per_axis(padding, axes),
        dilation=_per_axis(given["dilation"], axes),
        groups=given["groups"],
        bias="bias" in weights,
        device="meta",
    )
    return module


def _per_axis(numbers: Any, axes: int) -> Any:
    """One number per axis: aten lets a lone number stand for all of them."""
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(numbers * axes if len(numbers) == 1 else numbers)


def _batch_norm(node: Node, given: Given, weights: dict[str, nn.Parameter]) -> nn.Module | None:
    kind = BATCH_NORMS.get(len(shape_of(given["input"])))
    if kind is None or len(weights) != len(TENSORS) or given.get("training"):
        return None
    return kind(weights["weight"].shape[0], eps=given["eps"], momentum=given["momentum"], device="meta")


def _layer_norm(node: Node, given: Given, weights: dict[str, nn.Parameter]) -> nn.Module | None:
    return nn.LayerNorm(given["normalized_shape"], eps=given["eps"], bias="bias" in weights, device="meta")


def _group_norm(node: Node, given: Given, weights: dict[str, nn.Parameter]) -> nn.Module | None:
    if "bias" not in weights:
        return None
    return nn.GroupNorm(given["num_groups"], weights["weight"].shape[0], eps=given["eps"], device="meta")


def _embedding(node: Node, given: Given, weights: dict[str, nn.Parameter]) -> nn.Module | None:
    count, width = weights["weight"].shape
    return nn.Embedding(count, width, device="meta")


BUILDERS: dict[Any, Callable[[Node, Given, dict[str, nn.Parameter]], nn.Module | None]] = {
    aten.conv1d.default: _convolution,
    aten.conv1d.padding: _convolution,
    aten.conv2d.default: _convolution,
    aten.conv2d.padding: _convolution,
    aten.conv3d.default: _convolution,
    aten.conv3d.padding: _convolution,
    aten.convolution.default: _convolution,
    aten.batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.layer_norm.default: _layer_norm,
    aten.native_layer_norm.default: _layer_norm,
    aten.group_norm.default: _group_norm,
    aten.embedding.default: _embedding,
}


# LSTM, GRU and RNN: the bare operators trust the shape of the initial state blindly. A state for another batch size
# crashes the process, where the module raises an error.

RECURRENT: dict[Any, tuple[Any, int, dict[str, Any]]] = {
    aten.lstm.input: (nn.LSTM, 4, {}),
    aten.gru.input: (nn.GRU, 3, {}),
    aten.rnn_tanh.input: (nn.RNN, 1, {"nonlinearity": "tanh"}),
    aten.rnn_relu.input: (nn.RNN, 1, {"nonlinearity": "relu"}),
}
"""Operator → module, gates per unit, further arguments."""


def recurrent_modules(work: WorkingGraph, constants: Constants) -> None:
    """Rewrites every recurrent operator with constant weights in `work`."""
    made: dict[object, str] = {}
    for node in work.calls(*RECURRENT):
        given = arguments(node)
        if not all(constants.is_constant(weight) for weight in given["params"]):
            continue
        key = tuple(constants.key(weight) for weight in given["params"])
        if key not in made:
            made[key] = work.free_path(_owner(str(given["params"][0].target)), node)
            work.modules[made[key]] = _recurrent_module(node, given, constants)
        _call_recurrent(work, node, made[key], given)


def _owner(weight: str) -> str:
    return weight.rpartition(".")[0] or "rnn"


def _recurrent_module(node: Node, given: Given, constants: Constants) -> nn.RNNBase:
    kind, gates, more = RECURRENT[node.target]
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


def _call_recurrent(work: WorkingGraph, node: Node, path: str, given: Given) -> None:
    """The operator returns (y, h, c) where the module returns (y, (h, c))."""
    is_lstm = node.target is aten.lstm.input
    state = tuple(given["hx"]) if is_lstm else given["hx"]
    with work.graph.inserting_before(node):
        answer = work.graph.call_module(path, (given["input"], state))
        states = work.graph.call_function(operator.getitem, (answer, 1))
    for user in list(node.users):
        position = user.args[1]
        source = (states, position - 1) if is_lstm and position else (answer, position)  # type: ignore[operator]
        work.replace(user, operator.getitem, source)
    work.graph.erase_node(node)
