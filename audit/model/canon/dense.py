"""What makes a layer dense in all formats: einsum equations that are matrix products, and the names of layers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Einsum as a matrix product: which of its equations are a dense layer in disguise, in ONNX and in torch alike.


@dataclass(frozen=True)
class Product:
    """y[batch, outs] = Σ x[batch, ins] w[...], with ins the last axes of x and outs the last axes of y.

    `order` permutes w's axes to (outs, ins). `kept` is how many leading axes x and y share; None behind an ellipsis.
    """

    order: tuple[int, ...]
    ins: int
    outs: int
    kept: int | None


def matrix_product(equation: str, weight_side: int) -> Product | None:
    """The product behind an equation such as `bti,oi->bto` or `abc,cde->abde`; None where it is something else."""
    left, arrow, y = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2:
        return None
    x, w = terms[1 - weight_side], terms[weight_side]
    if "." in w or any(len(set(term)) != len(term) for term in (x.replace(".", ""), w, y.replace(".", ""))):
        return None
    ins = [axis for axis in w if axis in x]
    outs = [axis for axis in w if axis not in x]
    summed = x[len(x) - len(ins) :] if ins else ""
    batch = x[: len(x) - len(ins)]
    given = y[len(batch) :]
    if not ins or not outs or set(summed) != set(ins) or y[: len(batch)] != batch or set(given) != set(outs):
        return None
    order = tuple(w.index(axis) for axis in given + summed)
    return Product(order, len(ins), len(outs), None if "." in batch else len(batch))


# Names for layers that their author recognises, from what files and exporters leave of them.


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
