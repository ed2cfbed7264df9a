"""From what a file returns to a row of scores for each sample, by the same rules and words for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from audit.errors import ModelError
from audit.model.base import quiet

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
            with torch.no_grad(), quiet():
                answer = network(*x)
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
