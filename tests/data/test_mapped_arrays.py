"""Arrays of an npz archive stay on disk where they lie there as they are, and are read with their checksum held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.data.array_files import _member
from audit.data.dataset import rows_of
from audit.errors import DataError


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.random.default_rng(0).normal(size=(5, 3))),
        np.arange(3, dtype=">i4"),
        np.array(["a", "bcd"]),
    ],
    ids=["bytes", "by columns", "big-endian", "names"],
)
def test_a_mapped_array_holds_what_was_saved(tmp_path: Path, array: np.ndarray) -> None:
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(tmp_path / name, y=np.ones(2), x=array)
        found = _member(tmp_path / f"{name}.npz", "x")
        assert isinstance(found, np.memmap) == (name == "plain")
        assert found.dtype == array.dtype and np.array_equal(found, array)
        rows = np.arange(len(array))
        assert np.shares_memory(rows_of(found, rows), found), "all rows are taken without a copy"
        assert np.array_equal(rows_of(found, rows[1:]), array[1:])


@pytest.mark.parametrize("array", [np.empty((0, 3)), np.array(3.0)], ids=["empty", "a number"])
def test_what_cannot_be_mapped_is_read(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "file", x=array)
    assert np.array_equal(_member(tmp_path / "file.npz", "x"), array)


def test_a_number_that_was_changed_on_disk_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, x=np.full((4, 4), 7, np.uint8))
    path.write_bytes(path.read_bytes().replace(bytes([7] * 16), bytes([7] * 15 + [8])))
    with pytest.raises(DataError, match=r"cannot be read as an npz archive at array 'x' .*write it again"):
        _member(path, "x")
