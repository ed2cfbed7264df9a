"""Which output holds the scores, which input takes the samples, and what the head on the scores is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto, TensorProto
from onnx_files import ML, agrees, dense, graph, loaded, node, samples, value, weights

from audit.errors import ModelError
from audit.settings import Settings

ONE, MINUS = np.array(1, np.float32), np.array(-1, np.float32)
AXIS = np.array([1])


def scores(width: int = 3) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """z = x W + b, and constants that heads may need."""
    constants = {"fc.weight": weights(4, width), "fc.bias": weights(width), "one": ONE, "minus": MINUS, "axis": AXIS}
    return [node("Gemm", ["x", "fc.weight", "fc.bias"], ["z"])], constants


def reduced(op: str, x: str, y: str, opset: int, keepdims: int = 1) -> NodeProto:
    """A reduction over the classes, its axes an input or an attribute by opset."""
    if opset >= (13 if op == "ReduceSum" else 18):
        return node(op, [x, "axis"], [y], keepdims=keepdims)
    return node(op, [x], [y], axes=[1], keepdims=keepdims)


def softmax_by_hand(opset: int) -> list[NodeProto]:
    return [node("Exp", ["z"], ["e"]), reduced("ReduceSum", "e", "s", opset), node("Div", ["e", "s"], ["y"])]


def shifted_softmax(opset: int) -> list[NodeProto]:
    top = [reduced("ReduceMax", "z", "m", opset), node("Sub", ["z", "m"], ["d"])]
    return [*top, node("Exp", ["d"], ["e"]), reduced("ReduceSum", "e", "s", opset), node("Div", ["e", "s"], ["y"])]


def spread_softmax(opset: int) -> list[NodeProto]:
    """Every sum and maximum spread over its row again, the maximum held above a constant, as TensorFlow's way is."""
    top = [reduced("ReduceMax", "z", "m", opset), node("Max", ["m", "minus"], ["c"]), node("Shape", ["z"], ["size"])]
    shift = [node("Expand", ["c", "size"], ["w"]), node("Sub", ["z", "w"], ["d"]), node("Exp", ["d"], ["e"])]
    total = [reduced("ReduceSum", "e", "s", opset), node("Expand", ["s", "size"], ["t"])]
    return [*top, *shift, *total, node("Div", ["e", "t"], ["y"])]


def log_softmax_by_hand(opset: int) -> list[NodeProto]:
    total = [node("Exp", ["z"], ["e"]), reduced("ReduceSum", "e", "s", opset), node("Log", ["s"], ["l"])]
    return [*total, node("Sub", ["z", "l"], ["y"])]


def exp_plus_one(negation: NodeProto) -> list[NodeProto]:
    return [negation, node("Exp", ["g"], ["e"]), node("Add", ["one", "e"], ["a"])]


SOFTMAX = node("Softmax", ["z"], ["p"], axis=1)
HEADS_BY_HAND: dict[str, tuple[str, Callable[[int], list[NodeProto]]]] = {
    "softmax": ("softmax", lambda opset: [node("Softmax", ["z"], ["y"], axis=1)]),
    "softmax by default": ("softmax", lambda opset: [node("Softmax", ["z"], ["y"])]),
    "exp / sum": ("softmax", softmax_by_hand),
    "exp / sum, shifted": ("softmax", shifted_softmax),
    "exp / sum, shifted and spread": ("softmax", spread_softmax),
    "log-softmax": ("log_softmax", lambda opset: [node("LogSoftmax", ["z"], ["y"], axis=-1 if opset > 9 else 1)]),
    "log of softmax": ("log_softmax", lambda opset: [SOFTMAX, node("Log", ["p"], ["y"])]),
    "x - log sum exp": (
        "log_softmax",
        lambda opset: [reduced("ReduceLogSumExp", "z", "l", opset), node("Sub", ["z", "l"], ["y"])],
    ),
    "x - log of sum": ("log_softmax", log_softmax_by_hand),
    "exp of log-softmax": (
        "softmax",
        lambda opset: [node("LogSoftmax", ["z"], ["l"], axis=1), node("Exp", ["l"], ["y"])],
    ),
    "sigmoid": ("sigmoid", lambda opset: [node("Sigmoid", ["z"], ["y"])]),
    "softmax, then identity and cast": (
        "softmax",
        lambda opset: [SOFTMAX, node("Identity", ["p"], ["i"]), node("Cast", ["i"], ["y"], to=1)],
    ),
    "softmax, then L1": ("softmax", lambda opset: [SOFTMAX, node("Normalizer", ["p"], ["y"], domain=ML, norm="L1")]),
    "1 / (1 + exp(-x))": (
        "sigmoid",
        lambda opset: [*exp_plus_one(node("Neg", ["z"], ["g"])), node("Div", ["one", "a"], ["y"])],
    ),
    "reciprocal": (
        "sigmoid",
        lambda opset: [*exp_plus_one(node("Mul", ["z", "minus"], ["g"])), node("Reciprocal", ["a"], ["y"])],
    ),
}


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("form", list(HEADS_BY_HAND))
def test_heads_are_taken_off(tmp_path: Path, form: str, opset: int) -> None:
    head, tail = HEADS_BY_HAND[form]
    nodes, constants = scores()
    model = agrees(loaded(graph([*nodes, *tail(opset)], constants, opset=opset), tmp_path))
    assert model.head == head
    assert [m for m in model.network.graph.nodes if m.op == "call_module"][
        -1
    ].target == "fc"  # nothing after the scores
    assert model.notes == (
        f"The output 'y' ends in a {head.replace('_', '-')}; the audit is of the scores beneath it.",
    )


