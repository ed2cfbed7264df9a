"""Every operator against ONNX's own node tests, or onnxruntime where those are silent, and twice differentiated."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case import node as node_cases
from onnx_single_nodes import NEWEST, assert_same, graph, run_network, single

from audit.model.onnx.convert import network_of, unsupported

RNG = np.random.default_rng(0)
SLOW_TO_GENERATE = {"maxpool", "averagepool", "lppool", "image_decoder"}  # compared with onnxruntime below instead
NOT_IN_INFERENCE = {"test_training_dropout", "test_training_dropout_default"}  # random masks
WRAPPED = {"test_bitwise_not_3d"}  # torch has no arithmetic in uint16
OTHERWISE = {f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")}
"""Answered in another way by onnxruntime, which we follow: see test_onnx_resize.py."""
LEFT_OUT = NOT_IN_INFERENCE | WRAPPED | OTHERWISE

WIDE = {np.dtype(name): np.int64 for name in ("uint16", "uint32", "uint64")}


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@lru_cache
def cases_by_letter() -> dict[str, list[Any]]:
    """The node tests of the onnx package that take and give plain numbers, by the first letter of their operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the references overflow on purpose
        for module in pkgutil.iter_modules(node_cases.__path__):
            if module.name not in SLOW_TO_GENERATE:
                importlib.import_module(f"{node_cases.__name__}.{module.name}")
    groups: dict[str, list[Any]] = {}
    for case in node_cases._NodeTestCases:
        if not case.name.endswith("_expanded") and "_expanded_" not in case.name and _plain(case.model):
            groups.setdefault(case.model.graph.node[0].op_type[0], []).append(case)
    return groups


def _plain(model: onnx.ModelProto) -> bool:
    known = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13}  # no text, no complex numbers, nothing below eight bits
    return all(
        value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in known
        for value in (*model.graph.input, *model.graph.output)
    )


def _array(value: Any) -> np.ndarray:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@pytest.mark.parametrize("letter", "ABCDEFGHILMNOPRSTUWX")
def test_onnx_node_tests(letter: str) -> None:
    compared = 0
    for case in cases_by_letter()[letter]:
        if unsupported(case.model) or case.name.removesuffix("_mask") in LEFT_OUT:
            continue
        for inputs, outputs in case.data_sets:
            arrays = [_array(value) for value in inputs]
            feed = {str(i): array.astype(WIDE.get(array.dtype, array.dtype)) for i, array in enumerate(arrays)}
            for got, expected in zip(run_network(case.model, feed), map(_array, outputs), strict=False):
                tolerance = 1e-2 if expected.dtype == np.float16 else 1e-4
                assert got.shape == expected.shape, case.name
                np.testing.assert_allclose(
                    got.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance, err_msg=case.name
                )
        compared += 1
    assert compared >= 1


REFUSED = {
    "BitCast", "Bernoulli", "RandomUniformLike", "Unique", "NonMaxSuppression", "TfIdfVectorizer", "MelWeightMatrix",
    "If", "Loop", "Scan", "OptionalGetElement", "OptionalHasElement", "ConvInteger", "MatMulInteger", "QLinearConv",
    "DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "SoftmaxCrossEntropyLoss",
    "NegativeLogLikelihoodLoss", "Adagrad", "Adam", "Momentum", "TreeEnsemble", "DeformConv", "RoiAlign",
    "LinearAttention", "FlexAttention",
}  # fmt: skip


def test_node_tests_leave_out_only_these_operators() -> None:
    cases = [case for group in cases_by_letter().values() for case in group]
    assert {one.op for case in cases for one in unsupported(case.model)} <= REFUSED
    assert sum(not unsupported(case.model) for case in cases) > 800


POOLS = list(itertools.product(("MaxPool", "AveragePool"), (0, 1), (0, 1), ([0, 0], [1, 0], [1, 1]), (1, 2, 3)))


