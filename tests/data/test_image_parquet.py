"""Images in parquet files as Hugging Face's data sets have them: the same pixels and sentences as an image folder's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from folders import image_table, write_both, write_image_parquet, write_images

from audit.data import read_data
from audit.errors import DataError
from audit.settings import Settings

NAMES = ("plane", "car", "bird")
ALL = Settings(samples=0)
X = np.random.default_rng(0).integers(0, 256, (150, 6, 5, 3), dtype=np.uint8)
Y = np.arange(150) % 3


def write(root: Path, x: np.ndarray = X, y: np.ndarray = Y, **columns: object) -> Path:
    """Train and test in `data/`, one file each."""
    (root / "data").mkdir()
    for split, part in (("train", slice(0, 100)), ("test", slice(100, 150))):
        table = image_table(x[part], y[part], NAMES)
        for name, values in columns.items():
            table = table.append_column(name, pyarrow.array(values[part]))  # type: ignore[index]
        pyarrow.parquet.write_table(table, root / "data" / f"{split}-00000-of-00001.parquet", row_group_size=40)
    return root


def refusal(root: Path, **settings: object) -> str:
    with pytest.raises(DataError) as caught:
        read_data(root, Settings(**settings))  # type: ignore[arg-type]
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{root}/")


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_parts_of_a_split_are_one_split_in_order(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = X if len(shape) == 3 else X[..., 0]
    data = read_data(write_both(tmp_path, write_image_parquet, x, Y, 50), ALL)
    assert (data.layout, data.axes, data.label, data.classes) == ("image-parquet", "hwc"[: len(shape)], "label", None)
    np.testing.assert_array_equal(data.train.x, x[:100])
    np.testing.assert_array_equal(data.train.y, Y[:100])
    np.testing.assert_array_equal(data.test.x, x[100:])
    capped = read_data(tmp_path, Settings(samples=70))
    np.testing.assert_array_equal(capped.train.x, x[capped.train.index])
    assert capped.train.total == 100


def test_class_names_come_from_the_metadata(tmp_path: Path) -> None:
    data = read_data(write(tmp_path, id=np.arange(150)), ALL)
    assert data.classes == NAMES
    np.testing.assert_array_equal(data.test.y, Y[100:])
    assert "Images are the column 'image' and labels 'label'; other columns were not used." in data.notes


def test_a_column_img_and_labels_in_words(tmp_path: Path) -> None:
    for split, part in (("train", slice(0, 100)), ("validation", slice(100, 150))):
        table = image_table(X[part], np.array(NAMES)[Y[part]], image="img", label="kind")
        pyarrow.parquet.write_table(table, tmp_path / f"{split}.parquet")
    data = read_data(tmp_path, Settings(samples=0, label="kind"))
    assert data.classes == ("bird", "car", "plane")  # sorted, as nothing else says their order
    assert "There is no test split; the validation split takes its place." in data.notes


@pytest.mark.parametrize("options", [{"resize": (4,)}, {"channels": "gray"}, {"channels": "bgr"}])
def test_the_options_of_image_folders(tmp_path: Path, options: dict[str, object]) -> None:
    settings = Settings(samples=0, **options)  # type: ignore[arg-type]
    (tmp_path / "folder").mkdir()
    order = np.argsort(Y[:100], kind="stable")
    theirs = read_data(write_both(tmp_path / "folder", write_images, X, Y, 50), settings)
    (tmp_path / "hub").mkdir()
    ours = read_data(write(tmp_path / "hub"), settings)
    np.testing.assert_array_equal(ours.train.x[order], theirs.train.x)
    assert ours.axes == theirs.axes


def test_a_label_that_must_be_chosen(tmp_path: Path) -> None:
    for split in ("train", "test"):
        table = image_table(X[:6], Y[:6], label="fine_label").append_column("coarse_label", pyarrow.array(Y[:6] // 2))
        pyarrow.parquet.write_table(table, tmp_path / f"{split}-00000-of-00001.parquet")
    assert refusal(tmp_path) == (
        "train-00000-of-00001.parquet: no column is called label, target, y or class; choose with --label NAME among "
        "fine_label, coarse_label."
    )
    assert read_data(tmp_path, Settings(label="coarse_label")).train.y.tolist() == (Y[:6] // 2).tolist()


def test_two_image_columns(tmp_path: Path) -> None:
    table = image_table(X[:6], Y[:6])
    table = table.append_column("mask", table.column("image"))
    for split in ("train", "test"):
        pyarrow.parquet.write_table(table, tmp_path / f"{split}.parquet")
    assert refusal(tmp_path) == (
        "train.parquet: has the image columns image, mask; leave one, and the others out with --drop."
    )
    np.testing.assert_array_equal(read_data(tmp_path, Settings(drop=("mask",))).train.x, X[:6])
    assert "has no column 'masks' to drop; its columns are image, label, mask." in refusal(tmp_path, drop=("masks",))


def test_a_part_that_was_not_downloaded(tmp_path: Path) -> None:
    write_both(tmp_path, write_image_parquet, X, Y)
    (tmp_path / "train-00001-of-00002.parquet").unlink()
    assert refusal(tmp_path.parent / tmp_path.name) == (
        f"{tmp_path}: train-00001-of-00002.parquet is missing beside train-00000-of-00002.parquet; download all of its "
        "parts."
    )


def test_a_split_without_labels(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, y=np.where(np.arange(150) < 100, Y, -1))) == (
        "data/test-00000-of-00001.parquet: the label of row 1 (counted from 1) is -1, but the 3 classes go from 0 on "
        "(-1 marks a split without labels); give labelled samples."
    )


def replaced(root: Path, value: dict[str, object] | None) -> None:
    """The train file with another image in its third row."""
    file = root / "data" / "train-00000-of-00001.parquet"
    table = pyarrow.parquet.read_table(file)
    images = table.column("image").to_pylist()
    images[2] = value
    kind = table.schema.field("image").type
    pyarrow.parquet.write_table(table.set_column(0, "image", pyarrow.array(images, kind)), file)


def test_images_that_cannot_be_decoded(tmp_path: Path) -> None:
    where = "data/train-00000-of-00001.parquet, row 3 (counted from 1)"
    replaced(write(tmp_path), {"bytes": b"no image", "path": None})
    assert refusal(tmp_path) == (
        f"{where}: cannot be decoded as an image (cannot identify image file); replace or remove it."
    )
    replaced(tmp_path, {"bytes": None, "path": "cats/3.png"})
    assert refusal(tmp_path) == (
        f"{where}: holds no image bytes, only the path 'cats/3.png'; write the data set again with its images embedded."
    )
    replaced(tmp_path, None)
    assert "holds no image bytes, nothing; write" in refusal(tmp_path)


def test_images_of_several_sizes(tmp_path: Path) -> None:
    table = image_table(X[:2, :, :4], Y[:2], NAMES)
    replaced(write(tmp_path), table.column("image")[0].as_py())
    assert refusal(tmp_path) == (
        f"data/train-00000-of-00001.parquet, row 3 (counted from 1): is 6×4 pixels but {tmp_path}/data/"
        "train-00000-of-00001.parquet, row 1 (counted from 1) is 6×5; give them one size with --resize HEIGHT,WIDTH."
    )
