"""Writers, one per layout: the other half of the round trip that the tests make; and the fit of what is read."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import torch
from PIL import Image
from safetensors.torch import save_file

from audit.data import Data, choose_fitting
from audit.data.fit import Accepts, Alike, Wanted
from audit.settings import Settings


def fit(
    data: Data, shape: Wanted | None, accepts: Accepts | None, settings: Settings, alike: Alike | None = None
) -> Data:
    """The data as a model of this input takes them."""
    return choose_fitting(data, shape, accepts, settings, alike).fit(settings)


Write = Callable[[Path, str, np.ndarray, np.ndarray], None]


def write_npz(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(root / f"{split}.npz", x=x, y=y)


def write_npy(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    np.save(root / f"{split}_x.npy", x)
    np.save(root / f"{split}_y.npy", y)


def as_table(x: np.ndarray, y: np.ndarray, label: str = "label") -> pyarrow.Table:
    columns = {f"f{place}": x[:, place] for place in range(x.shape[1])}
    return pyarrow.table({**columns, label: y})


def write_csv(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    pyarrow.csv.write_csv(as_table(x, y), root / f"{split}.csv")


def write_csv_gz(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    write_csv(root, split, x, y)
    plain = root / f"{split}.csv"
    (root / f"{split}.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def write_tsv(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    options = pyarrow.csv.WriteOptions(delimiter="\t")
    pyarrow.csv.write_csv(as_table(x, y), root / f"{split}.tsv", options)


def write_parquet(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    pyarrow.parquet.write_table(as_table(x, y), root / f"{split}.parquet")


def write_images(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    for place, (pixels, label) in enumerate(zip(x, y, strict=True)):
        folder = root / split / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{place:05d}.png")


def png(pixels: np.ndarray) -> bytes:
    content = BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def image_table(
    x: np.ndarray, y: np.ndarray, names: Sequence[str] | None = None, image: str = "image", label: str = "label"
) -> pyarrow.Table:
    """Images and labels as Hugging Face's library writes them, with the class names in the metadata."""
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    stored = pyarrow.array([{"bytes": png(pixels), "path": f"{i}.png"} for i, pixels in enumerate(x)], kind)
    table = pyarrow.table({image: stored, label: pyarrow.array(y)})
    kinds = {"names": list(names), "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"}
    info = {"info": {"features": {image: {"_type": "Image"}, label: kinds}}}
    return table.replace_schema_metadata({"huggingface": json.dumps(info)})


def write_image_parquet(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    """The train split in two parts, as large data sets have them."""
    parts = 2 if split == "train" else 1
    for part, rows in enumerate(np.array_split(np.arange(len(x)), parts)):
        name = f"{split}-{part:05d}-of-{parts:05d}.parquet"
        pyarrow.parquet.write_table(image_table(x[rows], y[rows]), root / name)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(root: Path, split: str, x: np.ndarray, y: np.ndarray, gz: bool = False, mark: str = "-") -> None:
    for kind, array in (("images", x), ("labels", y)):
        name = f"{'t10k' if split == 'test' else split}-{kind}{mark}idx{array.ndim}-ubyte"
        content = idx_bytes(array)
        (root / (name + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)


def write_idx_gz(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    write_idx(root, split, x, y, gz=True, mark=".")


def write_cifar(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    records = np.concatenate([y[:, None].astype(np.uint8), x.reshape(len(x), -1)], axis=1)
    if split == "test":
        (root / "test_batch.bin").write_bytes(records.tobytes())
        return
    half = len(x) // 2
    (root / "data_batch_1.bin").write_bytes(records[:half].tobytes())
    (root / "data_batch_2.bin").write_bytes(records[half:].tobytes())


def write_safetensors(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    tensors = {"x": torch.from_numpy(x.copy()), "y": torch.from_numpy(y.copy())}
    save_file(tensors, root / f"{split}.safetensors")


def write_pt(root: Path, split: str, x: np.ndarray, y: np.ndarray) -> None:
    torch.save({"x": torch.from_numpy(x.copy()), "y": torch.from_numpy(y.copy())}, root / f"{split}.pt")


def write_both(root: Path, write: Write, x: np.ndarray, y: np.ndarray, test: int | None = None) -> Path:
    """The first samples as train, the last `test` (default: a third) as test."""
    held = test if test is not None else max(2, len(x) // 3)
    write(root, "train", x[:-held], y[:-held])
    write(root, "test", x[-held:], y[-held:])
    return root


def blobs(n: int = 30, width: int = 4, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Small float samples and labels that take turns, so that every part of them holds every class."""
    x = np.random.default_rng(seed).normal(size=(n, width))
    return x, np.arange(n) % classes


def pictures(
    n: int = 24, shape: tuple[int, ...] = (6, 5), classes: int = 3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Small uint8 images and labels that take turns."""
    x = np.random.default_rng(seed).integers(0, 256, size=(n, *shape), dtype=np.uint8)
    return x, np.arange(n) % classes
