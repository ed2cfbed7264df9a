"""Data folders from strangers: nothing is started, followed, waited for or unpacked beyond the memory budget."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from audit.data import read_data
from audit.errors import AuditError, BudgetError, DataError
from audit.settings import Settings

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(it_ran) (w) file closefile\n%%EOF\n"


def images(folder: Path, count: int = 2, size: tuple[int, int] = (8, 8)) -> Path:
    """Two splits of two classes; returns one of the files."""
    for split in ("train", "test"):
        for label in ("a", "b"):
            (folder / split / label).mkdir(parents=True)
            for place in range(count):
                Image.new("L", size, place).save(folder / split / label / f"{place}.png")
    return folder / "train" / "a" / "0.png"


def test_an_eps_called_png_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen.__init__", lambda self, *given, **_: started.append(given))
    monkeypatch.setattr("subprocess.check_call", lambda *given, **_: started.append(given))
    images(tmp_path).write_bytes(EPS)
    with pytest.raises(DataError, match=r"0\.png: cannot be decoded as an image"):
        read_data(tmp_path, Settings())
    assert started == []


@pytest.mark.parametrize("place", ["image", "names", "npz"])
def test_a_pipe_is_not_waited_for(place: str, tmp_path: Path) -> None:
    if place == "image":
        file = images(tmp_path)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(DataError, match=r"0\.png: is no ordinary file"):
            read_data(tmp_path, Settings())
    elif place == "names":
        for name in ("data_batch_1.bin", "test_batch.bin"):
            (tmp_path / name).write_bytes(bytes(3073) * 4 + b"\1" + bytes(3072))
        os.mkfifo(tmp_path / "batches.meta.txt")
        assert len(read_data(tmp_path, Settings()).train) == 5
    else:
        os.mkfifo(tmp_path / "train.npz")
        with pytest.raises(DataError, match="the folder is empty"):
            read_data(tmp_path, Settings())


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    np.savez(outside / "train.npz", x=np.ones((4, 2)), y=np.arange(4))
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "test.npz", x=np.ones((4, 2)), y=np.arange(4))
    (data / "train.npz").symlink_to(outside / "train.npz")
    with pytest.raises(DataError, match=r"train.npz: is a link to .*outside the data folder, and is not followed"):
        read_data(data, Settings())
    (data / "train.npz").unlink()
    (data / "train.npz").symlink_to(data / "test.npz")
    assert len(read_data(data, Settings()).train) == 4
    pictures = images(tmp_path / "pictures")
    target = outside / "secret.png"
    pictures.rename(target)
    pictures.symlink_to(target)
    with pytest.raises(DataError, match=r"0.png: is a link to .*secret.png, outside the data folder"):
        read_data(tmp_path / "pictures", Settings())


def test_a_class_folder_may_be_a_link_within_but_not_out(tmp_path: Path) -> None:
    images(tmp_path / "data")
    images(tmp_path / "other")
    (tmp_path / "data" / "train" / "c").symlink_to(tmp_path / "other" / "train" / "a")
    with pytest.raises(DataError, match=r"train/c: is a link to .*outside the data folder"):
        read_data(tmp_path / "data", Settings())


def test_pixels_are_counted_before_they_are_decoded(tmp_path: Path) -> None:
    images(tmp_path, count=3, size=(3000, 3000))
    with pytest.raises(
        BudgetError, match=r"train/a: takes .* MB once it is read, more than the memory budget of 20 MB"
    ):
        read_data(tmp_path, Settings(memory="20MB"))


def test_what_unpacks_beyond_the_budget_is_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        with gzip.open(tmp_path / f"{split}.csv.gz", "wb") as file:
            file.write(b"x,y\n" + b"1.0,1\n" * 5_000_000)
    with pytest.raises(BudgetError, match=r"train.csv.gz: takes 29 MB once it is read"):
        read_data(tmp_path, Settings(memory="20MB"))
    npz = tmp_path / "npz"
    npz.mkdir()
    for split in ("train", "test"):
        np.savez_compressed(npz / f"{split}.npz", x=np.zeros((10**6, 4)), y=np.zeros(10**6))
    with pytest.raises(BudgetError, match=r"test.npz: takes 38 MB once it is read"):
        read_data(npz, Settings(memory="20MB"))


def test_a_table_of_one_value_a_billion_times_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"x": pyarrow.array(np.zeros(4_000_000)), "y": pyarrow.array(np.zeros(4_000_000))})
    for split in ("train", "test"):
        pyarrow.parquet.write_table(table, tmp_path / f"{split}.parquet")
    with pytest.raises(BudgetError, match=r"train.parquet: takes 61 MB once it is read"):
        read_data(tmp_path, Settings(memory="20MB"))


def images_in_tables(folder: Path, size: tuple[int, int] = (8, 8), rows: int = 4) -> Path:
    """Two splits of encoded images in `data/`; returns the train split."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    Image.new("L", size).save(stream, format="PNG")
    table = pyarrow.table({"image": [{"bytes": stream.getvalue(), "path": ""}] * rows, "label": np.arange(rows) % 2})
    (folder / "data").mkdir(parents=True)
    for split in ("train", "test"):
        pyarrow.parquet.write_table(table, folder / "data" / f"{split}.parquet")
    return folder / "data" / "train.parquet"