@pytest.mark.parametrize(("op", "ceil", "include", "pads", "stride"), POOLS)
def test_pools_agree_with_onnxruntime(op: str, ceil: int, include: int, pads: list[int], stride: int) -> None:
    options = {"count_include_pad": include} if op == "AveragePool" else {}
    for size in (5, 6, 7):
        model, feed = single(
            op, normal(2, 3, size, size + 1), kernel_shape=[3, 2], strides=[stride, stride], pads=pads * 2,
            ceil_mode=ceil, opset=19, **options,
        )  # fmt: skip
        assert_same(model, feed)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_that_pad_by_themselves(op: str, auto_pad: str) -> None:
    model, feed = single(op, normal(2, 3, 8, 7), kernel_shape=[3, 2], strides=[2, 2], auto_pad=auto_pad, opset=18)
    assert_same(model, feed)


def test_max_pool_says_where_the_maxima_were() -> None:
    options = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    model, feed = single("MaxPool", normal(2, 3, 7, 6), outputs=2, opset=12, **options)
    assert_same(model, feed)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_that_pad_by_themselves(rank: int, auto_pad: str) -> None:
    x, w, b = normal(2, 4, *[7] * rank), normal(6, 2, *[4] * rank), normal(6)
    assert_same(*single("Conv", x, w, b, group=2, auto_pad=auto_pad, strides=[2] * rank))
    assert_same(*single("Conv", x, w, b, group=2, pads=[*[1] * rank, *[2] * rank], dilations=[2] * rank))


