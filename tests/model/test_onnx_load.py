"""Whole files as PyTorch's exporters, scikit-learn and Keras converters write them."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnx_files import agrees, dense, graph, loaded, mlp, node, weights
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import Model
from audit.model.onnx import load
from audit.settings import Settings


@pytest.fixture(autouse=True)
def quiet_exporters() -> Iterator[None]:
    """The exporters warn about themselves."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


class Net(nn.Module):
    """BatchNorm, a layer without bias, one used twice, tokens, a residual, attention and a softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.plain, self.shared = nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.attn, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
        self.bn.running_mean.normal_()  # type: ignore[union-attr]
        self.bn.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        nn.init.normal_(self.attn.in_proj_bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.plain(torch.relu(self.bn(self.fc1(x))))
        h = h + self.shared(torch.tanh(self.shared(h)))
        tokens = torch.stack([h, h.flip(1), h * 2], 1)
        result: Tensor = self.out(self.attn(tokens, tokens, tokens, need_weights=False)[0].mean(1)).softmax(-1)
        return result


LAYERS = {"fc1", "plain", "shared", "attn.in_proj", "attn.out_proj", "out"}
EXPORTS = {
    "new": {"dynamo": True, "dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)},
    "new, fixed": {"dynamo": True},
    "old 14": {"dynamo": False, "opset_version": 14, "dynamic_axes": {"x": {0: "n"}}, "input_names": ["x"]},
    "old 17, fixed": {"dynamo": False, "opset_version": 17, "input_names": ["x"]},
}


def exported(net: nn.Module, x: Tensor, path: Path, how: str) -> Model:
    torch.onnx.export(net.eval(), (x,), path, verbose=False, **EXPORTS[how])  # type: ignore[arg-type]
    return load(path, Settings())


@pytest.mark.parametrize("how", list(EXPORTS))
def test_pytorch_exports(tmp_path: Path, how: str) -> None:
    torch.manual_seed(0)
    net = Net()
    model = agrees(exported(net, torch.randn(2, 6), tmp_path / "net.onnx", how))
    assert model.head == "softmax" and model.input.batch is None and set(dense(model)) == LAYERS
    assert any("freed" in note for note in model.notes) == ("fixed" in how)
    assert any("merged a BatchNorm into fc1:" in note for note in model.notes) == how.startswith("new")
    x = torch.randn(5, 6, dtype=torch.float64)
    with torch.no_grad():
        expected = net.double().eval()(x)
        torch.testing.assert_close(model.network.double()(x).softmax(-1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["new, fixed", "old 17, fixed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_precisions(tmp_path: Path, how: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)
    model = agrees(exported(net, torch.randn(1, 4).to(dtype), tmp_path / "net.onnx", how))
    assert model.input.dtype == dtype


@pytest.mark.parametrize("how", ["new", "old 14", "old 17, fixed"])
def test_regression_squeezed_to_one_number(tmp_path: Path, how: str) -> None:
    class Regressor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.b(torch.relu(self.a(x))).squeeze(-1)
            return result

    model = agrees(exported(Regressor(), torch.randn(3, 4), tmp_path / "net.onnx", how))
    assert model.network(torch.randn(1, 4)).shape == (1, 1) and set(dense(model)) == {"a", "b"}


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from audit.model.onnx import load
from audit.settings import Settings
load(Path(sys.argv[1]), Settings()).reference(np.ones((2, 4), "float32"))
"""
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((90, 4)).astype(np.float32)
CLASSES = np.argmax(FEATURES[:, :3] + 0.3 * RNG.standard_normal((90, 3)), 1)
CLASSIFIERS = {
    "logistic": (lambda: LogisticRegression(), "softmax", "sigmoid_pair"),
    "network": (lambda: MLPClassifier((5, 4), random_state=0, max_iter=20), "softmax", "sigmoid_pair"),
    "scaled": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), "softmax", "sigmoid_pair"),
    "in range": (
        lambda: make_pipeline(MinMaxScaler(), MLPClassifier((5,), random_state=0, max_iter=20)),
        "softmax",
        "sigmoid_pair",
    ),
}


def sklearn_model(estimator: object, y: np.ndarray, folder: Path, **options: object) -> Model:
    from skl2onnx import to_onnx

    estimator.fit(FEATURES, y)  # type: ignore[attr-defined]
    proto = to_onnx(estimator, FEATURES[:1], **options)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return load(folder / "model.onnx", Settings())


