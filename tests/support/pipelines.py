"""scikit-learn pipelines with preprocessing, as people export them, on one table of text, numbers and gaps."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)

PEOPLE, TRAINED = 300, 200
COLUMNS = ("age", "income", "city", "sex", "children")
KINDS = (FloatTensorType, FloatTensorType, StringTensorType, StringTensorType, Int64TensorType)


@cache
def people() -> tuple[np.ndarray, np.ndarray]:
    """A table [n, 5] of objects, some ages missing, and who is of which class."""
    draws = np.random.default_rng(0)
    x = np.empty((PEOPLE, len(COLUMNS)), object)
    x[:, 0] = draws.normal(40, 10, PEOPLE)
    x[::17, 0] = np.nan
    x[:, 1] = draws.normal(size=PEOPLE)
    x[:, 2] = draws.choice(["Rome", "Oslo", "Bonn"], PEOPLE)
    x[:, 3] = draws.choice(["f", "m"], PEOPLE)
    x[:, 4] = draws.integers(0, 4, PEOPLE)
    return x, (x[:, 1].astype(float) + (x[:, 2] == "Oslo") + draws.normal(0, 0.3, PEOPLE) > 0.3).astype(int)


def network() -> MLPClassifier:
    return MLPClassifier((8,), max_iter=60, random_state=0)


def filled() -> Pipeline:
    return make_pipeline(SimpleImputer(), StandardScaler())


def columns(*steps: tuple[Any, list[int]]) -> ColumnTransformer:
    named = [(f"step{place}", step, list(chosen)) for place, (step, chosen) in enumerate(steps)]
    return ColumnTransformer(named, sparse_threshold=0)


def kbins() -> KBinsDiscretizer:
    return KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf")


MIXED = ((filled(), [0, 1]), (OneHotEncoder(handle_unknown="ignore"), [2, 3]))
PIPELINES: dict[str, Callable[[], Pipeline]] = {
    "mixed": lambda: make_pipeline(columns(*MIXED), network()),
    "strict": lambda: make_pipeline(columns((filled(), [0, 1]), (OneHotEncoder(), [2, 3])), network()),
    "whole numbers": lambda: make_pipeline(columns((OneHotEncoder(), [4]), (StandardScaler(), [1])), network()),
    "ordinal": lambda: make_pipeline(
        columns(
            (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), [2]),
            (Binarizer(threshold=0.5), [1]),
            (kbins(), [1]),
        ),
        StandardScaler(),
        network(),
    ),
    "targets": lambda: make_pipeline(columns((TargetEncoder(random_state=0), [2, 3]), (filled(), [0])), network()),
    "projected": lambda: make_pipeline(columns(*MIXED), PCA(4), network()),
    "numbers": lambda: make_pipeline(columns((StandardScaler(), [1]), ("passthrough", [4])), network()),
    "logistic": lambda: make_pipeline(columns(*MIXED), LogisticRegression()),
    "regression": lambda: make_pipeline(
        columns(*MIXED), MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=0)
    ),
    "ridge": lambda: make_pipeline(columns(*MIXED), Ridge()),
}
MATRICES: dict[str, Callable[[], Pipeline]] = {
    "imputed": lambda: make_pipeline(SimpleImputer(), StandardScaler(), network()),
    "powers": lambda: make_pipeline(SimpleImputer(), PolynomialFeatures(2), StandardScaler(), network()),
    "quantiles": lambda: make_pipeline(SimpleImputer(), QuantileTransformer(n_quantiles=10), network()),
}
"""Pipelines that take the first two columns as one matrix."""


def fitted(pipeline: Pipeline, x: np.ndarray, y: np.ndarray) -> Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they need not converge
        return pipeline.fit(x[:TRAINED], y[:TRAINED])


def answers(pipeline: Pipeline, x: np.ndarray) -> np.ndarray:
    answer = pipeline.predict_proba(x) if hasattr(pipeline, "predict_proba") else pipeline.predict(x)
    return np.asarray(answer).reshape(len(x), -1)


def exported(pipeline: Pipeline, path: Path, types: list[tuple[str, Any]] | None = None) -> Path:
    """One input for each column of the table, unless other types are given."""
    own = [(name, kind([None, 1])) for name, kind in zip(COLUMNS, KINDS, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(to_onnx(pipeline, initial_types=types or own).SerializeToString())
    return path


def write_tables(root: Path, x: np.ndarray, y: np.ndarray, names: tuple[str, ...] = COLUMNS) -> Path:
    """The table as CSV, an id and the label beside it, gaps as empty cells."""
    root.mkdir(exist_ok=True)
    for split, part in (("train", slice(0, TRAINED)), ("test", slice(TRAINED, None))):
        with (root / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *names, "label"])
            for place, (row, label) in enumerate(zip(x[part], y[part], strict=True)):
                writer.writerow([f"p{place}", *("" if value != value else value for value in row), label])
    return root
