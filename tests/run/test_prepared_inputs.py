"""Models that prepare their own inputs, audited on tables as they are: text, gaps, ids and other columns included."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from in_memory import audited
from pipelines import COLUMNS, PIPELINES, TRAINED, answers, exported, fitted, people, write_tables
from skl2onnx.common.data_types import FloatTensorType
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from tolerances import SINGLE
from torch.utils.data import TensorDataset

from audit import Report
from audit.data import Data, read_data
from audit.errors import DataError, UsageError
from audit.model import load_model
from audit.settings import Settings


@cache
def pipeline(name: str = "mixed") -> tuple[Pipeline, Path]:
    """A fitted pipeline and its file."""
    fit = fitted(PIPELINES[name](), *people())
    return fit, exported(fit, Path(mkdtemp()) / "model.onnx")


def read(root: Path, name: str = "mixed", **settings: object) -> Data:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    return read_data(root, chosen, preparation=load_model(pipeline(name)[1], chosen).preparation)


def refusal(root: Path, name: str = "mixed", **settings: object) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(root, name, **settings)
    text = str(caught.value)
    assert text.endswith(".") and "\n" not in text
    return text.removeprefix(f"{root}/")


def test_the_table_becomes_the_features_of_the_pipeline(tmp_path: Path) -> None:
    x, y = people()
    data = read(write_tables(tmp_path, x, y))
    np.testing.assert_allclose(data.train.x, pipeline()[0][:-1].transform(x[:TRAINED]), atol=SINGLE)
    np.testing.assert_allclose(data.test.x, pipeline()[0][:-1].transform(x[TRAINED:]), atol=SINGLE)
    assert data.features == ("age", "income", "city=Bonn", "city=Oslo", "city=Rome", "sex=f", "sex=m")
    assert "The model takes the columns age, income, city, sex." in data.notes
    assert "Columns that the model does not take were not used: id, children." in data.notes
    assert data.raw is not None and data.raw[0].shape == (64, 4)


def test_columns_in_another_order_under_another_spelling_and_in_parquet(tmp_path: Path) -> None:
    x, y = people()
    expected = read(write_tables(tmp_path / "csv", x, y))
    (tmp_path / "parquet").mkdir()
    for split, part in (("train", slice(0, TRAINED)), ("test", slice(TRAINED, None))):
        names = ("Age", "INCOME", "city", "Sex", "children")
        columns = {name: x[part, place].tolist() for place, name in enumerate(names)}
        ages = pyarrow.array(columns.pop("Age"), from_pandas=True)
        table = pyarrow.table({"label": y[part], **dict(reversed(columns.items())), "Age": ages})
        pyarrow.parquet.write_table(table, tmp_path / "parquet" / f"{split}.parquet")
    data = read(tmp_path / "parquet")
    np.testing.assert_array_equal(data.train.x, expected.train.x)
    assert data.features == ("Age", "INCOME", "city=Bonn", "city=Oslo", "city=Rome", "Sex=f", "Sex=m")


def test_text_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Postcodes such as 01 are text, though every one of them looks like a number."""
    x, y = people()
    codes = x.copy()
    codes[:, 2] = np.array(["01", "2", "03"])[np.arange(len(x)) % 3]
    fit = fitted(PIPELINES["strict"](), codes, y)
    preparation = load_model(exported(fit, tmp_path / "m.onnx"), Settings()).preparation
    data = read_data(write_tables(tmp_path / "data", codes, y), Settings(), preparation=preparation)
    np.testing.assert_array_equal(data.train.x[:, 2:5], np.eye(3)[[0, 2, 1]][np.arange(TRAINED) % 3])


def test_a_missing_column(tmp_path: Path) -> None:
    x, y = people()
    write_tables(tmp_path, x, y, ("age", "income", "town", "sex", "children"))
    assert refusal(tmp_path) == (
        "train.csv: has no column 'city', which the model takes; its columns are id, age, income, town, sex, children, "
        "label."
    )
    write_tables(tmp_path, x, y)
    (tmp_path / "test.csv").write_text("age,income,label\n1,2,0\n3,4,1\n")
    assert refusal(tmp_path) == (
        "test.csv: has no columns 'city', 'sex', which the model takes; its columns are age, income, label."
    )
    (tmp_path / "test.csv").write_text("age,income,city,sex\n1,2,Oslo,f\n3,4,Rome,m\n")
    assert refusal(tmp_path) == (
        "test.csv: has no column 'label', which is train's label; its columns are age, income, city, sex."
    )


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        (1, "much", "has 'much' in row 4 (counted from 1), but the model's input 'income' takes numbers; correct or"),
        (2, "Atlantis", "has 'Atlantis' in row 4 (counted from 1), which the model's preprocessing does not take (Unk"),
    ],
)
def test_values_that_the_model_does_not_take(tmp_path: Path, column: int, value: str, sentence: str) -> None:
    x, y = people()
    sick = x.copy()
    sick[TRAINED + 3, column] = value
    assert refusal(write_tables(tmp_path, sick, y), "strict").startswith(
        f"test.csv: column {COLUMNS[column]!r} {sentence}"
    )


def test_a_number_that_stays_missing(tmp_path: Path) -> None:
    x, y = people()
    sick = x.copy()
    sick[5, 1] = np.nan
    assert refusal(write_tables(tmp_path, sick, y), "numbers") == (
        "train.csv: train sample 5 (counted from 0), column 'income', is NaN or infinite; correct or remove it."
    )


def test_what_would_change_the_samples_is_left_to_the_model(tmp_path: Path) -> None:
    root = write_tables(tmp_path, *people())
    assert refusal(root, scale=0.5) == "--scale: the model file prepares its inputs itself; leave it out."
    assert refusal(root, mean=(1.0,)).startswith("--mean: ")


