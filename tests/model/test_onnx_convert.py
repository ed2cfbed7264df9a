"""The converted network keeps its contract: layers, names, tied weights, precision, batch size, and honest refusals."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx_single_nodes import assert_same, graph, run_onnxruntime, single
from places import ROOT, SUPPORT
from torch import nn

from audit.errors import ModelError
from audit.model.onnx.convert import Unsupported, network_of, unsupported

RNG = np.random.default_rng(1)
node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def dense(x: str, weight: str, y: str, *, bias: str = "", name: str = "fc", kind: str = "gemm") -> onnx.NodeProto:
    inputs = [x, weight, bias] if bias else [x, weight]
    return node("Dense", inputs, [y], name=name, domain="gen_audit", kind=kind)


def linears(network: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}


def test_a_dense_node_is_a_linear_module_with_its_name_and_operator() -> None:
    w, b, x = normal(3, 4), normal(3), normal(5, 4)
    nodes = [dense("x", "w", "y", bias="b", name="encoder.layers.0.fc", kind="matmul")]
    network = network_of(graph(nodes, {"x": x}, {"w": w, "b": b}, domains=["gen_audit"]))
    assert list(linears(network)) == ["encoder.layers.0.fc"]
    assert network.onnx_names == {"encoder.layers.0.fc": "encoder.layers.0.fc"}
    assert network.onnx_ops == {"encoder.layers.0.fc": "matmul"}
    np.testing.assert_allclose(network(torch.from_numpy(x)), x @ w.T + b, atol=1e-5)


def test_weights_used_twice_are_one_layer_and_shared_with_another_bias() -> None:
    x = normal(2, 4)
    constants = {"w": normal(4, 4), "b": normal(4), "c": normal(4)}
    nodes = [
        dense("x", "w", "h", bias="b", name="a"),
        dense("h", "w", "g", bias="b", name="a again"),
        dense("g", "w", "y", bias="c", name="other"),
    ]
    network = network_of(graph(nodes, {"x": x}, constants, domains=["gen_audit"]))
    layers = linears(network)
    assert list(layers) == ["a", "other"]
    assert layers["a"].weight is layers["other"].weight and layers["a"].bias is not layers["other"].bias
    moved = linears(copy.deepcopy(network).to(torch.float64))
    assert moved["a"].weight is moved["other"].weight and moved["a"].weight is not layers["a"].weight
    expected = x
    for bias in "bbc":
        expected = expected @ constants["w"].T + constants[bias]
    np.testing.assert_allclose(network(torch.from_numpy(x)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["/fc/Gemm", "model/dense 1/MatMul:0", "forward", "graph", "weight", "1", "", "é.ü"])
def test_any_node_name_becomes_a_valid_path(name: str) -> None:
    nodes = [dense("x", "w", "h", name=name), dense("h", "v", "y", name=name)]
    network = network_of(
        graph(nodes, {"x": normal(2, 3)}, {"w": normal(3, 3), "v": normal(3, 3)}, domains=["gen_audit"])
    )
    assert len(linears(network)) == 2 == len(network.onnx_names)
    assert [network.get_submodule(path) for path in network.onnx_ops] == list(linears(network).values())
    assert network(torch.zeros(1, 3)).shape == (1, 3)


def convolutional() -> tuple[onnx.ModelProto, np.ndarray]:
    x = normal(2, 3, 8, 8)
    constants = {
        "conv1.weight": normal(4, 3, 3, 3), "conv1.bias": normal(4), "bn.weight": normal(4), "bn.bias": normal(4),
        "m": normal(4), "v": normal(4) ** 2 + 1, "scale": np.float32(0.3), "fc.weight": normal(5, 4),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c"], name="/conv1/Conv"),
        node("BatchNormalization", ["c", "bn.weight", "bn.bias", "m", "v"], ["n"], name="/bn/BatchNormalization"),
        node("Mul", ["n", "scale"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fc.weight"], ["y"], name="/fc/Gemm", transB=1),
    ]
    return graph(nodes, {"x": x}, constants), x


def test_weights_of_other_layers_are_parameters_and_constants_buffers() -> None:
    network = network_of(convolutional()[0])
    assert set(dict(network.named_parameters())) == {
        "conv1.weight", "conv1.bias", "bn.weight", "bn.bias", "fc.weight",
    }  # fmt: skip
    assert network.onnx_ops == {"conv1": "conv", "bn": "batchnorm", "fc": "gemm"}
    assert network.onnx_names == {"conv1": "conv1", "bn": "bn", "fc": "fc"}
    assert isinstance(network.get_submodule("conv1"), nn.Conv2d)
    assert not network.training and not any(p.requires_grad for p in network.parameters())
    constants = [name for name, _ in network.named_buffers() if name.startswith("constants.")]
    assert len(constants) == 3  # mean, variance, scale


def test_a_copy_in_float64_computes_in_float64_and_leaves_the_original() -> None:
    model, x = convolutional()
    network = network_of(model)
    double = copy.deepcopy(network).to(torch.float64)
    values = {parameter.dtype for parameter in (*double.parameters(), *double.buffers())}
    assert values == {torch.float64}
    assert double(torch.from_numpy(x)).dtype == torch.float64  # whatever the input's own precision
    assert network(torch.from_numpy(x).double()).dtype == torch.float32
    np.testing.assert_allclose(double(torch.from_numpy(x)), run_onnxruntime(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stored", "computed"), [("float16", torch.float32), ("float64", torch.float64)])
def test_stored_precision_decides_where_it_is_computed(stored: str, computed: torch.dtype) -> None:
    x, w = normal(3, 4).astype(stored), normal(4, 2).astype(stored)
    model = graph([node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": w})
    result = network_of(model)(torch.from_numpy(x))
    assert result.dtype == computed
    np.testing.assert_allclose(result, x.astype(float) @ w.astype(float), rtol=1e-5)


def test_a_huge_double_constant_stays_finite_in_single_precision() -> None:
    """Masks are written with the lowest double; as infinity they would make NaN of a product with zero."""
    nodes = [node("Cast", ["low"], ["l"], to=1), node("Mul", ["x", "l"], ["y"])]
    model = graph(nodes, {"x": np.zeros((1, 2), np.float32)}, {"low": np.array(np.finfo(np.float64).min)})
    assert torch.equal(network_of(model)(torch.zeros(1, 2)), torch.zeros(1, 2))


def test_shapes_stay_free() -> None:
    """Shape → Gather → Concat → Reshape works at any batch size, and so does what stands beside it."""
    constants = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1]), "w": normal(12, 2)}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["flat"]),
        node("MatMul", ["flat", "w"], ["y"]),
    ]
    for batch in (1, 3, 7):
        x = normal(batch, 3, 4)
        assert_same(graph(nodes, {"x": x}, constants), {"x": x})


def test_constants_and_matrix_products_that_no_preparation_has_touched() -> None:
    value = onnx.numpy_helper.from_array(normal(4, 3), "value")
    nodes = [
        node("Constant", [], ["w"], value=value),
        node("Constant", [], ["half"], value_float=0.5),
        node("Constant", [], ["axes"], value_ints=[1]),
        node("Gemm", ["x", "w"], ["g"], alpha=0.5),
        node("Mul", ["g", "half"], ["m"]),
        node("Unsqueeze", ["m", "axes"], ["y"]),
    ]
    x = normal(2, 4)
    model = graph(nodes, {"x": x})
    assert_same(model, {"x": x})
    assert [name.rsplit(".", 1)[1] for name, _ in network_of(model).named_parameters()] == ["weight"]


def test_all_unsupported_operators_are_named_together() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantise"),
        node("Relu", ["s"], ["r"]),
        node("Mystery", ["r"], ["y"], name="odd", domain="my.ops"),
    ]
    model = graph(nodes, {"x": normal(2, 2)}, domains=["my.ops"])
    assert unsupported(model) == [
        Unsupported("DynamicQuantizeLinear", 11, "", "quantise"),
        Unsupported("Mystery", 1, "my.ops", "odd"),
    ]
    with pytest.raises(ModelError) as refusal:
        network_of(model)
    assert str(refusal.value) == (
        "the model uses operators that cannot be converted, DynamicQuantizeLinear-11 (ai.onnx, node 'quantise'), "
        "Mystery-1 (my.ops, node 'odd'): audit the float model it was quantised from."
    )


def test_an_attribute_that_is_not_heeded_is_a_refusal() -> None:
    model = graph([node("Relu", ["x"], ["y"], name="act", new_attribute=1)], {"x": normal(2, 2)})
    with pytest.raises(ModelError, match=r"Relu-14 \(ai\.onnx, node 'act'\): export the model again without them\."):
        network_of(model)


def test_a_cast_to_text_is_a_refusal() -> None:
    model = graph([node("Cast", ["x"], ["y"], to=onnx.TensorProto.STRING)], {"x": normal(2, 2)})
    assert [str(one) for one in unsupported(model)] == ["Cast-23 (ai.onnx, node 'Cast_0')"]


def test_a_converter_that_the_user_registered_with_onnx2torch_is_used() -> None:
    script = """
