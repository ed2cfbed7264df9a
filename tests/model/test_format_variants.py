"""One network in different ways of the same format: batch, precision, final layer, outside data, other exporters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from formats import (
    ARCHITECTURES,
    Report,
    Writer,
    audited,
    data_of,
    differences,
    example_of,
    independent,
    silent,
    splits,
    trained,
    write_onnx,
    write_pt2,
    write_script,
    write_state,
)
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tolerances import EXACT
from torch import nn


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("variants")


@pytest.fixture(scope="module")
def wine(folder: Path) -> Path:
    return data_of("relu").save(folder / "wine")


@pytest.fixture(scope="module")
def plain(folder: Path, wine: Path) -> Report:
    """The report on the ReLU network by the older exporter, any batch, float32."""
    return audited(write_onnx(trained("relu"), example_of("relu"), folder / "plain.onnx", opset=13), wine)


def test_a_fixed_batch_changes_no_number(folder: Path, wine: Path, plain: Report) -> None:
    """110 train and 60 test samples are no multiple of 4: the last batch is filled up, and the filling not counted."""
    fixed = audited(
        write_onnx(trained("relu"), example_of("relu"), folder / "fixed.onnx", opset=13, dynamic=False), wine
    )
    assert differences(plain, fixed) == []
    assert any("fixes the batch size at 4" in note for note in fixed["model"]["notes"])


class FixedBatch(nn.Module):
    """Nothing about it can be freed: it adds a constant of four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.network = copy.deepcopy(trained("relu"))
        self.register_buffer("zeros", torch.zeros(4, 13))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x + self.zeros)


def test_a_batch_that_cannot_be_freed_changes_no_number(folder: Path, wine: Path, plain: Report) -> None:
    fixed = audited(write_pt2(FixedBatch().eval(), example_of("relu"), folder / "stiff.pt2", dynamic=False), wine)
    assert fixed["model"]["input"]["batch"] == 4
    assert differences(plain["gap"], fixed["gap"]) == []
    for own, layer in zip(plain["layers"], fixed["layers"], strict=True):
        for key in ("duality", "flatness", "fisher", "sensitivity"):
            assert differences(own[key], layer[key]) == []


