"""Bad folders and broken files: each ends in one sentence that names the file and the remedy."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import folders
import numpy as np
import pytest
import torch
from folders import blobs, pictures, write_both

from audit.data import read_data
from audit.errors import AuditError, DataError, UsageError
from audit.settings import Settings

X, Y = blobs()
PX, PY = pictures()


def sentence(root: Path, error: type[AuditError] = DataError, **settings: object) -> str:
    """The text of the error that reading the folder must raise."""
    with pytest.raises(error) as caught:
        read_data(root, Settings(**settings))  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


def truncate(path: Path, keep: float = 0.5) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def test_no_such_folder(tmp_path: Path) -> None:
    root = tmp_path / "nowhere"
    assert sentence(root) == f"{root}: there is no such folder; give the folder that holds the train and test data."


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "train.npz"
    root.write_bytes(b"")
    assert sentence(root) == f"{root}: is a file; give the folder that holds the train and test data."


def test_an_empty_folder(tmp_path: Path) -> None:
    assert sentence(tmp_path).startswith(f"{tmp_path}: the folder is empty; expected train and test as .npz")


def test_nothing_recognised(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert sentence(tmp_path).startswith(f"{tmp_path}: no data found among notes.txt; expected train and test")


def test_the_data_lies_one_folder_down(tmp_path: Path) -> None:
    inner = tmp_path / "MNIST" / "raw"
    inner.mkdir(parents=True)
    write_both(inner, folders.write_idx, PX, PY)
    assert sentence(tmp_path) == f"{tmp_path}: no data found here, but {inner} looks right; give that folder instead."


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    os.symlink(tmp_path, tmp_path / "train" / "loop")
    os.symlink(tmp_path / "self", tmp_path / "self")
    assert sentence(tmp_path).startswith(f"{tmp_path}: no data found among train; expected")


def test_images_in_a_loop_of_links_are_read_once(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_images, PX, PY)
    before = read_data(tmp_path, Settings()).train.total
    os.symlink(tmp_path / "train", tmp_path / "train" / "0" / "loop")
    assert read_data(tmp_path, Settings()).train.total == before


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_split_only(tmp_path: Path, split: str) -> None:
    folders.write_npz(tmp_path, split, X, Y)
    assert sentence(tmp_path) == (
        f"{tmp_path}: has a {split} split only; "
        "add the other split, or hold out a share of it with --test-fraction 0.2."
    )


def test_no_split_named(tmp_path: Path) -> None:
    folders.write_csv(tmp_path, "iris", X, Y)
    assert sentence(tmp_path).startswith(f"{tmp_path}: is not divided into train and test; add the other split")


def test_two_tables_that_name_no_split(tmp_path: Path) -> None:
    folders.write_csv(tmp_path, "a", X, Y)
    folders.write_csv(tmp_path, "b", X, Y)
    assert sentence(tmp_path) == f"{tmp_path}: holds a.csv and b.csv, but neither says train or test; rename them."


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 2.0])
def test_a_share_that_is_none(tmp_path: Path, fraction: float) -> None:
    folders.write_npz(tmp_path, "train", X, Y)
    text = sentence(tmp_path, UsageError, test_fraction=fraction)
    assert text == f"--test-fraction: {fraction:g} is not a share between 0 and 1, such as 0.2."


def test_a_share_that_leaves_too_few(tmp_path: Path) -> None:
    folders.write_npz(tmp_path, "train", X, Y)
    assert "leaves 29 for train and 1 for test; an audit needs at least two" in sentence(tmp_path, test_fraction=0.04)


@pytest.mark.parametrize(
    ("write", "x", "y"),
    [
        (folders.write_npz, "train.npz:x", "train.npz:y"),
        (folders.write_npy, "train_x.npy", "train_y.npy"),
        (folders.write_pt, "train.pt:x", "train.pt:y"),
        (folders.write_safetensors, "train.safetensors:x", "train.safetensors:y"),
    ],
)
def test_x_and_y_of_different_length(tmp_path: Path, write: folders.Write, x: str, y: str) -> None:
    write(tmp_path, "train", X, Y[:-3])
    write(tmp_path, "test", X, Y)
    expected = f"{tmp_path / x} holds 30 samples but {y} holds 27 labels; they must pair up one to one."
    assert sentence(tmp_path) == expected


def test_idx_of_different_length(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_idx, PX, PY)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(folders.idx_bytes(PY[:3]))
    assert "holds 16 samples but train-labels-idx1-ubyte holds 3 labels" in sentence(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(tmp_path: Path, value: float) -> None:
    x = X.copy()
    x[23, 2] = value  # the fourth of the test split
    write_both(tmp_path, folders.write_npz, x, Y, 10)
    file = tmp_path / "test.npz"
    assert sentence(tmp_path) == f"{file}: test sample 3 (counted from 0) is NaN or infinite; correct or remove it."


def test_a_table_names_the_column_that_is_not_finite(tmp_path: Path) -> None:
    x = X.copy()
    x[5, 2] = np.inf
    write_both(tmp_path, folders.write_parquet, x, Y, 10)
    assert "train sample 5 (counted from 0), column 'f2', is NaN or infinite" in sentence(tmp_path)


def test_labels_that_are_not_finite(tmp_path: Path) -> None:
    y = Y.astype(float)
    y[4] = np.nan
    write_both(tmp_path, folders.write_npz, X, y, 10)
    file = tmp_path / "train.npz"
    which = "the label of sample 4 (counted from 0)"
    assert sentence(tmp_path) == f"{file}: {which} is NaN or infinite; correct or remove it."


@pytest.mark.parametrize(("count", "words"), [(1, "only one sample"), (0, "no samples")])
def test_too_few_samples(tmp_path: Path, count: int, words: str) -> None:
    folders.write_npz(tmp_path, "train", X, Y)
    folders.write_npz(tmp_path, "test", X[:count], Y[:count])
    file = tmp_path / "test.npz"
    assert sentence(tmp_path) == f"{file}: the test split has {words}; an audit needs at least two."


def test_a_cap_of_one(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_npz, X, Y)
    text = sentence(tmp_path, UsageError, samples=1)
    assert text == "--samples: 1 is too few; use at least two samples, or 0 for all."


class Trap:
    """Unpickling this would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.mark,)


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    root, mark = tmp_path / "data", tmp_path / "sprung"
    root.mkdir()
    trap = np.array([Trap(mark), Trap(mark)], dtype=object)
    np.save(root / "train_x.npy", trap, allow_pickle=True)
    np.save(root / "train_y.npy", Y)
    assert sentence(root) == (
        f"{root / 'train_x.npy'}: the array holds pickled Python objects, which are never opened; "
        "save it again as plain numbers."
    )
    np.savez(root / "train.npz", x=trap, y=Y)
    assert "array 'x' holds pickled Python objects, which are never opened" in sentence(root, layout="npz")
    torch.save({"x": Trap(mark), "y": torch.zeros(2)}, root / "train.pt")
    text = sentence(root, layout="pt")
    told = f"{root / 'train.pt'}: holds more than tensors (or is no torch file), and pickles are never"
    assert text.startswith(told)
    (root / "train.pt").write_bytes(pickle.dumps(Trap(mark)))  # in a protocol of which torch has a warning to say
    assert sentence(root, layout="pt").startswith(told)
    assert not mark.exists()


