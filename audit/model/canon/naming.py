"""Names for layers that their author recognises, from what files and exporters leave of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

ENDINGS = re.compile(
    r"([./_](weights?(_g|_v|_orig)?|bias|kernel|w|b))?(/(MatMul|BiasAdd|Add|Tensordot|kernel|bias|Read|ReadVariableOp|Cast|Transpose))*"
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

WRAPPERS = ("StatefulPartitionedCall", "PartitionedCall", "model", "")
"""Outer scopes that TensorFlow adds; taken off from the front."""


def layer_name(weight: str, bias: str, scope: str) -> str:
    """The layer's name by its parameters' names and the module it was written in; empty where none of them tells."""
    from_weight, from_bias = parameter_stem(weight), parameter_stem(bias)
    if from_weight:
        return from_weight
    if scope and from_bias.startswith(scope):
        return from_bias  # attn.in_proj_bias says more than its scope attn
    return scope or from_bias


def parameter_stem(name: str) -> str:
    """`fc1` for `fc1.weight`; empty for a name that an exporter made up."""
    return "" if "_output_" in name or MADE_UP.fullmatch(name) else owner(name)


def owner(parameter: str) -> str:
    """The layer that a parameter belongs to.

    >>> owner("fc1.weight"), owner("attn.in_proj_weight"), owner("0.parametrizations.weight.original0")
    ('fc1', 'attn.in_proj', '0')
    """
    return without_wrappers(ENDINGS.sub("", parameter.partition(".parametrizations.")[0]))


def numbered(stem: str) -> Iterator[str]:
    """`fc`, `fc_2`, `fc_3`, …: the names to choose from where one may be taken."""
    yield stem
    yield from (f"{stem}_{number}" for number in itertools.count(2))


def without_wrappers(path: str) -> str:
    """A path without the outer scopes that say nothing."""
    parts = path.split("/")
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return "/".join(parts)