def test_links_and_pipes_among_tables_of_images_are_not_followed(tmp_path: Path) -> None:
    train = images_in_tables(tmp_path / "hub")
    train.rename(tmp_path / "train.parquet")
    train.symlink_to(tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"train.parquet: is a link to .*outside the data folder"):
        read_data(tmp_path / "hub", Settings())
    train.unlink()
    os.mkfifo(train)
    with pytest.raises(DataError, match="has a test split only"):
        read_data(tmp_path / "hub", Settings())


def test_tables_of_images_are_held_to_the_budget(tmp_path: Path) -> None:
    images_in_tables(tmp_path / "large", size=(3000, 3000))
    with pytest.raises(BudgetError, match=r"data: takes 26 MB once it is read, more than the memory budget of 20 MB"):
        read_data(tmp_path / "large", Settings(memory="20MB"))
    images_in_tables(tmp_path / "many", rows=200_000)
    with pytest.raises(BudgetError, match=r"\.parquet: takes .* MB once it is read, more than the memory budget"):
        read_data(tmp_path / "many", Settings(memory="1MB"))


def test_an_image_in_a_table_is_a_raster_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen.__init__", lambda self, *given, **_: started.append(given))
    monkeypatch.setattr("PIL.Image.Image.save", lambda self, stream, **_: stream.write(EPS))
    images_in_tables(tmp_path)
    with pytest.raises(DataError, match=r"row 1 \(counted from 1\): cannot be decoded as an image"):
        read_data(tmp_path, Settings())
    assert started == []


def test_an_archive_that_is_not_packed_may_be_larger_than_the_budget(tmp_path: Path) -> None:
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", x=np.zeros((10**6, 4)), y=np.arange(10**6) % 2)
    data = read_data(tmp_path, Settings(memory="20MB", samples=100, test_samples=100))
    assert len(data.train) == len(data.test) == 100


ODD = {
    "spread": lambda: torch.zeros(1).expand(10**6, 10**6),
    "sparse": lambda: torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.ones(1), (10**6, 10**6)),
    "meta": lambda: torch.zeros(4, 2, device="meta"),
    "float8": lambda: torch.zeros(4, 2).to(torch.float8_e4m3fn),
    "complex": lambda: torch.zeros(4, 2, dtype=torch.complex64),
    "quantised": lambda: torch.quantize_per_tensor(torch.zeros(4, 2), 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", sorted(ODD))
def test_tensors_of_odd_kinds_are_a_sentence(kind: str, tmp_path: Path) -> None:
    x = ODD[kind]()
    for split in ("train", "test"):
        torch.save({"x": x, "y": torch.arange(len(x) if kind in ("spread", "sparse") else 4)}, tmp_path / f"{split}.pt")
    with pytest.raises(AuditError, match=r"(test|train)\.pt") as caught:
        read_data(tmp_path, Settings())
    assert len(str(caught.value).splitlines()) == 1


def header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


SHAPES = ["(10**30,)", "(1000000000000000000000, 9)", "(-5, 3)", "(2**62, 4)", "('a',)", "(4611686018427387904, 8)"]


@pytest.mark.parametrize("shape", [*SHAPES, "(" * 60 + "1,"])
@pytest.mark.parametrize("packed", [False, True])
def test_absurd_shapes_are_a_sentence(shape: str, packed: bool, tmp_path: Path) -> None:
    content = header(shape) + bytes(64)
    for split in ("train", "test"):
        if packed:
            with zipfile.ZipFile(tmp_path / f"{split}.npz", "w") as archive:
                archive.writestr("x.npy", content)
                archive.writestr("y.npy", content)
        else:
            for role in "xy":
                (tmp_path / f"{split}_{role}.npy").write_bytes(content)
    with pytest.raises(AuditError, match=r"cannot be read") as caught:
        read_data(tmp_path, Settings())
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("method", [1, 9, 14, 77, 99])
def test_members_packed_in_odd_ways_are_a_sentence(method: int, tmp_path: Path) -> None:
    for split in ("train", "test"):
        stream = io.BytesIO()
        np.savez(stream, x=np.ones((4, 2)), y=np.arange(4))
        content = bytearray(stream.getvalue())
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = content.find(mark)
            while start >= 0:
                content[start + place] |= method == 1
                content[start + place + 2] = 0 if method == 1 else method
                start = content.find(mark, start + 4)
        (tmp_path / f"{split}.npz").write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"test.npz: cannot be read as an npz archive"):
        read_data(tmp_path, Settings())