PRECISE: dict[str, tuple[Writer, str]] = {
    "onnx": (lambda network, x, path: write_onnx(network, x, path, opset=13), ".onnx"),
    "pt2": (write_pt2, ".pt2"),
    "torchscript": (write_script, ".pt"),
    "state_dict": (write_state, ".pth"),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("form", ["onnx", "pt2", "torchscript", "state_dict"])
def test_the_precision_of_the_weights(form: str, dtype: torch.dtype, folder: Path, wine: Path) -> None:
    """Half precision is for storage: the audit computes in float64 with the rounded weights."""
    network = copy.deepcopy(trained("relu")).to(dtype)
    x, path = example_of("relu", dtype), folder / f"{form}-{dtype}"
    write, ending = PRECISE[form]
    arch = {"arch": f"{ARCHITECTURES}:relu"} if form == "state_dict" else {}
    report = audited(write(network, x, path.with_suffix(ending)), wine, **arch)
    truth = independent("relu", network)
    assert {key: report["gap"][key] for key in truth} == pytest.approx(truth, rel=1e-6, abs=0)


HEADS = {
    "softmax": ("relu", lambda: nn.Softmax(1)),
    "log_softmax": ("relu", lambda: nn.LogSoftmax(1)),
    "sigmoid": ("tabular", nn.Sigmoid),
}


@pytest.mark.parametrize("form", ["onnx-13", "pt2", "torchscript"])
@pytest.mark.parametrize("head", HEADS)
def test_the_scores_beneath_a_final_layer_are_audited(head: str, form: str, tmp_path: Path) -> None:
    name, build = HEADS[head]
    ended = nn.Sequential(*copy.deepcopy(trained(name)), build()).eval()
    writers = {
        "onnx-13": lambda: write_onnx(ended, example_of(name), tmp_path / "m.onnx", opset=13),
        "pt2": lambda: write_pt2(ended, example_of(name), tmp_path / "m.pt2"),
        "torchscript": lambda: write_script(ended, example_of(name), tmp_path / "m.pt"),
    }
    report = audited(writers[form](), data_of(name).save(tmp_path / "data"))
    truth = independent(name)
    assert report["model"]["head"] == head
    assert {key: report["gap"][key] for key in truth} == pytest.approx(truth, rel=EXACT, abs=0)
    assert [layer["name"] for layer in report["layers"]] == ["0", "2", "4"][: len(report["layers"])]


def test_weights_beside_the_file(folder: Path, wine: Path, plain: Report) -> None:
    model = onnx.load(folder / "plain.onnx")
    path = folder / "outside.onnx"
    options: dict[str, Any] = {"all_tensors_to_one_file": True, "location": "outside.data", "size_threshold": 0}
    onnx.save_model(model, path, save_as_external_data=True, **options)
    assert any(uses_external_data(tensor) for tensor in onnx.load(path, load_external_data=False).graph.initializer)
    assert differences(plain, audited(path, wine)) == []


def test_a_graph_as_keras_writes_it(folder: Path, wine: Path, plain: Report) -> None:
    """MatMul with the kernel [in, out], then Add; names with slashes."""
    network = trained("relu")
    nodes, tensors, x = [], [], "input_1"
    dense = [module for module in network if isinstance(module, nn.Linear)]
    for number, layer in enumerate(dense, 1):
        scope = f"sequential/fc{number}"
        kernel, bias = f"{scope}/MatMul/ReadVariableOp:0", f"{scope}/BiasAdd/ReadVariableOp:0"
        tensors.append(numpy_helper.from_array(layer.weight.detach().numpy().T.copy(), kernel))
        tensors.append(numpy_helper.from_array(layer.bias.detach().numpy(), bias))
        nodes.append(helper.make_node("MatMul", [x, kernel], [f"{scope}/MatMul:0"], name=f"{scope}/MatMul"))
        nodes.append(helper.make_node("Add", [f"{scope}/MatMul:0", bias], [f"{scope}/BiasAdd:0"]))
        x = f"{scope}/BiasAdd:0"
        if number < len(dense):
            nodes.append(helper.make_node("Relu", [x], [f"{scope}/Relu:0"]))
            x = f"{scope}/Relu:0"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, s]) for n, s in (("input_1", 13), (x, 3))]
    graph = helper.make_graph(nodes, "keras", ports[:1], ports[1:], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), folder / "keras.onnx"
    )
    report = audited(folder / "keras.onnx", wine)
    for layer, own in zip(report["layers"], plain["layers"], strict=True):
        assert layer.pop("name") == f"sequential/{own['name']}"
        assert differences({key: value for key, value in own.items() if key != "name"}, layer) == []
    assert differences(plain["gap"], report["gap"]) == []


SKLEARN: dict[str, tuple[Any, str]] = {
    "logistic regression": (LogisticRegression(), "wine"),
    "binary logistic regression": (LogisticRegression(), "breast_cancer"),
    "network": (MLPClassifier(hidden_layer_sizes=(8,), max_iter=60, random_state=0), "wine"),
    "binary network": (MLPClassifier(hidden_layer_sizes=(8,), max_iter=60, random_state=0), "breast_cancer"),
    "pipeline": (make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(8, 6), random_state=0)), "wine"),
    "regressor": (make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(8,), random_state=0)), "diabetes"),
}


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("name", SKLEARN)
def test_scikit_learns_own_numbers(name: str, zipmap: bool, tmp_path: Path) -> None:
    estimator, data = SKLEARN[name][0], splits(SKLEARN[name][1])
    classifies = "regressor" not in name
    if not classifies and not zipmap:
        pytest.skip("ZipMap belongs to classifiers")
    with silent():  # it has not converged, and need not
        estimator.fit(data.x_train, data.y_train)
        options = {id(estimator): {"zipmap": zipmap}} if classifies else None
        model = to_onnx(estimator, data.x_train[:1], options=options, target_opset=17)
    onnx.save(model, tmp_path / "model.onnx")
    gap = audited(tmp_path / "model.onnx", data.save(tmp_path / "data"))["gap"]
    for split, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        answers = estimator.predict(x.astype(np.float64))
        if classifies:
            loss = log_loss(y, estimator.predict_proba(x.astype(np.float64)))
            assert gap[f"{split}_accuracy"] == accuracy_score(y, answers)
        else:
            loss = 0.5 * ((answers - y) ** 2).reshape(len(y), -1).sum(1).mean()
        assert gap[f"{split}_loss"] == pytest.approx(loss, rel=1e-6, abs=0)