def test_the_pickled_cifar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02")
    assert sentence(tmp_path) == (
        f"{tmp_path / 'data_batch_1'}: is the pickled CIFAR version, and pickles are never opened; "
        "use the binary version (.bin)."
    )


BROKEN = [
    (folders.write_npz, "train.npz", "cannot be read as an npz archive"),
    (folders.write_npy, "train_x.npy", "cannot be read as an npy array"),
    (folders.write_parquet, "train.parquet", "cannot be read as parquet"),
    (folders.write_csv_gz, "train.csv.gz", "cannot be read as csv"),
    (folders.write_pt, "train.pt", "cannot be read as a torch file"),
    (folders.write_safetensors, "train.safetensors", "cannot be read as safetensors"),
]


@pytest.mark.parametrize(("write", "name", "words"), BROKEN)
def test_truncated_files(tmp_path: Path, write: folders.Write, name: str, words: str) -> None:
    write_both(tmp_path, write, X, Y)
    truncate(tmp_path / name)
    text = sentence(tmp_path)
    assert text.startswith(f"{tmp_path / name}: {words} (")
    assert "again" in text


@pytest.mark.parametrize(("write", "name", "words"), BROKEN)
def test_empty_files(tmp_path: Path, write: folders.Write, name: str, words: str) -> None:
    write_both(tmp_path, write, X, Y)
    (tmp_path / name).write_bytes(b"")
    assert sentence(tmp_path).startswith(f"{tmp_path / name}: ")


