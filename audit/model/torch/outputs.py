"""Which output is audited, and the final layer that is taken off it so that the audit sees the scores beneath."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from audit.errors import ModelError
from audit.model.canon import Shape, scores_per_position
from audit.model.canon.heads import Step, find_head
from audit.model.torch.graph import Constants, Node, WorkingGraph, arguments, aten

STEPS = {
    **dict.fromkeys(("clone", "to", "_to_copy", "alias", "detach", "contiguous"), "copy"),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten"), "reshape"),
    **dict.fromkeys(("softmax", "_softmax"), "softmax"),
    **dict.fromkeys(("log_softmax", "_log_softmax"), "log_softmax"),
    **dict.fromkeys(("sigmoid", "special_expit"), "sigmoid"),
    **dict.fromkeys(("expand", "expand_as"), "expand"),
    **dict.fromkeys(("cat", "concat", "concatenate"), "concat"),
    **{
        "tanh": "tanh",
        "exp": "exp",
        "log": "log",
        "neg": "neg",
        "reciprocal": "reciprocal",
        "add": "add",
        "sub": "sub",
    },
    **{"mul": "mul", "div": "div", "maximum": "maximum", "sum": "sum", "mean": "mean"},
    **{"amax": "max", "amin": "min", "logsumexp": "logsumexp"},
}
"""What the rules for final layers call torch's operators."""


class TorchTail:
    """A graph of aten operators as the rules for final layers ask about it; its values are nodes and numbers."""

    def __init__(self, constants: Constants | None = None) -> None:
        self._constants = constants

    def step(self, value: Any) -> Step | None:
        """The call that makes a value."""
        if not isinstance(value, Node) or value.op != "call_function":
            return None
        if value.target is operator.getitem and value.args[1] == 0:
            return self._largest(value.args[0])
        if not isinstance(value.target, torch._ops.OpOverload):
            return None
        name, given = value.target._schema.name.removeprefix("aten::"), arguments(value)
        if name == "rsub" and given["alpha"] == 1:
            return Step("sub", (given["other"], given["self"]))
        op = STEPS.get(name)
        if op is None or given.get("alpha", 1) != 1 or given.get("rounding_mode") is not None:
            return None
        if op == "concat":
            return Step(op, tuple(given["tensors"]), (given["dim"],))
        return Step(op, tuple(value.args), _axes(given.get("dim")))

    def shape(self, value: Any) -> Shape | None:
        """The shape that was recorded when the graph was exported; a size that may vary is None."""
        recorded = value.meta.get("val") if isinstance(value, Node) else None
        if not isinstance(recorded, Tensor):
            return None
        return tuple(size if isinstance(size, int) else None for size in recorded.shape)

    def constant(self, value: Any) -> float | None:
        """The number that a value is throughout."""
        if isinstance(value, (int, float)):
            return float(value)
        if self._constants is None or not self._constants.is_constant(value):
            return None
        tensor = self._constants.value(value)
        uniform = isinstance(tensor, Tensor) and tensor.numel() and bool((tensor == tensor.flatten()[0]).all())
        return float(tensor.flatten()[0]) if uniform else None

    def _largest(self, value: Any) -> Step | None:
        """The first of what max(x, dim) returns."""
        if not isinstance(value, Node) or value.target is not aten.max.dim:
            return None
        given = arguments(value)
        return Step("max", (given["self"],), _axes(given["dim"]))


class Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A forward pass written down as a graph of the operators that ran, for code that no exporter can follow."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = fx.Graph()
        self._nodes: dict[Tensor, Node] = {}  # what made each tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:  # what was written to, perhaps through a view, is no longer what its maker made
            self._nodes.clear()
        read = pytree.tree_map_only(Tensor, self.node, (args, kwargs or {}))
        self._written(self._graph.call_function(func, *read), answer)
        return answer

    def _written(self, node: Node, answer: Any) -> Node:
        """`node` as the maker of what it answered; several answers are read through getitem, as exporters write it."""
        node.meta["val"] = answer
        if isinstance(answer, Tensor):
            self._nodes[answer] = node
        for position, part in enumerate(answer if isinstance(answer, (tuple, list)) else ()):
            self._written(self._graph.call_function(operator.getitem, (node, position)), part)
        return node

    def node(self, tensor: Tensor) -> Node:
        """The node that made a tensor; a new one for what the network was given."""
        found = self._nodes.get(tensor)
        return found or self._written(self._graph.placeholder(f"given_{len(self._nodes)}"), tensor)


def _axes(dim: Any) -> tuple[int, ...] | None:
    if isinstance(dim, int):
        return (dim,)
    return tuple(dim) if isinstance(dim, (list, tuple)) else None


def take_off_head(work: WorkingGraph, constants: Constants, output: str, path: Path) -> tuple[str, int | None]:
    """Let an output end in one row of scores for each sample.

    The name of the final layer in HEADS that was taken off, and C of an output [n, T, C].
    """
    tail = TorchTail(constants)
    head = find_head(tail, work.outputs[output])
    if head is not None:
        if len(tail.shape(head.scores) or ()) == 2:
            work.outputs[output] = head.scores
        else:
            work.bypass(head.made, head.scores)
    return head.name if head else "none", _flatten(work, output, path)


def _flatten(work: WorkingGraph, output: str, path: Path) -> int | None:
    """[n] becomes [n, 1], [n, C, 1, 1] becomes [n, C], and [n, T, C] becomes [n, T·C]; of a lone sample, [C] [1, C]."""
    node = work.outputs[output]
    shape = TorchTail().shape(node)
    per_position = scores_per_position(path, output, shape)
    if shape is None or len(shape) == 2:
        return per_position
    fed = next(node for node in work.graph.nodes if node.op == "placeholder")
    lone = fed.meta["val"].shape[0] == 1 and shape[0] != 1
    rows = (aten.flatten.using_ints, 1) if len(shape) > 1 else (aten.unsqueeze.default, 0 if lone else 1)
    with work.graph.inserting_after(next(iter(reversed(work.graph.nodes)))):
        work.outputs[output] = work.graph.call_function(rows[0], (node, rows[1]))
    return per_position


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


def _listed(outputs: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {list(value.shape)}" if isinstance(value, Tensor) else f"{name} ({type(value).__name__})"
        for name, value in outputs.items()
    )
