"""Every way to write a dense layer becomes one nn.Linear with the right numbers and a name its author knows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto
from onnx_files import ML, agrees, dense, graph, loaded, node, weights

from audit.model.canon import layer_name, matrix_product, parameter_stem
from audit.model.onnx.layer import node_scope

BIAS_SHAPES = [None, (), (1,), (3,), (1, 3), (1, 1)]


@settings(max_examples=40, deadline=None)
@given(
    turned_weight=st.booleans(),
    turned_input=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5, -2.0]),
    beta=st.sampled_from([1.0, 0.0, 3.0]),
    bias=st.sampled_from(BIAS_SHAPES),
    moving_bias=st.booleans(),
    left=st.booleans(),
)
def test_gemm_in_all_variants(
    turned_weight: bool,
    turned_input: bool,
    alpha: float,
    beta: float,
    bias: tuple[int, ...] | None,
    moving_bias: bool,
    left: bool,
) -> None:
    """Y = α A' B' + β C, the weight as A or as B; the samples are brought into rows around it."""
    w = weights(3, 4) if turned_weight != left else weights(4, 3)
    turn_x = turned_input != left
    nodes = [node("Transpose", ["x"], ["xt"], perm=[1, 0])] if turn_x else []
    addend = "moving" if moving_bias and not left else "c"
    if addend == "moving":
        nodes.append(node("ReduceSum", ["x", "one"], ["moving"], keepdims=1))
    operands = [("w" if left else "xt" if turn_x else "x"), (("xt" if turn_x else "x") if left else "w")]
    flags = (turned_weight, turned_input) if left else (turned_input, turned_weight)
    inputs = operands + ([addend] if bias is not None else [])
    nodes.append(node("Gemm", inputs, ["g"], alpha=alpha, beta=beta, transA=int(flags[0]), transB=int(flags[1])))
    nodes.append(node("Transpose", ["g"], ["y"], perm=[1, 0]) if left else node("Identity", ["g"], ["y"]))
    shape = () if bias is None else bias if not left else (1,) * max(len(bias), 1)
    constants = {"w": w, "c": np.full(shape, 0.7, dtype=np.float32), "one": np.array([1])}
    with tempfile.TemporaryDirectory() as folder:
        model = agrees(loaded(graph(nodes, constants), Path(folder)))
    assert next(iter(dense(model).values()))[:2] == (4, 3)
    assert set(model.ops.values()) == {"gemm"}
    weight = next(m.weight for m in model.network.modules() if isinstance(m, torch.nn.Linear))
    plain = w if w.shape == (3, 4) else w.T
    np.testing.assert_allclose(weight.numpy(), alpha * plain, rtol=1e-6)


def test_batch_sized_addend_stays_apart(tmp_path: Path) -> None:
    nodes = [node("Gemm", ["x", "w", "c"], ["y"])]
    model = loaded(graph(nodes, {"w": weights(4, 3), "c": weights(2, 3)}, shape=(2, 4)), tmp_path)
    assert dense(model) == {"dense_1": (4, 3, False)}
    assert model.input.batch == 2  # every row of the batch gets another addend, so the size cannot be freed
    assert "works with batches of 2 alone" in model.notes[0]


@pytest.mark.parametrize("bias", [(3,), (1, 3), (1, 1, 3), (1,), ()])
@pytest.mark.parametrize("first", [True, False])
def test_matmul_takes_the_added_vector(tmp_path: Path, bias: tuple[int, ...], first: bool) -> None:
    product, vector = ("p", "b") if first else ("b", "p")
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", [product, vector], ["z"]),
        node("ReduceMean", ["z"], ["y"], axes=[1], keepdims=0),
    ]
    model = loaded(graph(nodes, {"w": weights(4, 3), "b": np.full(bias, 0.3, np.float32)}, shape=("n", 5, 4)), tmp_path)
    assert dense(agrees(model)) == {"dense_1": (4, 3, True)}
    assert set(model.ops.values()) == {"matmul"}


def test_vector_that_would_grow_the_product_stays_apart(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    model = loaded(graph(nodes, {"w": weights(4, 1), "b": weights(3)}), tmp_path)
    assert dense(agrees(model)) == {"dense_1": (4, 1, False)}


def test_product_that_is_read_twice_keeps_its_vector_apart(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["z"]), node("Mul", ["z", "p"], ["y"])]
    model = loaded(graph(nodes, {"w": weights(4, 3), "b": weights(3)}), tmp_path)
    assert dense(agrees(model)) == {"dense_1": (4, 3, False)}


@pytest.mark.parametrize("shape", [("n", 4, 6), ("n", 2, 4, 6)])
def test_weight_on_the_left(tmp_path: Path, shape: tuple[str | int, ...]) -> None:
    nodes = [
        node("MatMul", ["w", "x"], ["p"]),
        node("ReduceMax", ["p"], ["y"], axes=list(range(2, len(shape))), keepdims=0),
    ]
    model = loaded(graph(nodes, {"w": weights(3, 4)}, shape=shape), tmp_path)
    assert dense(agrees(model)) == {"dense_1": (4, 3, False)}


def test_leading_axes_of_one_are_dropped(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("ReduceMean", ["p"], ["y"], axes=[1], keepdims=0)]
    model = loaded(graph(nodes, {"w": weights(1, 4, 3)}, shape=("n", 5, 4)), tmp_path)
    assert dense(agrees(model)) == {"dense_1": (4, 3, False)}


@pytest.mark.parametrize(
    ("equation", "x", "w", "size"),
    [
        ("bi,io->bo", ("n", 4), (4, 3), (4, 3)),
        ("bi,oi->bo", ("n", 4), (3, 4), (4, 3)),
        ("...i,oi->...o", ("n", 4), (3, 4), (4, 3)),
        ("abc,cde->abde", ("n", 2, 4), (4, 3, 2), (4, 6)),
        ("abcd,cde->abe", ("n", 2, 3, 4), (3, 4, 5), (12, 5)),
        ("abcd,dce->abe", ("n", 2, 3, 4), (4, 3, 5), (12, 5)),
    ],
)
def test_einsum_that_is_a_product(
    tmp_path: Path, equation: str, x: tuple[int | str, ...], w: tuple[int, ...], size: tuple[int, int]
) -> None:
    nodes = [
        node("Einsum", ["x", "w"], ["e"], equation=equation),
        node("Flatten", ["e"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
    ]
    rows = int(np.prod(_out_sizes(equation, x, w)[1:]))
    model = loaded(graph(nodes, {"w": weights(*w), "v": weights(rows, 2)}, shape=x), tmp_path)
    assert next(iter(dense(agrees(model)).values())) == (*size, False)
    assert "einsum" in model.ops.values()


def _out_sizes(equation: str, x: tuple[int | str, ...], w: tuple[int, ...]) -> list[int]:
    left, out = equation.replace("...", "z").split("->")
    sizes = dict(zip("".join(left.split(",")), (*x, *w), strict=True))
    return [size if isinstance(size, int) else 1 for size in (sizes[axis] for axis in out)]


@pytest.mark.parametrize(
    "equation", ["bi,bo->bio", "ij,jk->ki", "bi,io", "bii,io->bo", "bi,ij,jo->bo", "bij,io->bjo", "bi,i->b"]
)
def test_einsum_that_is_something_else(equation: str) -> None:
    assert matrix_product(equation, 1) is None


@pytest.mark.parametrize("options", [{"transB": 1}, {"alpha": 0.5}, {"transB": 1, "alpha": -2.0}])
def test_onnxruntimes_fused_product(tmp_path: Path, options: dict[str, float]) -> None:
    w = weights(3, 4) if options.get("transB") else weights(4, 3)
    model = graph([node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", **options)], {"w": w})
    assert dense(agrees(loaded(model, tmp_path))) == {"dense_1": (4, 3, False)}


def test_onnxruntimes_fused_gemm(tmp_path: Path) -> None:
    fused = node(
        "FusedGemm", ["x", "w", "b"], ["y"], domain="com.microsoft", activation="LeakyRelu", activation_alpha=0.2
    )
    model = agrees(loaded(graph([fused], {"w": weights(4, 3), "b": weights(3)}), tmp_path))
    assert dense(model) == {"dense_1": (4, 3, True)}


def test_linear_regressor(tmp_path: Path) -> None:
    regressor = node(
        "LinearRegressor",
        ["x"],
        ["y"],
        domain=ML,
        coefficients=[1.0, 2, 3, 4, 5, 6, 7, 8],
        intercepts=[0.5, -1],
        targets=2,
    )
    model = agrees(loaded(graph([regressor], {}), tmp_path))
    assert dense(model) == {"linear_regressor": (4, 2, True)}
    assert model.ops == {"linear_regressor": "linear_regressor"}


def tied(bias: list[str], copies: bool = False) -> dict[str, object]:
    names = ["w", "w2"] if copies else ["w", "w"]
    nodes = [node("MatMul", ["x", names[0]], ["p"]), node("Tanh", ["p" if not bias else "pb"], ["t"])]
    nodes += [node("MatMul", ["t", names[1]], ["q"])]
    if bias:
        nodes.insert(1, node("Add", ["p", bias[0]], ["pb"]))
        nodes.append(node("Add", ["q", bias[1]], ["y"]))
    else:
        nodes.append(node("Identity", ["q"], ["y"]))
    constants = {"w": weights(4, 4), "w2": weights(4, 4), "b": weights(4), "c": 2 * weights(4)}
    return {"nodes": nodes, "constants": constants}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(("bias", "has_bias"), [([], False), (["b", "b"], True), (["b", "c"], False)])
def test_tied_weights_are_one_layer(tmp_path: Path, bias: list[str], has_bias: bool, copies: bool) -> None:
    """Also where an exporter wrote two copies; biases that differ are added apart."""
    model = agrees(loaded(graph(**tied(bias, copies)), tmp_path))
    assert dense(model) == {"dense_1": (4, 4, has_bias)}


def test_equal_but_constant_weights_are_not_tied(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w1"], ["p"]), node("MatMul", ["p", "w2"], ["y"])]
    model = loaded(graph(nodes, {"w1": np.zeros((4, 4), np.float32), "w2": np.zeros((4, 4), np.float32)}), tmp_path)
    assert list(dense(model)) == ["dense_1", "dense_2"]


def test_shared_bias_ties_no_layers(tmp_path: Path) -> None:
    """Exporters store equal initializers once, so two layers may read one bias without being one layer."""
    nodes = [node("Gemm", ["x", "a.weight", "a.bias"], ["h"]), node("Gemm", ["h", "b.weight", "a.bias"], ["y"])]
    constants = {"a.weight": weights(4, 3), "b.weight": weights(3, 3), "a.bias": np.zeros(3, np.float32)}
    model = agrees(loaded(graph(nodes, constants), tmp_path))
    first, second = (module for module in model.network.modules() if isinstance(module, torch.nn.Linear))
    assert first.bias is not second.bias and list(dense(model)) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("fc1.weight", "fc1"),
        ("model.layers.0.fc.weight", "model.layers.0.fc"),
        ("StatefulPartitionedCall/sequential/dense/MatMul/ReadVariableOp:0", "sequential/dense"),
        ("dense_1/kernel:0", "dense_1"),
        ("encoder.in_proj_weight", "encoder.in_proj"),
        ("layer1_weight", "layer1"),
        ("onnx::MatMul_231", ""),
        ("val_25", ""),
        ("coefficient1", ""),
        ("W", ""),
        ("/fc1/Transpose_output_0", ""),
    ],
)
def test_names_from_parameters(name: str, stem: str) -> None:
    assert parameter_stem(name) == stem


def scoped(name: str, scopes: str = "") -> NodeProto:
    made = node("MatMul", ["x", "w"], ["y"], name=name)
    if scopes:
        made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return made


@pytest.mark.parametrize(
    ("made", "bias", "name"),
    [
        (scoped("/fc1/MatMul"), "", "fc1"),
        (scoped("/blocks/blocks.0/attn/MatMul"), "", "blocks.0.attn"),
        (scoped("node_MatMul_26", "['', 'attn', 'attn.self_attn', 'linear_6']"), "", "attn.self_attn"),
        (scoped("node_MatMul_26", "['', 'attn', 'linear_6']"), "attn.in_proj_bias", "attn.in_proj"),
        (scoped("node_MatMul_26", "['', 'fc2', 'linear']"), "fc1.bias", "fc2"),
        (scoped("MatMul_3"), "fc1.bias", "fc1"),
        (scoped("MatMul_3"), "", ""),
        (scoped("StatefulPartitionedCall/sequential/dense/MatMul"), "", "sequential/dense"),
        (scoped("n", "not a list"), "", ""),
    ],
)
def test_names_from_nodes(made: NodeProto, bias: str, name: str) -> None:
    assert layer_name("onnx::MatMul_7", bias, node_scope(made)) == name


def test_folded_transpose_keeps_the_parameters_name(tmp_path: Path) -> None:
    nodes = [node("Transpose", ["head.weight"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    assert dense(loaded(graph(nodes, {"head.weight": weights(3, 4)}), tmp_path)) == {"head": (4, 3, False)}


def test_two_layers_never_share_a_name(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "onnx::MatMul_1"], ["p"], name="/fc/MatMul"),
        node("MatMul", ["p", "onnx::MatMul_2"], ["y"], name="/fc/MatMul_1"),
    ]
    model = loaded(graph(nodes, {"onnx::MatMul_1": weights(4, 3), "onnx::MatMul_2": weights(3, 3)}), tmp_path)
    assert list(dense(model)) == ["fc", "fc_2"]


def test_merged_batchnorm_is_said(tmp_path: Path) -> None:
    gemm = node("Gemm", ["x", "fc1.weight"], ["y"])
    gemm.metadata_props.add(key="pkg.onnxscript.rewriter.rule_name", value="FuseBatchNormIntoGemm")
    model = loaded(graph([gemm], {"fc1.weight": weights(4, 3)}), tmp_path)
    assert model.notes == (
        "The exporter has merged a BatchNorm into fc1: the weights audited there are not the ones that were trained.",
    )
