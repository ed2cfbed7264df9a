"""Convolutions, normalisations and embeddings with constant weights become the modules that everyone knows.

Layers are listed and judged by their type, so an operator with loose weights would be a layer without a name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from audit.model.torch.constants import Constants
from audit.model.torch.graph import Draft, Node, arguments, aten, shape_of

Given = dict[str, Any]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def weight_modules(draft: Draft, constants: Constants) -> None:
    """Rewrites every call that one of `BUILDERS` understands."""
    made: dict[object, str] = {}
    for node in draft.calls(*BUILDERS):
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
            made[key] = draft.free_path(constants.label(tensors["weight"])[0], node)
            draft.modules[made[key]] = _filled(module, weights)
        _call(draft, node, made[key], given.get("indices") or given["input"])


TENSORS = ("weight", "bias", "running_mean", "running_var")


def _call(draft: Draft, node: Node, path: str, x: Node) -> None:
    """Calls the module instead of `node`; operators that return (y, statistics…) are read through getitem(0)."""
    if not isinstance(node.meta.get("val"), (tuple, list)):
        draft.replace(node, path, (x,), kind="call_module")
        return
    for user in list(node.users):
        assert user.target is operator.getitem and user.args[1] == 0
        draft.replace(user, path, (x,), kind="call_module")
    draft.graph.erase_node(node)


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
