"""From the file's output to the scores beneath it: the head taken off, one row [n, C] per sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, helper

from audit.model.canon.heads import View, find_head
from audit.model.onnx.batch import trial_inputs
from audit.model.onnx.graph import Array, add_constant, bypass, fresh, prune, set_nodes, to_array
from audit.model.onnx.ports import require_flat
from audit.model.onnx.runtime import RuntimeFailure, Session
from audit.model.onnx.types import TensorType, tensor_type

LINEAR = ("Gemm", "MatMul", "Add", "Dense", "Bias", "Conv", "Einsum", "FusedMatMul", "Gather")
"""Operators whose results can be any number: an output that one of them makes is not a probability."""
WORDS = {
    "softmax": "softmax",
    "log_softmax": "log-softmax",
    "sigmoid": "sigmoid",
    "sigmoid_pair": "sigmoid (written as two columns, 1 - p and p)",
}
ROW_SUM = 1e-3
TRIALS = 16


def take_off_head(path: Path, model: ModelProto) -> tuple[str, tuple[str, ...]]:
    """Let the graph end in scores [n, C]; the head's name in HEADS, and sentences that say what was done."""
    output = model.graph.output[0].name
    unstacked = _unstack(model, output)
    head, notes = _strip(model, output)
    notes = (*unstacked, *notes)
    shape = View.of(model).types.get(output, TensorType())
    require_flat(path, output, shape)
    _flatten(model, shape)
    return head, notes


def _unstack(model: ModelProto, output: str) -> tuple[str, ...]:
    """Undo a final Reshape to one column, which skl2onnx writes behind several targets: [n, C] became [n C, 1]."""
    view = View.of(model)
    column = view.maker(output, "Reshape")
    if column is None or column.input[1] not in view.known:
        return ()
    shape, rows = to_array(view.known[column.input[1]]).tolist(), view.shape(column.input[0])
    if shape != [-1, 1] or rows is None or len(rows) != 2 or rows[1] in (None, 1):
        return ()
    bypass(model.graph, output, column.input[0])
    return (f"The output {output!r} stacks the {rows[1]} answers of a sample in one column; they were put in a row.",)


def _strip(model: ModelProto, output: str) -> tuple[str, tuple[str, ...]]:
    view = View.of(model)
    core = view.beneath_reshapes(output)
    found = find_head(view, core)
    if found:
        head, scores = found
        rank = len(view.shape(scores) or ())
        bypass(model.graph, output if rank == 2 else core, scores)
        return head, (f"The output {output!r} ends in a {WORDS[head]}; the audit is of the scores beneath it.",)
    maker = view.makers.get(core)
    if maker is None or maker.op_type in LINEAR or not _gives_probabilities(model):
        return "none", ()
    _append_log(model, output)
    return "softmax", (
        f"The output {output!r} holds probabilities that no known final layer explains; the audit is of their "
        "logarithm, whose softmax they are.",
    )


def _gives_probabilities(model: ModelProto) -> bool:
    """Whether random inputs give rows of two or more numbers that are not negative and add up to one."""
    answer = _trial(model)
    if answer is None or answer[0].size < 2:
        return False
    rows = answer.reshape(len(answer), -1).astype(np.float64)
    return bool(np.all(rows >= 0) and np.all(np.abs(rows.sum(1) - 1) < ROW_SUM))


def _trial(model: ModelProto) -> Array | None:
    declared = model.graph.input[0]
    kind = tensor_type(declared)
    batch = (kind.shape or (None,))[0]
    try:
        session = Session(model)
    except RuntimeFailure:
        return None
    for x in trial_inputs(kind, batch or TRIALS):
        try:
            answer: Array = session.run([model.graph.output[0].name], {declared.name: x})[0]
        except RuntimeFailure:
            continue
        return answer if answer.ndim > 1 and len(answer) == len(x) else None
    return None


def _append_log(model: ModelProto, output: str) -> None:
    inner = _step_behind(model, output, "probabilities")
    model.graph.node.append(helper.make_node("Log", [inner], [output]))


def _flatten(model: ModelProto, kind: TensorType) -> None:
    """[n] becomes [n, 1], and [n, C, 1, 1] becomes [n, C]; of a lone sample, [C] becomes [1, C]."""
    lone = (tensor_type(model.graph.input[0]).shape or (None,))[0] == 1
    output = model.graph.output[0].name
    rank = len(kind.shape) if kind.shape is not None else None
    if rank != 2:
        inner = _step_behind(model, output, "unflattened")
        if rank is None or rank > 2:
            node = helper.make_node("Flatten", [inner], [output], axis=1)
        else:
            rows = np.array([1, -1] if lone else [-1, 1], dtype=np.int64)
            shape = add_constant(model.graph, fresh(model.graph, "rows"), rows)
            node = helper.make_node("Reshape", [inner, shape], [output])
        model.graph.node.append(node)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    prune(model.graph)


def _step_behind(model: ModelProto, output: str, stem: str) -> str:
    """Give the value of the output a name of its own, so that a node can come between."""
    graph = model.graph
    inner = fresh(graph, f"{output}/{stem}")
    nodes = list(graph.node)
    for node in nodes:
        node.input[:] = [inner if name == output else name for name in node.input]
        node.output[:] = [inner if name == output else name for name in node.output]
    set_nodes(graph, nodes)
    return inner
