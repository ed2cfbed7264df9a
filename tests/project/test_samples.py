"""The bundled samples are what their README says they are."""

from __future__ import annotations

import ast
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from places import SAMPLES

ROW = re.compile(r"\| `(?P<model>[\w-]+)\.onnx` \| `(?P<data>[\w-]+)/` \| .* \| (?P<error>[\d.]+) % \|")
CASES = [match.groups() for match in ROW.finditer((SAMPLES / "README.md").read_text(encoding="utf-8"))]


def read(folder: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(SAMPLES / folder / f"{split}.npz") as arrays:
        return arrays["x"], arrays["y"]


def scores(model: str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(SAMPLES / f"{model}.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {"image": x.reshape(len(x), -1).astype(np.float32) / 255})[0].astype(np.float64)


def mean_loss(f: np.ndarray, y: np.ndarray) -> float:
    shifted = f - f.max(1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]).mean())


def test_every_recipe_and_every_file_is_in_the_readme():
    tree = ast.parse((SAMPLES / "train.py").read_text(encoding="utf-8"))
    (recipes,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "RECIPES")
    assert [model for model, _, _ in CASES] == [key.value for key in recipes.keys]
    assert {model for model, _, _ in CASES} == {file.stem for file in SAMPLES.glob("*.onnx")}
    assert {data for _, data, _ in CASES} == {file.parent.name for file in SAMPLES.glob("*/train.npz")}


@pytest.mark.parametrize(("model", "data", "error"), CASES)
def test_model_is_as_good_as_the_readme_says(model, data, error):
    x, y = read(data, "test")
    assert f"{100 * np.mean(scores(model, x).argmax(1) != y):.1f}" == error
    assert mean_loss(scores(model, read(data, "train")[0]), read(data, "train")[1]) == pytest.approx(2e-3, rel=0.01)


@pytest.mark.parametrize("model", [model for model, _, _ in CASES])
def test_model_is_one_clean_file(model):
    path = SAMPLES / f"{model}.onnx"
    onnx.checker.check_model(path, full_check=True)
    loaded = onnx.load(path, load_external_data=False)
    assert not any(tensor.external_data for tensor in loaded.graph.initializer)
    assert not re.search(rb"\.py|/(home|root|tmp|work|Users)/", path.read_bytes())
    assert [node.op_type for node in loaded.graph.node] == ["Gemm", "Relu", "Gemm", "Relu", "Gemm"]
    assert {tensor.name for tensor in loaded.graph.initializer} >= {"fc1.weight", "fc2.weight", "fc3.weight"}


def test_data_is_balanced_and_its_splits_do_not_overlap():
    (x_train, y_train), (x_test, y_test) = read("mnist", "train"), read("mnist", "test")
    assert x_train.dtype == x_test.dtype == np.uint8
    assert np.bincount(y_train).tolist() == [400] * 10
    assert np.bincount(y_test).tolist() == [100] * 10
    seen = {image.tobytes() for image in x_train}
    assert not any(image.tobytes() in seen for image in x_test)


def test_a_quarter_of_the_mislabelled_train_labels_is_wrong_and_nothing_else():
    for split, wrong in (("train", 1000), ("test", 0)):
        (x, y), (x_wrong, y_wrong) = read("mnist", split), read("mnist-mislabelled", split)
        assert np.array_equal(x, x_wrong)
        assert np.count_nonzero(y != y_wrong) == wrong