@pytest.mark.parametrize(
    "options",
    [
        {"pads": [1, 0, 0, 1], "strides": [2, 3]},
        {"output_padding": [1, 1], "strides": [2, 2]},
        {"dilations": [2, 1], "group": 2},
        {"output_shape": [12, 13], "strides": [2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ],
)
def test_transposed_convolutions(options: dict[str, Any]) -> None:
    group = options.get("group", 1)
    assert_same(*single("ConvTranspose", normal(2, 4, 5, 6), normal(4, 3, 3, 3), normal(3 * group), **options))


AXES = np.array([1], np.int64)
VERSIONS = {
    "Softmax flattens before 13": single("Softmax", normal(2, 3, 4), opset=11, axis=1),
    "Softmax along one axis since": single("Softmax", normal(2, 3, 4), opset=13, axis=1),
    "LogSoftmax flattens before 13": single("LogSoftmax", normal(2, 3, 4), opset=9),
    "ReduceSum axes as attribute": single("ReduceSum", normal(2, 3, 4), opset=11, axes=[1], keepdims=0),
    "ReduceSum axes as input": single("ReduceSum", normal(2, 3, 4), AXES, opset=13),
    "ReduceMean axes as attribute": single("ReduceMean", normal(2, 3, 4), opset=13, axes=[-1]),
    "ReduceMean axes as input": single("ReduceMean", normal(2, 3, 4), AXES, opset=18),
    "Squeeze axes as attribute": single("Squeeze", normal(2, 1, 4), opset=11, axes=[1]),
    "Squeeze axes as input": single("Squeeze", normal(2, 1, 4), AXES, opset=13),
    "Unsqueeze axes as attribute": single("Unsqueeze", normal(2, 4), opset=11, axes=[0, -1]),
    "Unsqueeze axes as input": single("Unsqueeze", normal(2, 4), np.array([-1, 0]), opset=13),
    "Slice as attributes": single("Slice", normal(4, 6), opset=9, starts=[1, -3], ends=[3, 100], axes=[0, 1]),
    "Slice as inputs": single("Slice", normal(4, 6), [3], [-100], [1], [-2], opset=13),
    "Slice to the ends of int64": single(
        "Slice", normal(4, 6), [-(2**63), 2**63 - 1], [2**63 - 1, -(2**63)], [0, 1], [1, -2], opset=13
    ),
    "Slice of nothing": single("Slice", normal(4, 6), [3], [1], [0], opset=13),
    "Clip as attributes": single("Clip", normal(3, 4), opset=9, min=-0.5, max=0.25),
    "Clip as inputs": single("Clip", normal(3, 4), None, np.float32(0.25), opset=13),
    "Pad as attributes": single("Pad", normal(3, 4), opset=9, pads=[0, 1, 2, 0], value=0.5),
    "Pad reflects": single("Pad", normal(3, 4), np.array([1, 2, 0, 1]), opset=13, mode="reflect"),
    "Pad with axes": single("Pad", normal(3, 4), np.array([1, -1]), np.float32(2), AXES, opset=18),
    "Split as attribute": single("Split", normal(4, 6), opset=11, outputs=2, axis=1, split=[2, 4]),
    "Split as input": single("Split", normal(4, 6), np.array([1, 5]), opset=13, outputs=2, axis=1),
    "Split num_outputs": single("Split", normal(4, 7), opset=18, outputs=3, axis=1, num_outputs=3),
    "Upsample": single("Upsample", normal(2, 3, 4, 4), np.float32([1, 1, 2, 3]), opset=9),
    "Resize 10": single("Resize", normal(2, 3, 4, 4), np.float32([1, 1, 2, 2]), opset=10, mode="linear"),
    "GroupNormalization by channel": single(
        "GroupNormalization", normal(2, 4, 3), normal(4), normal(4), opset=21, num_groups=2
    ),
    "BatchNormalization 9": single(
        "BatchNormalization", normal(2, 4, 3), normal(4), normal(4), normal(4), normal(4) ** 2, opset=9
    ),
    "Gemm 9": single("Gemm", normal(2, 4), normal(3, 4), normal(3), opset=9, transB=1, alpha=0.5, beta=2.0),
    "TopK 10": single("TopK", normal(3, 6), np.array([2]), opset=10, outputs=2),
    "Gelu 20": single("Gelu", normal(3, 6), opset=20, approximate="tanh"),
    "LayerNormalization 17": single("LayerNormalization", normal(2, 3, 4), normal(4), normal(4), opset=17),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_agree_with_onnxruntime(name: str) -> None:
    assert_same(*VERSIONS[name])


def test_group_normalization_before_21_has_one_scale_per_group() -> None:
    x, scale, bias = normal(2, 6, 5), normal(3), normal(3)
    model, feed = single("GroupNormalization", x, scale, bias, opset=18, num_groups=3)
    expected = torch.nn.functional.group_norm(
        torch.from_numpy(x), 3, torch.from_numpy(scale.repeat(2)), torch.from_numpy(bias.repeat(2))
    )
    np.testing.assert_allclose(run_network(model, feed)[0], expected, atol=1e-5)


MICROSOFT = {
    "Gelu": single("Gelu", normal(3, 4), domain="com.microsoft"),
    "FastGelu": single("FastGelu", normal(3, 4), normal(4), domain="com.microsoft"),
    "BiasGelu": single("BiasGelu", normal(3, 4), normal(4), domain="com.microsoft"),
    "QuickGelu": single("QuickGelu", normal(3, 4), domain="com.microsoft", alpha=1.7),
    "FusedMatMul": single("FusedMatMul", normal(3, 4), normal(5, 4), domain="com.microsoft", transB=1, alpha=0.5),
    "FusedGemm": single(
        "FusedGemm", normal(3, 4), normal(4, 5), normal(5), domain="com.microsoft", activation="Relu"
    ),
    "FusedConv": single(
        "FusedConv", normal(2, 3, 5, 5), normal(4, 3, 3, 3), normal(4), domain="com.microsoft",
        activation="LeakyRelu", activation_params=[0.1], pads=[1, 1, 1, 1],
    ),
    "SkipLayerNormalization": single(
        "SkipLayerNormalization", normal(2, 3, 4), normal(2, 3, 4), normal(4), normal(4), normal(4),
        domain="com.microsoft", epsilon=1e-5,
    ),
}  # fmt: skip
LEARN = {
    "Scaler": single("Scaler", normal(3, 4), domain="ai.onnx.ml", offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0] * 4),
    "Normalizer L1": single("Normalizer", normal(3, 4), domain="ai.onnx.ml", norm="L1"),
    "Normalizer L2": single("Normalizer", normal(3, 4), domain="ai.onnx.ml", norm="L2"),
    "Normalizer MAX": single("Normalizer", np.abs(normal(3, 4)), domain="ai.onnx.ml", norm="MAX"),
    "Imputer": single(
        "Imputer", np.float32([[1, np.nan], [2, 3]]), domain="ai.onnx.ml", imputed_value_floats=[5.0, 6.0],
        replaced_value_float=float("nan"),
    ),
    "Binarizer": single("Binarizer", normal(3, 4), domain="ai.onnx.ml", threshold=0.25),
    "ArrayFeatureExtractor": single("ArrayFeatureExtractor", normal(3, 4), np.array([2, 0]), domain="ai.onnx.ml"),
    "LinearRegressor": single(
        "LinearRegressor", normal(3, 2), domain="ai.onnx.ml", coefficients=[1.0, 2.0, 3.0, 4.0], intercepts=[0.5, 1.0],
        targets=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MICROSOFT)
def test_fused_operators_of_onnxruntime(name: str) -> None:
    assert_same(*MICROSOFT[name])


@pytest.mark.parametrize("name", LEARN)
def test_numeric_operators_of_scikit_learn_exports(name: str) -> None:
    assert_same(*LEARN[name])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_layers(op: str, gates: int, direction: str, given: bool) -> None:
    """With and without initial states and sequence lengths, as onnxruntime computes them."""
    d = 2 if direction == "bidirectional" else 1
    arrays: list[Any] = [normal(5, 3, 2), normal(d, gates * 4, 2), normal(d, gates * 4, 4), normal(d, 2 * gates * 4)]
    if given:
        arrays += [np.array([5, 2, 3], np.int32), normal(d, 3, 4), *([normal(d, 3, 4)] if op == "LSTM" else [])]
    options = {"linear_before_reset": 1} if op == "GRU" and given else {}
    outputs = 3 if op == "LSTM" else 2
    assert_same(*single(op, *arrays, outputs=outputs, opset=14, hidden_size=4, direction=direction, **options))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_resizing(mode: str, where: str) -> None:
    for sizes in ([2, 3, 9, 8], [2, 3, 3, 4]):
        model, feed = single(
            "Resize", normal(2, 3, 5, 6), None, None, np.array(sizes), mode=mode, opset=13,
            coordinate_transformation_mode=where,
        )  # fmt: skip
        assert_same(model, feed)


TWICE_DIFFERENTIABLE = {
    "HardSigmoid": single("HardSigmoid", normal(2, 3)),
    "HardSwish": single("HardSwish", normal(2, 3)),
    "Gelu": single("Gelu", normal(2, 3), opset=20),
    "Mish": single("Mish", normal(2, 3), opset=18),
    "Softplus": single("Softplus", normal(2, 3)),
    "Softmax": single("Softmax", normal(2, 3), axis=-1),
    "Celu": single("Celu", normal(2, 3)),
    "Pow": single("Pow", np.abs(normal(2, 3)) + 1, np.float32(1.5)),
    "ReduceL2": single("ReduceL2", normal(2, 3), AXES, opset=18),
    "ReduceLogSumExp": single("ReduceLogSumExp", normal(2, 3), AXES, opset=18),
    "ReduceProd": single("ReduceProd", normal(2, 3), AXES, opset=18),
    "LayerNormalization": single("LayerNormalization", normal(2, 3), normal(3), normal(3)),
    "GroupNormalization": single("GroupNormalization", normal(2, 4, 2), normal(4), normal(4), num_groups=2),
    "InstanceNormalization": single("InstanceNormalization", normal(1, 2, 4), normal(2), normal(2)),
    "RMSNormalization": single("RMSNormalization", normal(2, 3), normal(3), opset=23),
    "LRN": single("LRN", normal(1, 4, 2, 2), size=3),
    "Conv": single("Conv", normal(1, 2, 4, 4), normal(2, 2, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    "ConvTranspose": single("ConvTranspose", normal(1, 2, 3), normal(2, 2, 3), strides=[2], pads=[1, 0]),
    "MaxPool": single("MaxPool", normal(1, 1, 4, 4), kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
    "AveragePool": single("AveragePool", normal(1, 1, 4, 4), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "Resize": single("Resize", normal(1, 1, 3, 3), None, np.float32([1, 1, 2, 2]), mode="cubic"),
    "Attention": single("Attention", normal(1, 1, 3, 2), normal(1, 1, 3, 2), normal(1, 1, 3, 2), is_causal=1, opset=23),
    "LSTM": single("LSTM", normal(3, 1, 2), normal(1, 8, 2), normal(1, 8, 2), normal(1, 16), opset=14, hidden_size=2),
    "GRU": single("GRU", normal(3, 1, 2), normal(1, 6, 2), normal(1, 6, 2), normal(1, 12), opset=14, hidden_size=2),
    "GatherND": single("GatherND", normal(2, 3), np.array([[0, 1], [1, 2]])),
    "ScatterND": single("ScatterND", normal(4, 2), np.array([[1], [3]]), normal(2, 2), reduction="add", opset=18),
    "TopK": single("TopK", normal(2, 5), np.array([2]), outputs=2),
    "CumSum": single("CumSum", normal(2, 3), np.array(1)),
    "Einsum": single("Einsum", normal(2, 3), normal(4, 3), equation="bi,oi->bo"),
}


@pytest.mark.parametrize("name", TWICE_DIFFERENTIABLE)
def test_first_and_second_derivatives(name: str) -> None:
    model, feed = TWICE_DIFFERENTIABLE[name]
    network = network_of(model).to(torch.float64)

    def first_output(x: torch.Tensor) -> torch.Tensor:
        result = network(x)
        return result[0] if isinstance(result, tuple) else result

    x = torch.from_numpy(feed["i0"]).double().requires_grad_()
    assert first_output(x).dtype == torch.float64
    assert torch.autograd.gradcheck(first_output, x)
    assert torch.autograd.gradgradcheck(first_output, x)


def test_sampling_a_grid_is_twice_differentiable_in_image_and_grid() -> None:
    """torch's own kernel has no second derivative."""
    x, place = normal(1, 1, 3, 3), np.float32(np.tanh(normal(1, 2, 2, 2))) * 0.8
    model, _ = single("GridSample", x, place, constant=False, mode="bicubic", opset=16)
    network = network_of(model).to(torch.float64)
    inputs = tuple(torch.from_numpy(array).double().requires_grad_() for array in (x, place))
    assert torch.autograd.gradcheck(network, inputs)
    assert torch.autograd.gradgradcheck(network, inputs)


@pytest.mark.parametrize("op", ["Range", "ConstantOfShape", "EyeLike", "HannWindow", "Cast", "CastLike"])
def test_what_an_operator_makes_follows_the_network(op: str) -> None:
    """In a network moved to float64, no operator brings single precision back."""
    x = normal(3, 3)
    make = onnx.helper.make_node
    value = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [1 / 3])
    nodes = {
        "Range": [make("Range", ["zero", "limit", "third"], ["made"])],
        "ConstantOfShape": [make("ConstantOfShape", ["shape"], ["made"], value=value)],
        "EyeLike": [make("EyeLike", ["x"], ["made"], dtype=1)],
        "HannWindow": [make("HannWindow", ["three"], ["made"])],
        "Cast": [make("Cast", ["three"], ["made"], to=10)],
        "CastLike": [make("CastLike", ["three", "x"], ["made"])],
    }[op]
    constants = {
        "zero": np.float32(0), "limit": np.float32(1), "third": np.float32(1 / 3), "shape": np.array([3, 3]),
        "three": np.array(3),
    }  # fmt: skip
    model = graph([*nodes, make("Mul", ["x", "made"], ["y"])], {"x": x}, constants)
    network = network_of(model).to(torch.float64)
    assert network(torch.from_numpy(x)).dtype == torch.float64
    assert all(value.dtype == torch.float64 for value in network.buffers() if value.is_floating_point())


def test_newest_opset_is_known_to_onnxruntime() -> None:
    """The comparisons above would otherwise all run at an opset that their reference refuses."""
    assert_same(*single("Relu", normal(2, 2), opset=NEWEST))
