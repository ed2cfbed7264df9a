"""Names for dense layers that their author recognises, from what exporters leave of them."""

from __future__ import annotations

import ast
import re

from onnx import NodeProto

ENDINGS = re.compile(
    r"([./_](weights?|bias|kernel|w|b))?(/(MatMul|BiasAdd|Add|Tensordot|kernel|bias|Read|ReadVariableOp|Cast|Transpose))*"
    r"(:\d+)?$",
    re.IGNORECASE,
)
"""What follows a layer's name in its parameters' names: fc1.weight, dense/kernel:0, dense/MatMul/ReadVariableOp:0."""

MADE_UP = re.compile(
    r"(onnx::\w+|val|t|_?v?|const(ant)?(_fold_opt_)?|const_fold\w*|coef(ficient|s)?|intercepts?|param|tensor|weights?|w|b|bias|kernel"
    r"|matmul|gemm|einsum|add|transpose|initializer|variable|node|linear|dense|n|_inlfunc\w*)?[_.]*\d*",
    re.IGNORECASE,
)
"""Names that exporters make up: they number values and say nothing about the layer."""

SCOPES = "pkg.torch.onnx.name_scopes"
WRAPPERS = ("StatefulPartitionedCall", "PartitionedCall", "model", "")
"""Outer scopes that TensorFlow adds; taken off from the front."""


def layer_name(node: NodeProto, weight: str, bias: str) -> str:
    """The layer's name, or an empty string where nothing in the file tells it."""
    from_weight, from_bias, scope = parameter_stem(weight), parameter_stem(bias), node_scope(node)
    if from_weight:
        return from_weight
    if scope and from_bias.startswith(scope):
        return from_bias  # attn.in_proj_bias says more than its scope attn
    return scope or from_bias


def parameter_stem(name: str) -> str:
    """`fc1` for `fc1.weight`; empty for a name that an exporter made up."""
    if "_output_" in name or MADE_UP.fullmatch(name):
        return ""
    return _without_wrappers(ENDINGS.sub("", name))


def node_scope(node: NodeProto) -> str:
    """The module path of a node: from the newer exporter's notes, or a name such as /blocks/blocks.0/fc1/MatMul."""
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            return _last_scope(entry.value)
    parts = [part for part in node.name.split("/")[:-1] if part]
    if node.name.startswith("/"):
        return _merged(parts)
    return _without_wrappers("/".join(parts))


def _last_scope(text: str) -> str:
    try:
        scopes = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return ""
    return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) >= 2 else ""


def _merged(parts: list[str]) -> str:
    """The older exporter repeats the parent in the child's name: /blocks/blocks.0/fc1 is blocks.0.fc1."""
    names: list[str] = []
    for part in parts:
        if names and part.startswith(names[-1] + "."):
            names[-1] = part
        else:
            names.append(part)
    return ".".join(names)


def _without_wrappers(path: str) -> str:
    parts = path.split("/")
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return "/".join(parts)