@pytest.mark.parametrize(("length", "head"), [(1, "sigmoid"), (2, "none")])
def test_a_mean_over_one_time_step_hides_no_head(tmp_path: Path, length: int, head: str) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["z"]),
        node("Sigmoid", ["z"], ["p"]),
        node("ReduceMean", ["p"], ["y"], axes=[2], keepdims=0),
    ]
    model = agrees(loaded(graph(nodes, {"w": weights(1, 4, 1)}, shape=("n", 4, length)), tmp_path))
    assert model.head == head


def test_two_columns_of_one_sigmoid(tmp_path: Path) -> None:
    nodes, constants = scores(1)
    nodes += [
        node("Sigmoid", ["z"], ["p"]),
        node("Sub", ["one", "p"], ["q"]),
        node("Concat", ["q", "p"], ["y"], axis=1),
    ]
    model = agrees(loaded(graph(nodes, constants), tmp_path))
    assert model.head == "sigmoid_pair" and dense(model) == {"fc": (4, 1, True)}


def test_two_columns_in_the_other_order_are_no_pair(tmp_path: Path) -> None:
    nodes, constants = scores(1)
    nodes += [
        node("Sigmoid", ["z"], ["p"]),
        node("Sub", ["one", "p"], ["q"]),
        node("Concat", ["p", "q"], ["y"], axis=1),
    ]
    model = agrees(loaded(graph(nodes, constants), tmp_path))
    assert model.head == "softmax" and "logarithm" in model.notes[0]


@pytest.mark.parametrize("opset", [9, 13])
def test_softmax_before_reshaping(tmp_path: Path, opset: int) -> None:
    """SqueezeNet's end: a map of 1x1, softmax over the channels, then flat."""
    nodes = [
        node("Conv", ["x", "c.weight"], ["c"]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Softmax", ["g"], ["s"], axis=1),
    ]
    nodes += [node("Flatten", ["s"], ["y"])]
    model = agrees(loaded(graph(nodes, {"c.weight": weights(3, 2, 3, 3)}, shape=("n", 2, 5, 5), opset=opset), tmp_path))
    assert model.head == "softmax"


def test_softmax_over_the_batch_is_not_taken_off(tmp_path: Path) -> None:
    nodes, constants = scores()
    model = loaded(graph([*nodes, node("Softmax", ["z"], ["y"], axis=0)], constants), tmp_path)
    assert model.head == "none"
    with pytest.raises(ModelError, match="depends on the other samples of its batch"):
        agrees(model)


def test_attention_keeps_its_softmax(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["x", "t"], ["a"]),
        node("Softmax", ["a"], ["s"], axis=-1),
        node("MatMul", ["s", "x"], ["v"]),
        node("ReduceMean", ["v"], ["m"], axes=[1], keepdims=0),
        node("Gemm", ["m", "w"], ["y"]),
    ]
    model = agrees(loaded(graph(nodes, {"w": weights(4, 3)}, shape=("n", 5, 4)), tmp_path))
    assert model.head == "none" and model.notes == ()


