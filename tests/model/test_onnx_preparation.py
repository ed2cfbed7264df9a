"""ONNX files that begin with preprocessing: cut in two, the parts give the features and the answers of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from formats import audited, silent
from onnx import TensorProto, helper
from pipelines import COLUMNS, MATRICES, PIPELINES, answers, columns, exported, filled, fitted, network, people
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tolerances import SINGLE
from torch import Tensor, nn

from audit.errors import CellError, ModelError
from audit.model import load_model
from audit.model.base import HEADS, Model
from audit.model.parity import check_parity
from audit.settings import Settings

ML = "ai.onnx.ml"


def prepared(model: Model, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The features of a table, and the network's answers to them."""
    assert model.preparation is not None
    names = model.preparation.names
    raw = x if names is None else x[:, [COLUMNS.index(name) for name in names]]
    features = model.preparation.run(raw)
    assert features.shape[1:] == model.input.shape
    check_parity(model, features, raw)
    with torch.no_grad():
        return features, HEADS[model.head](model.network(torch.from_numpy(features))).numpy()


@pytest.mark.parametrize("name", PIPELINES)
def test_the_parts_answer_as_the_pipeline(name: str, tmp_path: Path) -> None:
    x, y = people()
    pipeline = fitted(PIPELINES[name](), x, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx"), Settings())
    _, ours = prepared(model, x)
    np.testing.assert_allclose(ours, answers(pipeline, x), atol=SINGLE)


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_with_gaps(name: str, tmp_path: Path) -> None:
    x, y = people()
    numbers = x[:, :2].astype(float)
    pipeline = fitted(MATRICES[name](), numbers, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx", [("X", FloatTensorType([None, 2]))]), Settings())
    assert model.preparation is not None and model.preparation.names is None
    features, ours = prepared(model, numbers)
    np.testing.assert_allclose(ours, answers(pipeline, numbers), atol=SINGLE)
    assert np.isfinite(features).all()


def test_features_are_named_after_their_columns(tmp_path: Path) -> None:
    x, y = people()
    pipeline = fitted(PIPELINES["mixed"](), x, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx"), Settings())
    assert model.preparation is not None
    assert (model.preparation.names, model.preparation.kinds) == (COLUMNS[:4], ("number", "number", "text", "text"))
    categories = ((2, "=Bonn"), (2, "=Oslo"), (2, "=Rome"), (3, "=f"), (3, "=m"))
    assert model.preparation.columns == ((0, ""), (1, ""), *categories)
    features, _ = prepared(model, x)
    np.testing.assert_allclose(features, pipeline[:-1].transform(x), atol=SINGLE)
    note = "The file prepares its own inputs (Concat, OneHotEncoder, Imputer, Reshape, Scaler): onnxruntime ran that "
    assert model.notes[0].startswith(note)


def test_what_follows_the_last_step_without_a_gradient_is_the_network(tmp_path: Path) -> None:
    x, y = people()
    pipeline = fitted(make_pipeline(columns((SimpleImputer(), [0, 1])), StandardScaler(), network()), x, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx"), Settings())
    features, _ = prepared(model, x)
    np.testing.assert_allclose(features, pipeline[0].transform(x), rtol=SINGLE)  # the scaler is behind the imputer


def test_numbers_in_double_precision(tmp_path: Path) -> None:
    x, y = people()
    steps = columns((StandardScaler(), [0]), (OneHotEncoder(), [1]))
    pipeline = fitted(make_pipeline(steps, MLPRegressor(hidden_layer_sizes=(8,), max_iter=60)), x[:, 1:3], y)
    kinds = [("income", DoubleTensorType([None, 1])), ("city", StringTensorType([None, 1]))]
    model = load_model(exported(pipeline, tmp_path / "m.onnx", kinds), Settings())
    _, ours = prepared(model, x)
    np.testing.assert_allclose(ours, answers(pipeline, x[:, 1:3]), atol=SINGLE)


def test_a_prefix_that_onnxruntime_has_not(tmp_path: Path) -> None:
    x, y = people()
    pipeline = fitted(make_pipeline(SimpleImputer(), network()), x[:, :2].astype(float), y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx", [("X", DoubleTensorType([None, 2]))]), Settings())
    assert model.preparation is not None
    with pytest.raises(ModelError, match=r"cannot run the model's preprocessing \(.*Imputer.*\); export it with float"):
        model.preparation.run(x[:, :2])


@pytest.mark.parametrize(("stored", "meant"), [(None, np.nan), (float("nan"), np.nan), ("", np.nan), ("NA", np.nan)])
def test_missing_text_is_what_the_encoder_calls_missing(tmp_path: Path, stored: object, meant: object) -> None:
    x, y = people()
    texts = x[:, 2:4].copy()
    texts[::7, 0] = meant
    pipeline = fitted(make_pipeline(OneHotEncoder(sparse_output=False), network()), texts, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx", [("X", StringTensorType([None, 2]))]), Settings())
    texts[::7, 0] = stored
    features, _ = prepared(model, texts)
    assert (features.argmax(1)[::7] == 3).all() and features[:, :4].sum() == len(x)


def test_text_imputed_by_the_file(tmp_path: Path) -> None:
    x, y = people()
    texts = x[:, 2:4].copy()
    texts[::7, 0] = ""
    imputer = SimpleImputer(strategy="constant", missing_values="", fill_value="none")
    pipeline = fitted(make_pipeline(columns((make_pipeline(imputer, OneHotEncoder()), [0, 1])), network()), texts, y)
    kinds = [(name, StringTensorType([None, 1])) for name in COLUMNS[2:4]]
    model = load_model(exported(pipeline, tmp_path / "m.onnx", kinds), Settings())
    assert model.preparation is not None
    expected = pipeline[:-1].transform(texts)
    texts[::7, 0] = None
    np.testing.assert_array_equal(model.preparation.run(texts), expected)


def refused(model: Model, x: np.ndarray, row: int, column: int, value: object) -> CellError:
    assert model.preparation is not None
    sick = x[:, : len(model.preparation.kinds)].copy()
    sick[row, column] = value
    with pytest.raises(CellError) as caught:
        model.preparation.run(sick)
    return caught.value


def test_values_that_the_file_does_not_take(tmp_path: Path) -> None:
    x, y = people()
    strict = load_model(exported(fitted(PIPELINES["strict"](), x, y), tmp_path / "m.onnx"), Settings())
    unknown = refused(strict, x, 5, 2, "Atlantis")
    assert str(unknown) == (
        "column 'city' has 'Atlantis' in sample 5 (counted from 0), which the model's preprocessing does not take "
        "(Unknown Category and zeros = 0); correct or remove such rows."
    )
    assert refused(strict, x, 250, 3, "x").row == 250
    assert str(refused(strict, x, 7, 1, "many")) == (
        "column 'income' has 'many' in sample 7 (counted from 0), but the model's input 'income' takes numbers; "
        "correct or remove such rows."
    )
    whole = make_pipeline(columns((OneHotEncoder(), [0])), network())
    kinds = [("children", Int64TensorType([None, 1]))]
    model = load_model(exported(fitted(whole, x[:, 4:], y), tmp_path / "w.onnx", kinds), Settings())
    for value, held in ((1.5, "1.5"), (None, "no value"), ("NA", "no value"), ("one", "'one'")):
        assert f"has {held} in sample 3 (counted from 0), but the model's input 'children' takes whole numbers" in str(
            refused(model, x[:, 4:], 3, 0, value)
        )


def test_a_prefix_that_fails_on_every_sample(tmp_path: Path) -> None:
    x, y = people()
    model = load_model(exported(fitted(PIPELINES["strict"](), x, y), tmp_path / "m.onnx"), Settings())
    assert model.preparation is not None
    wrong = x[:, :4].copy()
    wrong[:, 2] = "Atlantis"
    with pytest.raises(ModelError, match=r"cannot run the model's preprocessing .*check that the data are those that"):
        model.preparation.run(wrong)


def test_the_whole_file_is_what_the_parts_are_compared_with(tmp_path: Path) -> None:
    x, y = people()
    model = load_model(exported(fitted(PIPELINES["mixed"](), x, y), tmp_path / "m.onnx"), Settings())
    assert model.preparation is not None
    features = model.preparation.run(x[:, :4])
    other = x[::-1, :4]
    with pytest.raises(ModelError, match="the converted network and onnxruntime disagree by"):
        check_parity(model, features, other)


def test_columns_that_the_pipeline_drops_need_not_be_given(tmp_path: Path) -> None:
    x, y = people()
    pipeline = fitted(make_pipeline(columns((filled(), [1]), (OneHotEncoder(), [3])), network()), x, y)
    model = load_model(exported(pipeline, tmp_path / "m.onnx"), Settings())
    assert model.preparation is not None and model.preparation.names == ("income", "sex")
    prepared(model, x)


def test_a_forest_behind_its_encoder_is_still_refused(tmp_path: Path) -> None:
    x, y = people()
    encoder = ColumnTransformer([("city", OneHotEncoder(), [2])])
    forest = fitted(make_pipeline(encoder, RandomForestClassifier(3)), x, y)
    with pytest.raises(ModelError, match="made of decision trees"):
        load_model(exported(forest, tmp_path / "m.onnx"), Settings())


def test_text_that_goes_round_every_cut_is_refused(tmp_path: Path) -> None:
    """The scores depend on text by a step at the very end, so that no network is left behind it."""
    nodes = [
        helper.make_node(
            "LabelEncoder", ["word"], ["code"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0]
        ),
        helper.make_node("Binarizer", ["code"], ["scores"], domain="ai.onnx.ml", threshold=0.5),
    ]
    graph = helper.make_graph(
        nodes,
        "steps",
        [helper.make_tensor_value_info("word", TensorProto.STRING, ["n", 1])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"works on text or categories.*LabelEncoder"):
        load_model(tmp_path / "m.onnx", Settings())


class Towers(nn.Module):
    """A column each for two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(1, 3), nn.Linear(1, 3), nn.Linear(6, 2)

    def forward(self, age: Tensor, income: Tensor) -> Tensor:
        return self.head(torch.relu(torch.cat([self.left(age), self.right(income)], 1)))


class Ids(nn.Module):
    """A column each for two embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items, self.head = nn.Embedding(5, 3), nn.Embedding(5, 3), nn.Linear(6, 2)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.head(torch.relu(torch.cat([self.users(user)[:, 0], self.items(item)[:, 0]], 1)))


class Beside(nn.Module):
    """Columns that are put side by side, and then a network."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, age: Tensor, income: Tensor) -> Tensor:
        return self.head(torch.cat([age, income], 1))


@pytest.mark.parametrize("build", [Towers, Ids, Beside])
def test_layers_of_single_columns_are_no_preprocessing(build: type[nn.Module], tmp_path: Path) -> None:
    kind = torch.int64 if build is Ids else torch.float32
    x, names = torch.ones(4, 1, dtype=kind), ["user", "item"] if build is Ids else ["age", "income"]
    axes = {name: {0: "n"} for name in (*names, "scores")}
    with silent():
        torch.onnx.export(
            *(build(), (x, x), tmp_path / "m.onnx"),
            input_names=names,
            output_names=["scores"],
            dynamic_axes=axes,
            dynamo=False,
        )
    model = load_model(tmp_path / "m.onnx", Settings())
    assert (model.preparation is not None) == (build is Beside)
    if build is not Beside:
        assert [spec.name for spec in model.inputs] == names and len(model.ops) == 3
        draws = np.random.default_rng(0)
        for split in ("train", "test"):
            rows = draws.integers(0, 5, (20, 2))
            lines = [f"{a},{b},{k % 2}" for k, (a, b) in enumerate(rows)]
            (tmp_path / f"{split}.csv").write_text("\n".join([f"{names[1]},{names[0]},label", *lines]))
        found = audited(tmp_path / "m.onnx", tmp_path)
        assert found["model"]["input"]["name"] == ", ".join(names)