import numpy as np, torch
import audit.model.onnx.ops
from onnx2torch.node_converters.registry import _CONVERTER_REGISTRY, add_converter, get_converter
from onnx2torch.node_converters.activations import OnnxSoftmaxV1V11
from onnx2torch.utils.common import OperationConverterResult, onnx_mapping_from_node
from onnx_single_nodes import graph
from onnx import helper
from audit.model.onnx.convert import network_of

class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x

@add_converter("Twice", version=1, domain="mine")
def twice(node, graph):
    return OperationConverterResult(Twice(), onnx_mapping_from_node(node))

x = np.ones((2, 2), np.float32)
model = graph([helper.make_node("Twice", ["x"], ["y"], domain="mine")], {"x": x}, domains=["mine"])
assert network_of(model)(torch.from_numpy(x)).tolist() == [[2, 2], [2, 2]]
own = [key for key in _CONVERTER_REGISTRY if key.operation_type == "Relu" and key.domain == ""]
assert {_CONVERTER_REGISTRY[key].__module__ for key in own} == {"onnx2torch.node_converters.activations"}
import sys
assert "torchvision" not in sys.modules and "onnx2torch.node_converters.nms" not in sys.modules
"""
    environment = {"PYTHONPATH": f"{SUPPORT}:{ROOT}", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, 8, 4, 4)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.encoder(tokens).mean(1))


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell = cell(5, 4, batch_first=True, bidirectional=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Linear(8, 3)), (6,)),
    "lenet": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, groups=4),
            nn.MaxPool2d(2, ceil_mode=True), nn.Hardswish(), nn.Flatten(), nn.LazyLinear(3),
        ),
        (1, 8, 8),
    ),
    "attention": (Attentive, (1, 8, 8)),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 5)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 5)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "opset"),
    [(name, opset) for name in NETWORKS for opset in ((17, 20) if name == "attention" else (10, 13, 17, 20))],
)
def test_exported_networks_give_the_same_outputs_and_gradients(name: str, opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network, x, path = make().eval(), torch.randn(3, *shape), tmp_path / "network.onnx"
    network(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its own end
        torch.onnx.export(
            network, (x,), str(path), dynamo=False, opset_version=opset, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    _assert_same_network(onnx.load(path), network, x)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_newer_exporter(name: str, opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network, x, path = make().eval(), torch.randn(3, *shape), tmp_path / "network.onnx"
    network(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = ({0: torch.export.Dim.DYNAMIC},)
        torch.onnx.export(
            network, (x,), str(path), dynamo=True, opset_version=opset, dynamic_shapes=free, verbose=False
        )
    _assert_same_network(onnx.load(path), network, x)


def _assert_same_network(model: onnx.ModelProto, network: nn.Module, x: torch.Tensor) -> None:
    """Outputs, input gradients and second derivatives of the conversion equal those of the network it came from."""
    converted, original = network_of(model).to(torch.float64), copy.deepcopy(network).to(torch.float64)
    for batch in (1, 3, 4):
        a = torch.cat([x, x])[:batch].double().requires_grad_()
        b = a.detach().clone().requires_grad_()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            y, z = converted(a), original(b)
            torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)
            (first,), (second,) = (
                torch.autograd.grad(out.square().sum(), at, create_graph=True) for out, at in ((y, a), (z, b))
            )
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
        (curved,), (expected,) = (torch.autograd.grad(g.square().sum(), at) for g, at in ((first, a), (second, b)))
        torch.testing.assert_close(curved, expected, rtol=1e-3, atol=1e-4)


def test_single_node_helper_feeds_only_its_first_array() -> None:
    """The operator tests rest on it: the other arrays must be constants, so that weights become Parameters."""
    model, feed = single("Conv", normal(1, 1, 3), normal(1, 1, 2))
    assert list(feed) == ["i0"] and [name for name, _ in network_of(model).named_parameters()] == ["i1.weight"]
