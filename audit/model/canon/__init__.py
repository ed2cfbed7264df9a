"""What all formats share once they are read: einsum equations, the names of layers, a row of scores for each sample.

Final layers that turn scores into probabilities are in `heads.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from audit.errors import ModelError
from audit.model.base import quiet
from audit.model.torch import bounded

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


# A row of scores for each sample: which shapes are one, and probabilities that no rule explains.


WORDS = {
    "softmax": "softmax",
    "log_softmax": "log-softmax",
    "sigmoid": "sigmoid",
    "sigmoid_pair": "sigmoid (written as two columns, 1 - p and p)",
}
ROW_SUM = 1e-3
"""How far the probabilities of a sample may be from adding up to one."""
TRIALS = 16
"""Samples that an output is tried with."""
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Modules whose results can be any number: an output that one of them makes is not a probability."""
Shape = tuple[int | None, ...]


def head_note(output: str, head: str) -> str:
    """The sentence for the report when a final layer was taken off."""
    return f"The output {output!r} ends in a {WORDS[head]}; the audit is of the scores beneath it."


def is_row(shape: Shape | None) -> bool:
    """[n, C] or something that flattens to it without mixing: at most one size besides the batch that is not 1."""
    return shape is None or (len(shape) > 0 and sum(size != 1 for size in shape[1:]) <= 1)


def scores_per_position(path: Path, output: str, shape: Shape | None) -> int | None:
    """C of an output [n, T, C], None for one row of scores per sample; anything else, such as pixels, is refused."""
    if is_row(shape):
        return None
    if shape is not None and len(shape) == 3 and shape[2] is not None:
        return shape[2]
    raise ModelError(
        f"{path}: the output {output!r} has shape {shape_text(shape)}, not one row of scores per sample, which a "
        "loss needs, nor one per position [n, positions, classes]; choose another with --output NAME, or export the "
        "model with an output [n, classes]."
    )


def shape_text(shape: Shape | None) -> str:
    """A shape as people write it: [n, 3, 32, 32]."""
    if shape is None:
        return "of unknown shape"
    free = ["n", *"?" * len(shape)]
    return f"[{', '.join(free[axis] if size is None else str(size) for axis, size in enumerate(shape))}]"


def guard(
    network: fx.GraphModule, output: str, trials: Iterable[tuple[Tensor, ...]], per_position: int | None = None
) -> tuple[str, tuple[str, ...]]:
    """Probabilities that no rule explains are not scores: let the network end in their logarithm.

    The name of the head in HEADS that leads back to them, and the sentence that says so.
    """
    last = next(iter(reversed(network.graph.nodes))).args[0]
    if last.op == "call_module" and isinstance(network.get_submodule(str(last.target)), LAYERS):
        return "none", ()
    head = unexplained_head(network, trials, per_position)
    if head == "softmax":
        end_with(network, torch.log)
    return head, unexplained_notes(output, head)


def unexplained_head(
    network: Callable[..., Tensor], trials: Iterable[tuple[Tensor, ...]], per_position: int | None = None
) -> str:
    """What the first trial that runs gives: "softmax" for probabilities, "log_softmax" for their logarithms."""
    for x in trials:
        try:
            with torch.no_grad(), quiet(), bounded(network):
                answer = network(*x)
        except ModelError:
            raise
        except Exception:  # a size that was only guessed
            continue
        return _kind_of_rows(answer, len(x[0]), per_position)
    return "none"


def unexplained_notes(output: str, head: str) -> tuple[str, ...]:
    """What the report says of probabilities that no final layer explains."""
    if head == "none":
        return ()
    if head == "softmax":
        return (
            f"The output {output!r} holds probabilities that no known final layer explains; the audit is of their "
            "logarithm, whose softmax they are.",
        )
    return (
        f"The output {output!r} holds logarithms of probabilities that no known final layer explains; they are audited "
        "as the scores, whose log-softmax they are.",
    )


def _kind_of_rows(answer: Tensor, samples: int, per_position: int | None) -> str:
    """Rows of two or more numbers that are not negative and add up to one, or the logarithms of such rows."""
    if answer.dim() < 2 or len(answer) != samples or answer[0].numel() < 2:
        return "none"
    rows = answer.reshape(*((samples, -1) if per_position is None else (-1, per_position))).double()
    if _add_up_to_one(rows) and bool((rows >= 0).all()):
        return "softmax"
    return "log_softmax" if _add_up_to_one(rows.exp()) else "none"


def _add_up_to_one(rows: Tensor) -> bool:
    return bool(((rows.sum(1) - 1).abs() < ROW_SUM).all())


def end_with(network: fx.GraphModule, function: Callable[..., Any]) -> None:
    """Let the network return `function` of what it returned."""
    output = next(iter(reversed(network.graph.nodes)))
    with network.graph.inserting_before(output):
        output.args = (network.graph.call_function(function, output.args),)
    network.recompile()
