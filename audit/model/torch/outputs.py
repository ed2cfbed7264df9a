"""Which output is audited, and which final activation is taken off it so that the audit sees the scores beneath."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from audit.errors import ModelError
from audit.model.torch.graph import Draft, Node, arguments, aten, shape_of

SOFTMAXES = {
    aten.softmax.int: "softmax",
    aten._softmax.default: "softmax",
    aten.log_softmax.int: "log_softmax",
    aten._log_softmax.default: "log_softmax",
}
RESHAPES = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.flatten.using_ints,
)
COPIES = (aten.clone.default, aten.to.dtype, aten._to_copy.default, aten.alias.default)


def named_outputs(returned: Any) -> dict[str, Any]:
    """What a network returns, flattened: "output" for a lone tensor, else its key or position: "logits", "0"."""
    names = {}
    for keys, value in pytree.tree_flatten_with_path(returned)[0]:
        parts = (getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in keys)
        names[".".join(map(str, parts)) or "output"] = value
    return names


def choose_output(outputs: dict[str, Any], wish: str | None, path: Path) -> str:
    """The output named or numbered by `wish`; else the only one that looks like scores [n, C].

    `outputs` maps names to anything with a shape and a dtype.
    """
    names = list(outputs)
    if wish is not None:
        if wish in names:
            return wish
        if wish.lstrip("-").isdigit() and -len(names) <= int(wish) < len(names):
            return names[int(wish)]
        raise ModelError(f"{path}: has no output {wish!r}; its outputs are {_listed(outputs)}: name one with --output.")
    floats = [name for name, value in outputs.items() if isinstance(value, Tensor) and value.is_floating_point()]
    scores = [name for name in floats if outputs[name].dim() == 2] or floats
    if len(scores) == 1:
        return scores[0]
    if not scores:
        raise ModelError(f"{path}: returns no float tensor ({_listed(outputs)}); audit a model that returns scores.")
    raise ModelError(f"{path}: has several outputs that could be scores ({_listed(outputs)}); name one with --output.")


def take_off_head(draft: Draft, name: str) -> str:
    """Removes a final softmax, log-softmax or sigmoid from output `name`; says which of `HEADS` it was."""
    last = _skipped(draft.outputs[name], COPIES)
    if last.op == "call_function" and last.target in SOFTMAXES and _over_last_axis(last):
        head = SOFTMAXES[last.target]
        draft.outputs[name] = last.all_input_nodes[0]
        return head
    last = _skipped(draft.outputs[name], COPIES + RESHAPES)  # an elementwise head commutes with a change of shape
    only_use = not last.users or len(last.users) == 1
    if last.op == "call_function" and last.target is aten.sigmoid.default and only_use:
        draft.bypass(last, last.all_input_nodes[0])
        return "sigmoid"
    return "none"


def _skipped(node: Node, targets: tuple[Any, ...]) -> Node:
    while node.op == "call_function" and node.target in targets:
        node = node.all_input_nodes[0]
    return node


def _over_last_axis(node: Node) -> bool:
    return arguments(node)["dim"] in (-1, len(shape_of(node)) - 1)


def _listed(outputs: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {list(value.shape)}" if isinstance(value, Tensor) else f"{name} ({type(value).__name__})"
        for name, value in outputs.items()
    )