@pytest.mark.parametrize(("write", "name", "words"), BROKEN)
def test_files_that_hold_something_else(tmp_path: Path, write: folders.Write, name: str, words: str) -> None:
    write_both(tmp_path, write, X, Y)
    (tmp_path / name).write_bytes(b"<!DOCTYPE html>\n<p>Not found</p>\n" * 20)
    assert sentence(tmp_path).startswith(f"{tmp_path / name}: ")


def test_an_archive_without_x_and_y_lists_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", weights=X, bias=Y)
    np.savez(tmp_path / "test.npz", weights=X, bias=Y)
    assert sentence(tmp_path) == (
        f"{tmp_path / 'test.npz'}: holds weights, bias, but needs an x (or images, data) and a y (or labels, target)."
    )


def test_samples_without_labels(tmp_path: Path) -> None:
    folders.write_npy(tmp_path, "train", X, Y)
    np.save(tmp_path / "test_x.npy", X)
    text = sentence(tmp_path)
    assert text == f"{tmp_path / 'test_x.npy'}: the test split has x (test_x.npy) but no y; add it beside it."


def test_two_arrays_for_one_role(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=X, images=X, y=Y)
    expected = "train.npz:x and train.npz:images could both be x of the train split; keep one of them."
    assert sentence(tmp_path) == expected


def test_samples_that_are_no_numbers(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_npz, X.astype(str), Y)
    assert "are not numbers; store them as floats or integers." in sentence(tmp_path)


def test_splits_of_different_shape(tmp_path: Path) -> None:
    folders.write_npz(tmp_path, "train", X, Y)
    folders.write_npz(tmp_path, "test", X[:, :3], Y)
    assert sentence(tmp_path) == (
        f"{tmp_path}: train samples have shape (4,) but test samples (3,); store both splits in one shape."
    )


@pytest.mark.parametrize("gz", [False, True])
def test_idx_that_ends_early_or_late(tmp_path: Path, gz: bool) -> None:
    write_both(tmp_path, lambda *a: folders.write_idx(*a, gz=gz), PX, PY)
    file = tmp_path / ("train-images-idx3-ubyte" + ".gz" * gz)
    whole = folders.idx_bytes(PX[:16])
    squeeze = gzip.compress if gz else bytes
    for content, words in [
        (whole[:-7], "its header promises 480 bytes of data but it holds only 473; fetch it again."),
        (whole + b"\0", "its header promises 480 bytes of data but it holds more; fetch it again."),
        (whole[:9], "ends within its header; fetch it again."),
        (b"", "does not begin like an idx file (it is empty); fetch it again."),
        (b"\x1f\x8b\x08\x00" + whole, "does not begin like an idx file (1f 8b 08 00); fetch it again."),
    ]:
        file.write_bytes(squeeze(content))
        assert sentence(tmp_path) == f"{file}: {words}"


