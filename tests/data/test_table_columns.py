"""Tables: which column is the label, which are features, and what no model can be fed with."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from audit.data import read_data
from audit.errors import DataError, UsageError
from audit.settings import Settings

ROWS = "1,2,a\n3,4,b\n5,6,a\n"


def tables(root: Path, train: str | bytes, test: str | bytes | None = None, suffix: str = "csv") -> Path:
    for split, text in (("train", train), ("test", train if test is None else test)):
        content = text.encode() if isinstance(text, str) else text
        (root / f"{split}.{suffix}").write_bytes(content)
    return root


def parquets(root: Path, **columns: object) -> Path:
    for split in ("train", "test"):
        pyarrow.parquet.write_table(pyarrow.table(columns), root / f"{split}.parquet")
    return root


def refusal(root: Path, label: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read_data(root, Settings(label=label))
    text = str(caught.value)
    assert text.endswith(".") and "\n" not in text
    assert text.startswith(f"{root}/")
    return text.removeprefix(f"{root}/")


@pytest.mark.parametrize("label", ["label", "target", "y", "class", "Label", "Y"])
def test_the_label_column_is_found(tmp_path: Path, label: str) -> None:
    data = read_data(tables(tmp_path, f"f,{label},g\n1,a,2\n3,b,4\n"), Settings())
    assert (data.label, data.features, data.classes) == (label, ("f", "g"), ("a", "b"))
    assert data.train.x.tolist() == [[1, 2], [3, 4]]
    assert data.train.y.tolist() == [0, 1]
    assert f"Features are the 2 columns beside {label!r}, in the order of train.csv." in data.notes


def test_the_label_column_is_chosen(tmp_path: Path) -> None:
    data = read_data(tables(tmp_path, "f,y,kind\n1,2,a\n3,4,b\n"), Settings(label="kind"))
    assert (data.label, data.features) == ("kind", ("f", "y"))


def test_several_targets(tmp_path: Path) -> None:
    data = read_data(tables(tmp_path, "f,u,v\n1,2,0.5\n3,4,1.5\n"), Settings(label="v, u"))
    assert (data.label, data.features, data.classes) == ("v,u", ("f",), None)
    assert data.train.y.tolist() == [[0.5, 2.0], [1.5, 4.0]]


def test_no_label_column(tmp_path: Path) -> None:
    tables(tmp_path, "f,g,h\n" + ROWS)
    assert refusal(tmp_path) == (
        "train.csv: no column is called label, target, y or class; choose with --label NAME among f, g, h."
    )
    assert refusal(tmp_path, "k") == "train.csv: has no column 'k' to use as label; its columns are f, g, h."


def test_of_many_columns_the_first_and_the_last_are_named(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(30)]
    tables(tmp_path, ",".join(names) + "\n" + 2 * (",".join("1" * 30) + "\n"))
    assert refusal(tmp_path).endswith(
        "choose with --label NAME among f0, f1, f2, f3, f4, f5, … (18 more), f24, f25, f26, f27, f28, f29."
    )


def test_two_label_columns(tmp_path: Path) -> None:
    tables(tmp_path, "f,y,label\n" + ROWS)
    assert refusal(tmp_path) == (
        "train.csv: both y and label could be the label; choose with --label NAME among f, y, label."
    )


def test_nothing_but_the_label(tmp_path: Path) -> None:
    assert (
        refusal(tables(tmp_path, "y\n1\n2\n"))
        == "train.csv: has no column beside the label y; add the feature columns."
    )


def test_one_word_among_numbers_is_a_slip_and_shown(tmp_path: Path) -> None:
    assert refusal(tables(tmp_path, "age,y\n1,0\nthree,1\n2,1\n")) == (
        "train.csv: column 'age' is not numeric; correct 'three' in row 2 (counted from 1), or encode the column as "
        "numbers."
    )


def test_text_columns_are_named(tmp_path: Path) -> None:
    tables(tmp_path, "city,age,job,y\nRome,1,cook,0\nOslo,2,poet,1\n")
    assert refusal(tmp_path) == (
        "train.csv: columns 'city', 'job' are not numeric; encode as numbers the way the model was trained, or "
        "leave out what is no feature with --drop NAME."
    )
    parquets(tmp_path, day=[date(2020, 1, 1)] * 2, y=[0, 1])
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").unlink()
    assert "train.parquet: column 'day' is not numeric" in refusal(tmp_path)


@pytest.mark.parametrize("gap", ["", "NA", "nan", "NaN"])
def test_missing_values_are_placed(tmp_path: Path, gap: str) -> None:
    tables(tmp_path, f"f,g,y\n1,2,0\n3,{gap},1\n5,6,1\n")
    assert refusal(tmp_path) == (
        "train.csv: column 'g' has no value in row 2 (counted from 1); fill or remove such rows as was "
        "done for training."
    )


@pytest.mark.parametrize("labels", ["0\n,\n1", "a\n,\nb"])
def test_missing_labels_are_placed(tmp_path: Path, labels: str) -> None:
    first, last = labels.split("\n,\n")
    tables(tmp_path, f"f,y\n1,{first}\n3,\n5,{last}\n")
    assert "train.csv: column 'y' has no value in row 2" in refusal(tmp_path)


def test_an_empty_column_is_missing_values(tmp_path: Path) -> None:
    assert "column 'g' has no value in row 1" in refusal(tables(tmp_path, "f,g,y\n1,,0\n2,,1\n"))


def test_yes_and_no_become_one_and_zero(tmp_path: Path) -> None:
    data = read_data(tables(tmp_path, "f,y\ntrue,false\nfalse,true\n"), Settings())
    assert data.train.x.tolist() == [[1.0], [0.0]]
    assert data.train.y.tolist() == [0, 1]
    assert data.classes is None


def test_parquet_types(tmp_path: Path) -> None:
    kinds = pyarrow.array(["b", "a", "b"]).dictionary_encode()
    price = pyarrow.array([Decimal("1.5"), Decimal("2.25"), Decimal("0.1")])
    data = read_data(parquets(tmp_path, price=price, n=np.array([1, 2, 3], np.uint8), label=kinds), Settings())
    assert data.train.x.tolist() == [[1.5, 1.0], [2.25, 2.0], [0.1, 3.0]]
    assert (data.train.y.tolist(), data.classes) == ([1, 0, 1], ("a", "b"))


def test_labels_of_an_odd_type(tmp_path: Path) -> None:
    parquets(tmp_path, f=[1, 2], y=[date(2020, 1, 1)] * 2)
    assert refusal(tmp_path) == (
        "train.parquet: label column 'y' holds date32[day] values; labels are class names or numbers."
    )


def test_columns_in_another_order_are_put_right(tmp_path: Path) -> None:
    tables(tmp_path, "f,g,y\n1,2,0\n3,4,1\n", "y,g,f\n0,20,10\n1,40,30\n")
    data = read_data(tmp_path, Settings())
    assert data.test.x.tolist() == [[10, 20], [30, 40]]
    assert "The columns of test.csv were put in the order of train.csv." in data.notes


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("f,y\n1,0\n2,1\n", "test.csv: lacks 'g' compared with train.csv; both tables need the same columns."),
        ("f,g\n1,0\n2,1\n", "test.csv: lacks 'y' compared with train.csv; both tables need the same columns."),
        (
            "f,h,y\n1,2,0\n2,3,1\n",
            "test.csv: lacks 'g' and adds 'h' compared with train.csv; both tables need the same columns.",
        ),
    ],
)
def test_columns_that_differ(tmp_path: Path, test: str, words: str) -> None:
    assert refusal(tables(tmp_path, "f,g,y\n1,2,0\n3,4,1\n", test)) == words


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_a_pandas_index_is_left_out(tmp_path: Path, name: str) -> None:
    data = read_data(tables(tmp_path, f"{name},f,y\n7,1,0\n3,2,1\n"), Settings())
    assert data.features == ("f",)
    assert f"The unnamed index column {name!r} was left out." in data.notes


def test_an_unnamed_column_that_is_no_index(tmp_path: Path) -> None:
    text = refusal(tables(tmp_path, ",f,y\n0.5,1,0\n0.7,2,1\n"))
    assert text == "train.csv: has a column without a name; name it, or remove it."


def test_ragged_rows(tmp_path: Path) -> None:
    text = refusal(tables(tmp_path, "f,g,y\n1,2,0\n3,4\n5,6,1\n"))
    assert text.startswith("train.csv: cannot be read as csv (CSV parse error: Row #3: Expected 3 columns, got 2")
    assert text.endswith("; correct that row, or write the file again.")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    tables(tmp_path, "f,y\n1,café\n2,thé\n".encode("latin-1"))
    assert refusal(tmp_path) == "train.csv: column 'y' is not UTF-8 text; save the file again in UTF-8."
    tables(tmp_path, "é,y\n1,2\n".encode("latin-1"))
    assert refusal(tmp_path) == "train.csv: is not UTF-8 text; save it again in UTF-8."


def test_no_header(tmp_path: Path) -> None:
    text = refusal(tables(tmp_path, "5.1,3.5,0\n4.9,3.0,1\n"))
    assert text == "train.csv: its first row is numbers (5.1, …); add a header row that names the columns."


def test_a_header_and_nothing_else(tmp_path: Path) -> None:
    assert refusal(tables(tmp_path, "f,y\n")) == "train.csv: has no rows below its header; add samples."


def test_a_column_named_twice(tmp_path: Path) -> None:
    text = refusal(tables(tmp_path, "f,f,y\n" + ROWS))
    assert text == "train.csv: has more than one column called 'f'; give each column its own name."


def test_semicolons_and_a_byte_order_mark(tmp_path: Path) -> None:
    data = read_data(tables(tmp_path, "\ufefff;g;y\n1;2;0\n3;4;1\n"), Settings())
    assert data.features == ("f", "g")
    assert "Columns are separated by semicolons." in data.notes


def test_two_tables_for_one_split(tmp_path: Path) -> None:
    tables(tmp_path, "f,y\n1,0\n2,1\n")
    (tmp_path / "training.csv").write_text("f,y\n1,0\n2,1\n")
    with pytest.raises(DataError) as error:
        read_data(tmp_path, Settings())
    assert str(error.value) == f"{tmp_path}: train.csv and training.csv both claim the train split; keep one of them."


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("drop", [("id", "note, as text"), ("note, as text", "id", "id")])
def test_columns_that_are_no_features_are_dropped(tmp_path: Path, suffix: str, drop: tuple[str, ...]) -> None:
    columns = {"id": ["a7", "b8"], "f": [1.0, 3.0], "note, as text": ["x", "y"], "g": [2.0, 4.0], "y": [0, 1]}
    if suffix == "csv":
        tables(tmp_path, 'id,f,"note, as text",g,y\na7,1,x,2,0\nb8,3,y,4,1\n')
    else:
        parquets(tmp_path, **columns)
    data = read_data(tmp_path, Settings(drop=drop))
    assert data.features == ("f", "g")
    assert data.train.x.tolist() == [[1, 2], [3, 4]]
    assert "The column 'id' was dropped (--drop)." in data.notes


def test_several_columns_are_dropped_by_one_flag_and_test_may_lack_them(tmp_path: Path) -> None:
    tables(tmp_path, "id,f,day,y\n1,2,3,a\n4,5,6,b\n", "f,y\n5,b\n2,a\n")
    assert read_data(tmp_path, Settings(drop=("id, day",))).features == ("f",)


def test_an_unknown_column_to_drop(tmp_path: Path) -> None:
    tables(tmp_path, "f,g,y\n" + ROWS)
    with pytest.raises(DataError, match=r"train.csv: has no column 'id' to drop; its columns are f, g, y\.$"):
        read_data(tmp_path, Settings(drop=("id",)))


def test_nothing_to_drop_where_there_are_no_columns(tmp_path: Path) -> None:
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", x=np.eye(2), y=np.arange(2))
    with pytest.raises(UsageError, match=r"^--drop: the npz data of .* have no columns; leave it out\.$"):
        read_data(tmp_path, Settings(drop=("id",)))
