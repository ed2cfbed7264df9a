"""Every layout: what was written is what is read, and the report says how."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import folders
import numpy as np
import pytest
import torch
from folders import blobs, pictures, write_both
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.data import data_sha256, read_data
from audit.errors import DataError
from audit.settings import Settings

ALL = Settings(samples=0)
ARRAYS = {
    "npz": folders.write_npz,
    "npy": folders.write_npy,
    "pt": folders.write_pt,
    "safetensors": folders.write_safetensors,
}
TABLES = {"csv": folders.write_csv, "tsv": folders.write_tsv, "parquet": folders.write_parquet}


def assert_same(root: Path, x: np.ndarray, y: np.ndarray, held: int, layout: str) -> None:
    data = read_data(root, ALL)
    assert data.layout == layout
    assert data_sha256(root, ALL) == data.sha256
    np.testing.assert_array_equal(data.train.x, x[:-held])
    np.testing.assert_array_equal(data.test.x, x[-held:])
    np.testing.assert_array_equal(data.train.y, y[:-held])
    np.testing.assert_array_equal(data.test.y, y[-held:])
    assert data.train.x.dtype == x.dtype
    assert (data.train.total, data.test.total) == (len(x) - held, held)
    np.testing.assert_array_equal(data.train.index, np.arange(len(x) - held))


@pytest.mark.parametrize("layout", ARRAYS)
@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dtype=st.sampled_from(["float32", "float64", "float16", "uint8", "int64"]),
    n=st.integers(5, 9),
    seed=st.integers(0, 99),
)
def test_arrays_come_back_as_written(layout: str, shape: list[int], dtype: str, n: int, seed: int) -> None:
    x = (np.random.default_rng(seed).normal(size=(n, *shape)) * 50).clip(0).astype(dtype)
    y = np.arange(n) % 2
    with tempfile.TemporaryDirectory() as root:
        assert_same(write_both(Path(root), ARRAYS[layout], x, y, 2), x, y, 2, layout)


@pytest.mark.parametrize("layout", TABLES)
@settings(max_examples=12, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=12, max_size=12),
    labels=st.lists(st.integers(-5, 5), min_size=6, max_size=6),
)
def test_tables_keep_every_digit(layout: str, values: list[float], labels: list[int]) -> None:
    x, y = np.array(values).reshape(6, 2), np.array(labels)
    with tempfile.TemporaryDirectory() as root:
        assert_same(write_both(Path(root), TABLES[layout], x, y, 2), x, y, 2, layout)


def test_gzipped_tables_are_csv(tmp_path: Path) -> None:
    x, y = blobs()
    assert_same(write_both(tmp_path, folders.write_csv_gz, x, y, 10), x, y, 10, "csv")


@pytest.mark.parametrize("write", [folders.write_idx, folders.write_idx_gz])
def test_idx_comes_back_as_written(tmp_path: Path, write: folders.Write) -> None:
    x, y = pictures()
    assert_same(write_both(tmp_path, write, x, y, 6), x, y, 6, "idx")
    assert read_data(tmp_path, ALL).axes == "hw"


def test_unpacked_idx_beside_its_archive_is_read_once(tmp_path: Path) -> None:
    x, y = pictures()
    write_both(tmp_path, lambda *a: folders.write_idx(*a, gz=True), x, y, 6)
    write_both(tmp_path, folders.write_idx, x, y, 6)
    assert_same(tmp_path, x, y, 6, "idx")


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_images_come_back_as_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x, y = pictures(shape=shape)
    order = np.concatenate([np.argsort(y[:-6], kind="stable"), 18 + np.argsort(y[-6:], kind="stable")])
    write_both(tmp_path, folders.write_images, x, y, 6)
    assert_same(tmp_path, x[order], y[order], 6, "images")
    assert read_data(tmp_path, ALL).axes == ("hw" if len(shape) == 2 else "hwc")
    assert read_data(tmp_path, ALL).classes == ("0", "1", "2")


def test_cifar_batches_are_one_split_in_order(tmp_path: Path) -> None:
    x, y = pictures(shape=(3, 32, 32))
    assert_same(write_both(tmp_path, folders.write_cifar, x, y, 6), x, y, 6, "cifar")
    capped = read_data(tmp_path, Settings(samples=7))
    np.testing.assert_array_equal(capped.train.x, x[capped.train.index])


def test_cifar_classes_have_the_names_beside_them(tmp_path: Path) -> None:
    x, y = pictures(shape=(3, 32, 32))
    write_both(tmp_path, folders.write_cifar, x, y, 6)
    (tmp_path / "batches.meta.txt").write_text("plane\ncar\nbird\n\n")
    data = read_data(tmp_path, ALL)
    assert data.classes == ("plane", "car", "bird")
    np.testing.assert_array_equal(data.train.y, y[:-6])


def test_cifar_100_takes_the_fine_label(tmp_path: Path) -> None:
    x, y = pictures(shape=(3, 32, 32), classes=4)
    for split, part in (("train", slice(0, 16)), ("test", slice(16, 24))):
        labels = np.stack([np.zeros(len(y[part])), y[part]], axis=1).astype(np.uint8)
        records = np.concatenate([labels, x[part].reshape(len(labels), -1)], axis=1)
        (tmp_path / f"{split}.bin").write_bytes(records.tobytes())
    assert_same(tmp_path, x, y, 8, "cifar")


@pytest.mark.parametrize(
    "keys",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("X_train", "Y_train", "X_test", "Y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_one_archive_with_both_splits(tmp_path: Path, keys: tuple[str, ...]) -> None:
    x, y = blobs()
    np.savez(tmp_path / "mnist.npz", **dict(zip(keys, (x[:-10], y[:-10], x[-10:], y[-10:]), strict=True)))
    assert_same(tmp_path, x, y, 10, "npz")
    assert f"mnist.npz:{keys[0]}" in read_data(tmp_path, ALL).notes[0]


@pytest.mark.parametrize("keys", [("X", "Y"), ("images", "labels"), ("data", "target"), ("arr_0", "arr_1")])
def test_synonyms_are_taken_and_said(tmp_path: Path, keys: tuple[str, str]) -> None:
    x, y = blobs()
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        np.savez(tmp_path / f"{split}.npz", **{keys[0]: x[part], keys[1]: y[part], "note": np.zeros(3)})
    assert_same(tmp_path, x, y, 10, "npz")
    assert f"train.npz:{keys[0]}, train.npz:{keys[1]}" in read_data(tmp_path, ALL).notes[0]


@pytest.mark.parametrize("form", ["{role}_{split}.npy", "{split}-{role}.npy", "{split}_{role}.npy"])
def test_npy_file_names_in_either_order(tmp_path: Path, form: str) -> None:
    x, y = blobs()
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        np.save(tmp_path / form.format(role="X", split=split), x[part])
        np.save(tmp_path / form.format(role="labels", split=split), y[part])
    assert_same(tmp_path, x, y, 10, "npy")


def test_a_pair_of_tensors_and_one_tensor_per_file(tmp_path: Path) -> None:
    x, y = blobs()
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    torch.save((tx[:20], ty[:20]), tmp_path / "training.pt")
    torch.save(tx[20:], tmp_path / "test_x.pt")
    torch.save(ty[20:], tmp_path / "test_y.pt")
    assert_same(tmp_path, x, y, 10, "pt")


def test_bfloat16_tensors_are_read_as_float32(tmp_path: Path) -> None:
    x, y = blobs()
    brain = torch.from_numpy(x).bfloat16()
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        torch.save({"x": brain[part], "y": torch.from_numpy(y[part])}, tmp_path / f"{split}.pt")
    np.testing.assert_array_equal(read_data(tmp_path, ALL).train.x, brain[:20].float().numpy())


def test_a_data_set_name_before_the_split_is_understood(tmp_path: Path) -> None:
    x, y = blobs()
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        folders.write_csv(tmp_path, f"wine_{split}", x[part], y[part])
    assert_same(tmp_path, x, y, 10, "csv")


def test_the_configuration_file_is_not_data(tmp_path: Path) -> None:
    x, y = blobs()
    write_both(tmp_path, folders.write_npz, x, y, 10)
    before = read_data(tmp_path, ALL)
    (tmp_path / "gen-audit.toml").write_text("scale = 1\n")
    (tmp_path / ".hidden.csv").write_text("a\n")
    assert read_data(tmp_path, ALL).sha256 == before.sha256


def test_the_hash_follows_names_and_contents(tmp_path: Path) -> None:
    x, y = blobs()
    seen = set()
    for place, (name, change) in enumerate([("test", 0.0), ("test", 1.0), ("testing", 0.0)]):
        root = tmp_path / str(place)
        root.mkdir()
        np.save(root / "train_x.npy", x)
        np.save(root / "train_y.npy", y)
        np.save(root / f"{name}_x.npy", x + change)
        np.save(root / f"{name}_y.npy", y)
        seen.add(read_data(root, ALL).sha256)
    assert len(seen) == 3
    again = tmp_path / "again"
    (tmp_path / "0").rename(again)
    assert read_data(again, ALL).sha256 in seen


def test_validation_stands_in_for_a_missing_test_split(tmp_path: Path) -> None:
    x, y = blobs()
    folders.write_npz(tmp_path, "train", x[:20], y[:20])
    folders.write_npz(tmp_path, "valid", x[20:], y[20:])
    assert_same(tmp_path, x, y, 10, "npz")
    assert "There is no test split; the validation split takes its place." in read_data(tmp_path, ALL).notes
    folders.write_npz(tmp_path, "test", x[20:] + 1, y[20:])
    data = read_data(tmp_path, ALL)
    assert "The validation split was not used." in data.notes
    np.testing.assert_array_equal(data.test.x, x[20:] + 1)


def test_two_layouts_are_named_and_one_can_be_chosen(tmp_path: Path) -> None:
    x, y = blobs()
    write_both(tmp_path, folders.write_npz, x, y, 10)
    write_both(tmp_path, folders.write_csv, x, y, 10)
    with pytest.raises(DataError) as error:
        read_data(tmp_path, ALL)
    assert str(error.value) == (
        f"{tmp_path}: holds more than one layout, npz (test.npz, train.npz) and csv (test.csv, train.csv); "
        "choose with --layout npz or --layout csv, or move one away."
    )
    assert read_data(tmp_path, Settings(layout="csv")).layout == "csv"


def test_named_splits_win_over_a_stray_file(tmp_path: Path) -> None:
    x, y = blobs()
    write_both(tmp_path, folders.write_npz, x, y, 10)
    folders.write_csv(tmp_path, "notes", x, y)
    assert_same(tmp_path, x, y, 10, "npz")


def test_a_cap_is_told_from_the_whole_split(tmp_path: Path) -> None:
    x, y = blobs()
    write_both(tmp_path, folders.write_npz, x, y, 10)
    data = read_data(tmp_path, Settings(samples=9))
    assert [(len(split), split.total) for split in (data.train, data.test)] == [(9, 20), (10, 10)]
    assert (data.layout, data.train.x.shape, data.train.x.dtype) == ("npz", (9, 4), np.float64)


def test_importing_the_readers_wakes_no_heavy_library() -> None:
    heavy = ("torch", "pyarrow", "PIL", "safetensors")
    code = f"import sys, audit.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