def test_a_gzipped_idx_cut_short(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_idx_gz, PX, PY)
    file = tmp_path / "train-images.idx3-ubyte.gz"
    truncate(file)
    assert sentence(tmp_path).startswith(f"{file}: cannot be read as an idx file (Compressed file ended")


@pytest.mark.parametrize("gz", [False, True])
def test_a_huge_promise_allocates_nothing(tmp_path: Path, gz: bool) -> None:
    write_both(tmp_path, lambda *a: folders.write_idx(*a, gz=gz), PX, PY)
    file = tmp_path / ("train-images-idx3-ubyte" + ".gz" * gz)
    content = struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"\0" * 64
    file.write_bytes(gzip.compress(content) if gz else content)
    assert f"promises {(2**32 - 1) ** 3} bytes of data but it holds only 64" in sentence(tmp_path)


def test_idx_without_its_labels(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_idx, PX, PY)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert "t10k-images-idx3-ubyte: the labels file that belongs to it is missing" in sentence(tmp_path)


def test_cifar_cut_within_a_record(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_cifar, *pictures(shape=(3, 32, 32)))
    file = tmp_path / "data_batch_2.bin"
    truncate(file, 0.99)
    assert sentence(tmp_path).endswith("bytes, not a whole number of 3073-byte CIFAR records; fetch it again.")
    assert sentence(tmp_path).startswith(f"{file}: is ")


WRITERS = {
    "npz": (folders.write_npz, X, Y),
    "npy": (folders.write_npy, X, Y),
    "csv": (folders.write_csv, X, Y),
    "parquet": (folders.write_parquet, X, Y),
    "pt": (folders.write_pt, X, Y),
    "safetensors": (folders.write_safetensors, X, Y),
    "idx": (folders.write_idx_gz, PX, PY),
    "images": (folders.write_images, PX, PY),
    "image-parquet": (folders.write_image_parquet, PX, PY),
}


@pytest.mark.parametrize("layout", WRITERS)
def test_damaged_bytes_never_escape_as_anything_but_a_sentence(tmp_path: Path, layout: str) -> None:
    root = write_both(tmp_path, *WRITERS[layout])
    files = sorted(file for file in root.rglob("*") if file.is_file())
    draw = np.random.default_rng(0)
    for _ in range(60):
        file = files[draw.integers(len(files))]
        content = file.read_bytes()
        damaged = bytearray(content)
        damaged[draw.integers(min(len(content), 200))] = draw.integers(256)
        file.write_bytes(damaged[: draw.integers(len(content))] if draw.random() < 0.3 else damaged)
        try:
            read_data(root, Settings())
        except AuditError as error:
            assert "\n" not in str(error) and str(error).endswith(".")
        file.write_bytes(content)


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_npz, X, Y)
    with zipfile.ZipFile(tmp_path / "train.npz") as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(tmp_path / "train.npz", "a") as archive:
        archive.writestr("x", content)  # which numpy calls x, too
    told = f"{tmp_path / 'train.npz'}: holds two arrays of one name; write it again with numpy.savez."
    assert sentence(tmp_path) == told


def test_labels_beyond_whole_numbers(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_npz, X, Y.astype(np.uint64) + np.uint64(2**63))
    assert "holds the label 9223372036854775810, which is too large; number classes from 0." in sentence(tmp_path)


def test_a_table_of_very_many_columns_takes_no_time_for_their_names(tmp_path: Path) -> None:
    names = [f"column_{place}" for place in range(40_000)]
    for split, order in (("train", 1), ("test", -1)):
        rows = [*names[::order], "label"], ["1"] * 40_000 + ["0"], ["2"] * 40_000 + ["1"]
        (tmp_path / f"{split}.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    begin = time.process_time()
    data = read_data(tmp_path, Settings())
    assert data.train.x[np.arange(2)].shape == (2, 40_000)
    assert time.process_time() - begin < 20  # comparing each with each takes more than a minute