def test_probabilities_that_no_head_explains_become_their_logarithm(tmp_path: Path) -> None:
    nodes, constants = scores()
    nodes += [node("Sigmoid", ["z"], ["p"]), node("Normalizer", ["p"], ["y"], domain=ML, norm="L1")]
    model = agrees(loaded(graph(nodes, constants), tmp_path))
    assert model.head == "softmax"
    assert model.notes == (
        "The output 'y' holds probabilities that no known final layer explains; the audit is of their logarithm, "
        "whose softmax they are.",
    )


def test_other_bounded_outputs_stay_as_they_are(tmp_path: Path) -> None:
    nodes, constants = scores()
    model = agrees(loaded(graph([*nodes, node("Tanh", ["z"], ["y"])], constants), tmp_path))
    assert model.head == "none" and model.notes == ()


@pytest.mark.parametrize(
    ("transform", "labels", "rows", "head", "size"),
    [
        ("SOFTMAX", 3, None, "softmax", (4, 3, True)),
        ("LOGISTIC", 3, None, "sigmoid", (4, 3, True)),
        ("NONE", 3, None, "none", (4, 3, True)),
        ("LOGISTIC", 2, "mirrored", "sigmoid_pair", (4, 1, True)),
        ("LOGISTIC", 2, "one", "sigmoid_pair", (4, 1, True)),
        ("SOFTMAX", 2, "mirrored", "softmax", (4, 2, True)),
        ("NONE", 2, "mirrored", "none", (4, 2, True)),
    ],
)
def test_linear_classifiers(
    tmp_path: Path, transform: str, labels: int, rows: str | None, head: str, size: tuple[int, int, bool]
) -> None:
    w, b = weights(labels, 4), weights(labels)
    if rows is not None:
        w, b = (np.stack([-w[1], w[1]]), np.stack([-b[1], b[1]])) if rows == "mirrored" else (w[1:], b[1:])
    classifier = node(
        "LinearClassifier", ["x"], ["label", "scores"], domain=ML, name="model",
        coefficients=w.ravel().tolist(), intercepts=b.tolist(),
        classlabels_ints=list(range(5, 5 + labels)), post_transform=transform, multi_class=0,
    )  # fmt: skip
    outputs = [value("label", ("n",), TensorProto.INT64), "scores"]
    model = agrees(loaded(graph([classifier], {}, outputs=outputs), tmp_path))
    assert (model.output, model.head, dense(model)) == ("scores", head, {"model": size})
    assert model.notes[-1].startswith("The file names its classes 5, 6")


@pytest.mark.parametrize("as_text", [False, True])
def test_zipmap_is_read_in_the_order_of_its_labels(tmp_path: Path, as_text: bool) -> None:
    nodes, constants = scores()
    labels = {"classlabels_strings": ["c", "a", "b"]} if as_text else {"classlabels_int64s": [9, 1, 5]}
    nodes += [
        node("Softmax", ["z"], ["p"], axis=1),
        node("ZipMap", ["p"], ["y"], domain=ML, **labels),
        node("ArgMax", ["p"], ["label"], axis=1),
    ]
    model = graph(nodes, constants)
    model.graph.output[0].ClearField("type")
    entry = model.graph.output[0].type.sequence_type.elem_type.map_type
    entry.key_type = TensorProto.STRING if as_text else TensorProto.INT64
    entry.value_type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.output.append(value("label", None, TensorProto.INT64))
    found = agrees(loaded(model, tmp_path))
    assert found.output == "y" and found.head == "softmax"
    assert ("c, a, b" if as_text else "9, 1, 5") in found.notes[-1]


# choosing


def two_scores() -> list[NodeProto]:
    return [node("Gemm", ["x", "fc.weight"], ["a"]), node("Relu", ["a"], ["b"])]


def test_several_scores_are_listed(tmp_path: Path) -> None:
    model = graph(two_scores(), scores()[1], outputs=[value("a", ("n", 3)), value("b", ("n", 3))])
    with pytest.raises(ModelError) as caught:
        loaded(model, tmp_path)
    assert (
        "several outputs could be the scores: 'a' (float [n, 3]), 'b' (float [n, 3]); choose one with --output NAME."
        in str(caught.value)
    )
    chosen = agrees(loaded(model, tmp_path, Settings(output="a")))
    assert chosen.output == "a"