@pytest.mark.parametrize("zipmap", [False, True])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("kind", list(CLASSIFIERS))
def test_sklearn_classifiers(tmp_path: Path, kind: str, binary: bool, zipmap: bool) -> None:
    make, many, two = CLASSIFIERS[kind]
    estimator = make()
    y = (CLASSES > 0).astype(int) if binary else CLASSES
    model = agrees(sklearn_model(estimator, y, tmp_path, options={id(estimator): {"zipmap": zipmap}}))
    assert model.head == (two if binary else many)
    scores = model.network(torch.from_numpy(FEATURES)).numpy()
    guess = (scores[:, 0] > 0).astype(int) if binary else scores.argmax(1)
    assert np.mean(guess == estimator.predict(FEATURES)) == 1
    assert scores.shape[1] == (1 if binary else 3)


@pytest.mark.parametrize(("kind", "targets"), [("linear", 1), ("linear", 2), ("network", 1), ("network", 3)])
def test_sklearn_regressors(tmp_path: Path, kind: str, targets: int) -> None:
    y = FEATURES[:, 0] if targets == 1 else FEATURES[:, :targets]
    made = (
        LinearRegression() if kind == "linear" else MLPRegressor(hidden_layer_sizes=(5,), random_state=0, max_iter=20)
    )
    model = agrees(sklearn_model(made, y, tmp_path))
    scores = model.network(torch.from_numpy(FEATURES))
    assert model.head == "none" and scores.shape == (90, targets)
    assert np.allclose(scores.numpy(), made.predict(FEATURES).reshape(90, targets), atol=1e-4)


def test_model_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no parameters, so there is nothing to audit"):
        sklearn_model(GaussianNB(), CLASSES, tmp_path)


def test_keras_like_graph(tmp_path: Path) -> None:
    """tf2onnx writes MatMul and Add with the scopes of TensorFlow."""
    scope = "StatefulPartitionedCall/sequential/dense"
    constants, nodes, last = {}, [], "x"
    for name, size in {"": (4, 5), "_1": (5, 3)}.items():
        w, b, p = (
            f"{scope}{name}/MatMul/ReadVariableOp:0",
            f"{scope}{name}/BiasAdd/ReadVariableOp:0",
            f"{scope}{name}/p",
        )
        constants |= {w: weights(*size), b: weights(size[1])}
        nodes += [
            node("MatMul", [last, w], [p], name=f"{scope}{name}/MatMul"),
            node("Add", [p, b], [f"{p}b"], name=f"{scope}{name}/BiasAdd"),
        ]
        last = f"{p}b"
    model = agrees(loaded(graph([*nodes, node("Softmax", [last], ["y"])], constants), tmp_path))
    assert dense(model) == {"sequential/dense": (4, 5, True), "sequential/dense_1": (5, 3, True)}
    assert model.head == "softmax" and set(model.ops.values()) == {"matmul"}


def test_everything_a_report_needs_is_there(tmp_path: Path) -> None:
    model = loaded(mlp(), tmp_path)
    assert (model.format, model.opset, model.output, model.head, model.reference_name) == (
        "onnx",
        17,
        "y",
        "none",
        "onnxruntime",
    )
    assert (model.input.name, model.input.shape, model.input.dtype, model.input.batch) == (
        "x",
        (4,),
        torch.float32,
        None,
    )
    assert model.ops == {"fc1": "gemm", "fc2": "gemm"} and model.names == {} and model.notes == ()
    assert not model.network.training and not any(weight.requires_grad for weight in model.network.parameters())


def test_reading_prints_nothing(tmp_path: Path) -> None:
    """onnxruntime likes to warn on stderr; a user sees our sentences alone."""
    model = mlp()
    model.graph.initializer.append(numpy_helper.from_array(weights(7), "unused"))
    onnx.save(model, tmp_path / "model.onnx")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "" and done.stderr == ""


def test_class_labels_that_the_file_names_are_the_models_classes(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    model = LogisticRegression().fit(x, np.array(["cat", "dog", "owl"])[np.arange(30) % 3])
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model, x[:1]).SerializeToString())
    assert load(path, Settings()).classes == ("cat", "dog", "owl")
