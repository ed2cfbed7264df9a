"""What preparation does to a graph: the answers stay, everything that needs no data goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_files import ML, agrees, dense, graph, loaded, mlp, node, value, weights

from audit.errors import ModelError
from audit.model.onnx import constant_folding as folding
from audit.model.onnx.batch_size import free_batch_size
from audit.model.onnx.runtime import Session
from audit.model.onnx.simplify import simplified


def prepared(model: ModelProto, output: str = "y") -> ModelProto:
    return free_batch_size(simplified(model, output))[0]


def operators(model: ModelProto) -> list[str]:
    return [made.op_type for made in model.graph.node]


def answers(model: ModelProto, x: np.ndarray, output: str = "y") -> np.ndarray:
    result: np.ndarray = Session(model).run([output], {"x": x})[0]
    return result


def refusal(model: ModelProto, folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        loaded(model, folder)
    assert str(caught.value).startswith(str(folder / "model.onnx")) and str(caught.value).endswith(".")
    return str(caught.value)


X = weights(6, 4)


def test_the_users_model_is_left_alone() -> None:
    model = mlp()
    before = model.SerializeToString()
    prepared(model)
    assert model.SerializeToString() == before


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body = [node("MatMul", ["a", "b"], ["c"]), node("Tanh", ["c"], ["d"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Layer", ["a", "b"], ["d"], body, opsets)
    model = graph(
        [node("Layer", ["x", "fc.weight"], ["y"], domain="local")], {"fc.weight": weights(4, 3)}, functions=[function]
    )
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert operators(prepared(model)) == ["MatMul", "Tanh"]
    assert dense(agrees(loaded(model, tmp_path))) == {"fc": (4, 3, False)}


def test_constants_become_initializers() -> None:
    tensor = numpy_helper.from_array(weights(4, 3), "t")
    nodes = [
        node("Constant", [], ["w"], value=tensor),
        node("Constant", [], ["s"], value_float=2.0),
        node("Constant", [], ["axes"], value_ints=[1]),
        node("Identity", ["w"], ["w2"]),
        node("MatMul", ["x", "w2"], ["p"]),
        node("Mul", ["p", "s"], ["m"]),
        node("ReduceSum", ["m", "axes"], ["y"]),
    ]
    model = graph(nodes, {})
    ready = prepared(model)
    assert operators(ready) == ["MatMul", "Mul", "ReduceSum"]
    np.testing.assert_array_equal(answers(ready, X), answers(model, X))


def test_constant_subgraphs_are_computed() -> None:
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("Mul", ["t", "two"], ["m"]),
        node("MatMul", ["x", "m"], ["y"]),
    ]
    model = graph(nodes, {"w": weights(3, 4), "two": np.array(2, np.float32)})
    ready = prepared(model)
    assert operators(ready) == ["MatMul"]
    np.testing.assert_array_equal(answers(ready, X), answers(model, X))


def test_scalars_stay_scalars() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["g"]), node("Unsqueeze", ["g", "axis"], ["u"])]
    nodes += [node("Concat", ["minus", "u"], ["c"], axis=0), node("Reshape", ["x", "c"], ["y"])]
    ready = prepared(graph(nodes, {"one": np.array(1), "axis": np.array([0]), "minus": np.array([-1])}))
    assert operators(ready) == ["Reshape"]
    assert answers(ready, X).shape == X.shape


def test_random_numbers_are_not_frozen(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormal", [], ["r"], shape=[1, 4]),
        node("Add", ["x", "r"], ["a"]),
        node("MatMul", ["a", "w"], ["y"]),
    ]
    assert "RandomNormal" in operators(prepared(graph(nodes, {"w": weights(4, 3)})))


def test_huge_constants_are_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "LARGEST", 100)
    nodes = [node("Expand", ["one", "size"], ["big"]), node("ReduceSum", ["big"], ["total"], keepdims=0)]
    nodes += [
        node("Add", ["small", "small"], ["twice"]),
        node("Mul", ["x", "twice"], ["p"]),
        node("Mul", ["p", "total"], ["y"]),
    ]
    model = graph(
        nodes, {"one": np.ones(1, np.float32), "size": np.array([1000]), "small": np.ones((1, 4), np.float32)}
    )
    ready = prepared(model)
    assert operators(ready) == ["Expand", "ReduceSum", "Mul", "Mul"]
    np.testing.assert_array_equal(answers(ready, X), answers(model, X))


def branches(shape_of: str = "x") -> tuple[onnx.GraphProto, onnx.GraphProto]:
    then = helper.make_graph([node("Relu", [shape_of], ["out"])], "then", [], [value("out", None)])
    other = helper.make_graph(
        [node("Mul", [shape_of, "k"], ["out"])],
        "else",
        [],
        [value("out", None)],
        [numpy_helper.from_array(np.array(3, np.float32), "k")],
    )
    return then, other


@pytest.mark.parametrize(("condition", "taken"), [(True, "Relu"), (False, "Mul")])
def test_constant_branches_are_taken(condition: bool, taken: str) -> None:
    then, other = branches()
    model = graph(
        [node("If", ["c"], ["b"], then_branch=then, else_branch=other), node("Neg", ["b"], ["y"])],
        {"c": np.array(condition)},
    )
    ready = prepared(model)
    assert operators(ready) == [taken, "Neg"]
    np.testing.assert_array_equal(answers(ready, X), answers(model, X))


def test_branches_on_a_static_shape_are_taken() -> None:
    then, other = branches()
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["g"]), node("Equal", ["g", "four"], ["c"])]
    nodes += [
        node("If", ["c"], ["b"], then_branch=then, else_branch=other),
        node("If", ["c"], ["d"], then_branch=then, else_branch=other),
    ]
    nodes += [node("Add", ["b", "d"], ["y"])]
    model = graph(nodes, {"one": np.array(1), "four": np.array(4)})
    ready = prepared(model)
    assert operators(ready) == ["Relu", "Relu", "Add"]
    np.testing.assert_array_equal(answers(ready, X), answers(model, X))


def test_branches_on_the_data_are_refused(tmp_path: Path) -> None:
    then, other = branches()
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"])]
    nodes += [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    text = refusal(graph(nodes, {"zero": np.array(0, np.float32)}), tmp_path)
    assert "takes a branch that depends on the data" in text and "operator If" in text


def test_initializers_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    """Before IR version 4 every initializer was also an input."""
    listed = [value("x", ("n", 4)), value("w", (4, 3))]
    model = graph([node("MatMul", ["x", "w"], ["y"])], {"w": weights(4, 3)}, inputs=listed, ir_version=3, opset=9)
    assert dense(agrees(loaded(model, tmp_path))) == {"dense_1": (4, 3, False)}


def test_dead_nodes_and_unread_inputs_go(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("StringNormalizer", ["text"], ["dead"])]
    declared = [value("x", ("n", 4)), value("text", ("n",), TensorProto.STRING)]
    model = graph(nodes, {"w": weights(4, 3), "unused": weights(9)}, inputs=declared)
    ready = prepared(model)
    assert operators(ready) == ["MatMul"] and [v.name for v in ready.graph.input] == ["x"]
    assert [tensor.name for tensor in ready.graph.initializer] == ["w"]


def test_dropout_outside_training_is_skipped(tmp_path: Path) -> None:
    nodes = [node("Dropout", ["x", "ratio", "training"], ["d"]), node("MatMul", ["d", "w"], ["y"])]
    constants = {"w": weights(4, 3), "ratio": np.array(0.5, np.float32), "training": np.array(False)}
    assert operators(prepared(graph(nodes, constants))) == ["MatMul"]
    left_on = graph(nodes, constants | {"training": np.array(True)})
    assert operators(prepared(left_on)) == ["Dropout", "MatMul"]


def test_sparse_weights_become_dense() -> None:
    values, indices = (
        numpy_helper.from_array(np.array([1, 2], np.float32), "w"),
        numpy_helper.from_array(np.array([0, 7]), "i"),
    )
    model = graph([node("MatMul", ["x", "w"], ["y"])], {})
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 3]))
    ready = prepared(model)
    expected = np.zeros((4, 3), np.float32)
    expected.flat[[0, 7]] = 1, 2
    np.testing.assert_array_equal(numpy_helper.to_array(ready.graph.initializer[0]), expected)


NODES = {f"nodes_{part}": [0] for part in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")}
TARGETS = {f"target_{part}": [0] for part in ("treeids", "nodeids", "ids")}
LEAF = {"nodes_modes": ["LEAF"], "nodes_values": [0.0], "target_weights": [1.0], "n_targets": 1}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            "quantised and its steps have no gradient; audit the float",
        ),
        (node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **NODES, **TARGETS, **LEAF), "made of decision trees"),
        (node("SequenceConstruct", ["x"], ["q"]), "sequences of tensors"),
    ],
)
def test_operators_without_a_place_in_an_audit_are_refused(tmp_path: Path, made: onnx.NodeProto, words: str) -> None:
    follow = {
        "DynamicQuantizeLinear": [node("Cast", ["q"], ["y"], to=1)],
        "SequenceConstruct": [node("SequenceAt", ["q", "zero"], ["y"])],
    }
    model = graph([made, *follow.get(made.op_type, [])], {"zero": np.array(0)})
    text = refusal(model, tmp_path)
    assert words in text and made.op_type in text


def test_loops_are_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["go_on"]), node("Add", ["state", "state"], ["next"])], "body",
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("state", None)],
        [value("go_on", (), TensorProto.BOOL), value("next", None)],
    )  # fmt: skip
    model = graph(
        [node("Loop", ["three", "yes", "x"], ["y"], body=body)], {"three": np.array(3), "yes": np.array(True)}
    )
    assert "runs a loop; export the model unrolled" in refusal(model, tmp_path)


def test_weights_stored_in_few_bits_are_the_floats_the_file_makes_of_them(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(-127, 128, (4, 3)).astype(np.int8)
    scale = np.array([0.1, 0.02, 0.5], np.float32)
    nodes = [node("DequantizeLinear", ["w", "s"], ["f"], axis=1), node("MatMul", ["x", "f"], ["y"])]
    model = agrees(loaded(graph(nodes, {"w": stored, "s": scale}), tmp_path))
    (weight,) = model.network.parameters()
    assert np.array_equal(weight.numpy(), (stored * scale).T)
    assert model.notes[0].startswith("1 weights are stored quantised; the audit is of the floats that the file makes")


def test_quantised_steps_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "s", "zero"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    constants = {"w": weights(4, 3), "s": np.array(0.1, np.float32), "zero": np.array(0, np.int8)}
    assert "audit the float model it came from (operator DequantizeLinear, QuantizeLinear)" in refusal(
        graph(nodes, constants), tmp_path
    )


def test_operators_nobody_knows_are_named(tmp_path: Path) -> None:
    nodes = [
        node("Warp", ["x"], ["a"], name="first", domain="lab"),
        node("Bend", ["a"], ["y"], name="second", domain="lab"),
    ]
    model = graph(nodes, {})
    model.opset_import.append(helper.make_opsetid("lab", 1))
    text = refusal(model, tmp_path)
    assert all(word in text for word in ("Warp-1", "'first'", "Bend-1", "'second'", "lab"))


# fixed batch sizes


def reshaped(batch: int, target: list[int]) -> ModelProto:
    nodes = [node("Reshape", ["x", "to"], ["r"]), node("Gemm", ["r", "w"], ["y"])]
    return graph(nodes, {"to": np.array(target), "w": weights(12, 3)}, shape=(batch, 3, 4))


@pytest.mark.parametrize(
    ("batch", "target"), [(1, [1, 12]), (2, [2, 12]), (2, [2, -1]), (2, [-1, 12]), (3, [0, 12]), (12, [12, 12])]
)
def test_reshape_with_the_batch_size_in_it_is_freed(tmp_path: Path, batch: int, target: list[int]) -> None:
    model = agrees(loaded(reshaped(batch, target), tmp_path))
    assert model.input.batch is None and model.input.shape == (3, 4)
    assert model.notes[0] == f"The file fixes the batch size at {batch}; it was freed, and gives the same answers."


@pytest.mark.parametrize("batch", [1, 2])
def test_token_repeated_for_every_sample_is_freed(tmp_path: Path, batch: int) -> None:
    nodes = [
        node("Concat", ["token", "x"], ["t"], axis=1),
        node("Add", ["t", "place"], ["p"]),
        node("ReduceMean", ["p"], ["m"], axes=[1], keepdims=0),
        node("Gemm", ["m", "w"], ["y"]),
    ]
    constants = {
        "token": np.repeat(weights(1, 1, 4), batch, 0),
        "place": np.repeat(weights(1, 4, 4), batch, 0),
        "w": weights(4, 3),
    }
    model = agrees(loaded(graph(nodes, constants, shape=(batch, 3, 4)), tmp_path))
    assert model.input.batch is None


@pytest.mark.parametrize("batch", [1, 2, 3, 6])
def test_batch_inside_merged_axes_is_freed(tmp_path: Path, batch: int) -> None:
    """Sequence-first attention: [T, N, E] to heads and back, as PyTorch writes it with the sizes as numbers."""
    n, t, heads, d = batch, 5, 2, 3
    constants = {
        "heads": np.array([t, n * heads, d]), "four": np.array([n, heads, t, d]), "rows": np.array([t * n, heads * d]),
        "back": np.array([t, n, heads * d]), "w": weights(6, 6), "v": weights(6, 3),
    }  # fmt: skip
    nodes = [
        node("Transpose", ["x"], ["s"], perm=[1, 0, 2]), node("Reshape", ["s", "heads"], ["h"]),
        node("Transpose", ["h"], ["ht"], perm=[1, 0, 2]), node("Reshape", ["ht", "four"], ["q"]),
        node("Softmax", ["q"], ["a"], axis=2), node("Transpose", ["a"], ["at"], perm=[2, 0, 1, 3]),
        node("Reshape", ["at", "rows"], ["r"]), node("Gemm", ["r", "w"], ["g"]), node("Reshape", ["g", "back"], ["b"]),
        node("ReduceMean", ["b"], ["m"], axes=[0], keepdims=0), node("Gemm", ["m", "v"], ["y"]),
    ]  # fmt: skip
    model = agrees(loaded(graph(nodes, constants, shape=(n, t, heads * d)), tmp_path))
    assert model.input.batch is None


def test_recurrent_state_of_zeros_is_forgotten(tmp_path: Path) -> None:
    nodes = [node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["s", "last"], hidden_size=3, layout=0)]
    nodes = [node("Transpose", ["x0"], ["x"], perm=[1, 0, 2]), *nodes]
    nodes += [node("Squeeze", ["last", "axis"], ["q"]), node("Gemm", ["q", "v"], ["y"])]
    zeros = np.zeros((1, 2, 3), np.float32)
    constants = {
        "w": weights(1, 12, 4),
        "r": weights(1, 12, 3),
        "h": zeros,
        "c": zeros,
        "axis": np.array([0]),
        "v": weights(3, 2),
    }
    model = agrees(loaded(graph(nodes, constants, inputs=[value("x0", (2, 5, 4))]), tmp_path))
    assert model.input.batch is None


def test_batch_size_that_the_graph_insists_on_is_kept(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "per_row"], ["y"])]
    model = agrees(loaded(graph(nodes, {"w": weights(4, 3), "per_row": weights(2, 3)}, shape=(2, 4)), tmp_path))
    assert model.input.batch == 2
    assert model.notes[0] == "The file works with batches of 2 alone, so it is fed 2 samples at a time."
