"""What in a graph does not depend on the input: parameters, buffers, and everything computed from them alone."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from audit.model.torch.graph import Draft, Node, aten

PIECES = {2: ("q", "kv"), 3: ("q", "k", "v")}  # how nn.MultiheadAttention cuts its in_proj_weight
NAMELESS = ("lifted_tensor", "_tensor_constant")  # what torch calls weights whose names torch.jit.freeze threw away
RANDOM = torch.Tag.nondeterministic_seeded


class Constants:
    """Values, identities and names of the constant nodes of a draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._values: dict[Node, Any] = {}
        self._parameters: dict[object, nn.Parameter] = {}
        self._constant: set[Node] = set()
        for node in draft.graph.nodes:  # in order of execution: what a node reads is judged before the node
            if node.op == "get_attr" or (node.op == "call_function" and self._only_reads_constants(node)):
                self._constant.add(node)

    def is_constant(self, node: Any) -> bool:
        """Whether `node` is a tensor made of parameters and buffers alone."""
        return node in self._constant if isinstance(node, Node) else False

    def is_parameter(self, node: Node) -> bool:
        """Whether `node` just names a parameter of the file."""
        return node.op == "get_attr" and isinstance(self._draft.tensors[str(node.target)], nn.Parameter)

    def _only_reads_constants(self, node: Node) -> bool:
        random = RANDOM in getattr(node.target, "tags", ())
        return bool(node.all_input_nodes) and not random and self._constant.issuperset(node.all_input_nodes)

    def value(self, node: Node) -> Any:
        """The node's value. What is computed from weights is computed in float64 and then rounded once."""
        if node.op == "get_attr":
            return self._draft.tensors[str(node.target)]
        if node not in self._values:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._wide)
            self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return _rounded(self._values[node], like=self.value(node.all_input_nodes[0]))

    def parameter(self, node: Node, *, transposed: bool = False, flat: bool = False) -> nn.Parameter:
        """The node's value as a Parameter: the file's own one where the node just names it."""
        value = self.value(node)
        if isinstance(value, nn.Parameter) and not transposed and (value.dim() == 1 or not flat):
            return value
        key = (self.key(node), transposed, flat)
        if key not in self._parameters:
            value = value.detach().T if transposed else value.detach()
            value = value.reshape(-1) if flat else value
            self._parameters[key] = nn.Parameter(value.contiguous(), requires_grad=False)
        return self._parameters[key]

    def key(self, node: Any) -> object:
        """Equal for nodes that are the same constant, though they may be written down twice."""
        if not isinstance(node, Node):
            return repr(node)
        if node.op == "get_attr":
            return id(self._draft.tensors[str(node.target)])
        return (str(node.target), *(self.key(argument) for argument in (*node.args, *node.kwargs.values())))

    def label(self, weight: Node, bias: Node | None = None) -> tuple[str, str]:
        """A module path and a display name for a layer: "attn.in_proj_q" and "attn.in_proj (q)".

        Layers with tied weights are told apart by their biases.
        """
        name = self._source(weight)
        tells = name.endswith(".weight") and bias is not None and self._source(bias).endswith(".bias")
        stem = _stem(self._source(bias).removesuffix("bias") + "weight" if tells and bias is not None else name)
        piece = self._piece(weight)
        return (f"{stem}_{piece}", f"{stem} ({piece})") if piece else (stem, stem)

    def _source(self, node: Node) -> str:
        """The name of the parameter that a constant is computed from."""
        while node.op != "get_attr":
            node = node.all_input_nodes[0]
        return str(node.target)

    def _piece(self, node: Node) -> str | None:
        if node.op == "call_function" and node.target is operator.getitem:
            parts, position = node.args
            count = len(self.value(parts))  # type: ignore[arg-type]
            return PIECES[count][position] if count in PIECES else str(position)  # type: ignore[index]
        if node.op == "call_function" and node.target is aten.slice.Tensor:
            start = node.args[2] if len(node.args) > 2 else 0
            return f"from_{start or 0}"
        return None

    def _wide(self, node: Node) -> Any:
        value = self._values[node] if node in self._values else self.value(node)
        return _rounded(value, like=torch.empty(0, dtype=torch.float64))


def _rounded(value: Any, like: Any) -> Any:
    """`value`, or each of its pieces, in the float type of `like`."""
    if isinstance(value, (tuple, list)):
        return [_rounded(piece, like) for piece in value]
    like = like[0] if isinstance(like, list) else like
    both_float = isinstance(value, Tensor) and value.is_floating_point() and like.is_floating_point()
    return value.detach().to(like.dtype) if both_float and value.dtype != like.dtype else value


def _stem(name: str) -> str:
    """The layer a parameter belongs to: "fc1" for fc1.weight, "attn.in_proj" for attn.in_proj_weight."""
    if name.startswith(NAMELESS):
        return "layer"
    owner = name.partition(".parametrizations.")[0]
    for ending in (".weight", "_weight", ".weight_g", ".weight_v", ".weight_orig"):
        if owner.endswith(ending):
            return owner[: -len(ending)]
    return "linear" if owner == "weight" else owner