def test_output_that_does_not_exist(tmp_path: Path) -> None:
    model = graph(two_scores(), scores()[1], outputs=[value("a", ("n", 3))])
    with pytest.raises(ModelError, match=r"there is no output 'logits'; --output can be one of 'a' \(float \[n, 3\]\)"):
        loaded(model, tmp_path, Settings(output="logits"))


def test_the_flat_output_is_the_scores(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["hidden"]), node("ReduceMean", ["hidden"], ["y"], axes=[1], keepdims=0)]
    outputs = [value("hidden", ("n", 5, 3)), value("y", ("n", 3))]
    assert (
        agrees(loaded(graph(nodes, {"w": weights(4, 3)}, shape=("n", 5, 4), outputs=outputs), tmp_path)).output == "y"
    )


def test_labels_alone_are_refused(tmp_path: Path) -> None:
    nodes, constants = scores()
    model = graph(
        [*nodes, node("ArgMax", ["z"], ["y"], axis=1)], constants, outputs=[value("y", None, TensorProto.INT64)]
    )
    with pytest.raises(ModelError, match=r"no output holds scores .*export the model with its logits or probabilities"):
        loaded(model, tmp_path)
    with pytest.raises(ModelError, match="the output 'y' holds no scores"):
        loaded(model, tmp_path, Settings(output="y"))


def test_one_row_per_token_is_put_in_one_row_per_sample(tmp_path: Path) -> None:
    model = graph([node("MatMul", ["x", "w"], ["y"])], {"w": weights(4, 3)}, shape=("n", 5, 4))
    assert loaded(model, tmp_path).per_position == 3


def test_one_row_per_pixel_is_refused(tmp_path: Path) -> None:
    model = graph([node("MatMul", ["x", "w"], ["y"])], {"w": weights(4, 3)}, shape=("n", 5, 6, 4))
    with pytest.raises(ModelError, match=r"'y' has shape \[n, 5, 6, 3\], not one row of scores per sample"):
        loaded(model, tmp_path)


@pytest.mark.parametrize("op", ["Squeeze", "Flatten", "Unsqueeze"])
def test_one_number_per_sample_in_any_shape(tmp_path: Path, op: str) -> None:
    nodes, constants = scores(1)
    last = {
        "Squeeze": node("Squeeze", ["z", "axis"], ["y"]),
        "Flatten": node("Flatten", ["z"], ["y"]),
        "Unsqueeze": node("Unsqueeze", ["z", "axis"], ["y"]),
    }[op]
    model = agrees(loaded(graph([*nodes, last], constants), tmp_path))
    assert model.network(torch.from_numpy(samples(model))).shape == (6, 1)


def test_several_inputs(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "shift"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    inputs = [value("x", ("n", 4)), value("shift", ("n", 4))]
    model = graph(nodes, {"w": weights(4, 3)}, inputs=inputs)
    assert [(spec.name, spec.shape) for spec in loaded(model, tmp_path).inputs] == [("x", (4,)), ("shift", (4,))]
    with pytest.raises(ModelError, match="there is no input 'image'; --input can be one of 'x'"):
        loaded(model, tmp_path, Settings(input="image"))
    with_default = graph(
        nodes, {"w": weights(4, 3), "shift": weights(1, 4)}, inputs=[value("shift", (1, 4)), value("x", ("n", 4))]
    )
    assert agrees(loaded(with_default, tmp_path)).input.name == "x"


@pytest.mark.parametrize(
    ("shape", "element", "words"),
    [
        (("n",), TensorProto.STRING, "the input 'x' takes text; export the model behind its text encoder"),
        ((4,), TensorProto.FLOAT, "shape \\[4\\], one sample without a batch dimension"),
        (("n", 4), TensorProto.UINT32, "takes uint32 numbers"),
    ],
)
def test_inputs_that_no_data_fits(tmp_path: Path, shape: tuple[str | int, ...], element: int, words: str) -> None:
    model = graph(
        [node("Identity", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=1)], {}, inputs=[value("x", shape, element)]
    )
    with pytest.raises(ModelError, match=words):
        loaded(model, tmp_path)


def test_scores_without_an_input_are_refused(tmp_path: Path) -> None:
    model = graph([node("RandomNormal", [], ["y"], shape=[2, 3])], {})
    with pytest.raises(ModelError, match="the scores do not depend on any input"):
        loaded(model, tmp_path)