def test_a_matrix_takes_all_columns_that_are_not_dropped(tmp_path: Path) -> None:
    x, y = people()
    fit = fitted(make_pipeline(SimpleImputer(), PIPELINES["mixed"]()[-1]), x[:, :2].astype(float), y)
    preparation = load_model(
        exported(fit, tmp_path / "m.onnx", [("X", FloatTensorType([None, 2]))]), Settings()
    ).preparation
    root = write_tables(tmp_path / "data", x, y)
    with pytest.raises(DataError) as caught:
        read_data(root, Settings(), preparation=preparation)
    assert str(caught.value) == (
        f"{root}/train.csv: has 6 columns beside the label, id, age, income, city, sex, children, but the model takes "
        "2; leave out what is no feature with --drop NAME."
    )
    data = read_data(root, Settings(drop=("id,city,sex", "children")), preparation=preparation)
    assert data.features == ("age", "income") and np.isfinite(data.train.x).all()


@cache
def report() -> Report:
    root = Path(mkdtemp())
    return audited(pipeline()[1], str(write_tables(root, *people())))


def test_the_whole_audit_answers_as_the_pipeline() -> None:
    x, y = people()
    fit = pipeline()[0]
    assert report().gap.test_error == pytest.approx(1 - fit.score(x[TRAINED:], y[TRAINED:]))
    probabilities = answers(fit, x[TRAINED:])[np.arange(len(x) - TRAINED), y[TRAINED:]]
    assert report().gap.test_loss == pytest.approx(-np.log(probabilities).mean(), abs=SINGLE)
    parity = report().model.parity
    assert parity is not None and parity.samples == 64 and parity.max_abs_diff < SINGLE


def test_copies_are_found_among_the_prepared_features(tmp_path: Path) -> None:
    """The same person twice, though the one table says NA and the other nothing where the age is missing."""
    x, y = people()
    copied, labels = x.copy(), y.copy()
    copied[TRAINED + 1], labels[TRAINED + 1] = x[17], y[17]
    copied[TRAINED + 1, 0] = "NA"
    found = audited(pipeline()[1], str(write_tables(tmp_path, copied, labels)))
    assert found.hygiene is not None
    assert [(twin.train, twin.test) for twin in found.hygiene.duplicate_pairs] == [(17, 1)]


@pytest.mark.parametrize("name", ["mixed", "logistic", "regression"])
def test_a_pipeline_in_memory_is_audited_behind_its_steps(name: str) -> None:
    x, y = people()
    fit = pipeline(name)[0]
    found = audited(
        fit, (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:]), task="auto" if name != "regression" else name
    )
    assert found.data.notes[0] == "Samples were transformed by the pipeline's own ColumnTransformer."
    outcome = fit.predict(x[TRAINED:])
    if name == "regression":
        assert found.gap.test_loss == pytest.approx(((outcome - y[TRAINED:]) ** 2).mean() / 2, rel=SINGLE)
    else:
        assert found.gap.test_error == pytest.approx((outcome != y[TRAINED:]).mean())


def test_a_pipeline_and_its_file_give_the_same_numbers() -> None:
    x, y = people()
    found = audited(pipeline()[0], (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:]))
    for path in ("gap.test_loss", "gap.train_loss", "network.flatness.trace_sum"):
        assert _at(found, path) == pytest.approx(_at(report(), path), rel=SINGLE), path


def _at(found: Report, path: str) -> float:
    value = json.loads(found.to_json())
    for key in path.split("."):
        value = value[key]
    return float(value)


def test_the_pipeline_that_a_search_has_found() -> None:
    x, y = people()
    search = fitted(GridSearchCV(PIPELINES["logistic"](), {"logisticregression__C": [0.1, 1.0]}, cv=2), x, y)  # type: ignore[arg-type]
    found = audited(search, (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:]))
    assert found.gap.test_error == pytest.approx((search.predict(x[TRAINED:]) != y[TRAINED:]).mean())


def test_samples_that_the_pipeline_cannot_transform() -> None:
    x, y = people()
    with pytest.raises(
        DataError, match=r"^test: the pipeline cannot transform these samples \(.*\); give them as it was"
    ):
        audited(pipeline()[0], (x[:TRAINED], y[:TRAINED]), (x[TRAINED:, :2], y[TRAINED:]))


def test_a_file_that_prepares_its_inputs_takes_tables_in_memory() -> None:
    x, y = people()
    found = audited(pipeline()[1], (x[:TRAINED, :4], y[:TRAINED]), (x[TRAINED:, :4], y[TRAINED:]))
    assert found.gap.test_loss == pytest.approx(report().gap.test_loss, rel=SINGLE)
    named = [dict(zip(COLUMNS, part.T, strict=True)) for part in (x[:TRAINED], x[TRAINED:])]
    by_name = audited(pipeline()[1], (named[0], y[:TRAINED]), (named[1], y[TRAINED:]))
    assert by_name.gap.test_loss == found.gap.test_loss
    del named[1]["city"]
    with pytest.raises(DataError, match=r"^test: has no column 'city', which the model takes; add it\.$"):
        audited(pipeline()[1], (named[0], y[:TRAINED]), (named[1], y[TRAINED:]))
    with pytest.raises(
        DataError, match=r"train: samples have shape \(5,\) but the model takes 4 columns; give them as a"
    ):
        audited(pipeline()[1], (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:]))
    with pytest.raises(
        DataError, match=r"^train: the model prepares its inputs itself; give a pair \(x, y\) of a table"
    ):
        audited(pipeline()[1], TensorDataset(), TensorDataset())
    with pytest.raises(UsageError, match=r"^drop: samples in memory are taken as they are given; leave the column out"):
        audited(pipeline()[1], (x, y), (x, y), drop=("id",))
