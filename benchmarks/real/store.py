"""Samples as data folders in the layouts that people have them in: npz, Parquet, images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.real.samples import Split, Splits

CLASS_FOLDERS = 1000  # one for each output of the network, most of them empty


def write_data(splits: Splits, layout: str, folder: Path) -> None:
    """Both splits, in place of whatever is in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, split in zip(("train", "test"), splits, strict=True):
        WRITERS[layout](split, folder / name)


def _npz(split: Split, path: Path) -> None:
    np.savez(path.with_suffix(".npz"), **split.inputs, y=split.y)


def _parquet(split: Split, path: Path) -> None:
    columns = {f"feature{place:02}": column for place, column in enumerate(split.x.T)}
    pq.write_table(pa.table({**columns, "label": split.y}), path.with_suffix(".parquet"))


def _images(split: Split, path: Path) -> None:
    for place in range(CLASS_FOLDERS):
        (path / f"class{place:04}").mkdir(parents=True)
    for place, (pixels, label) in enumerate(zip(split.x, split.y, strict=True)):
        Image.fromarray(pixels).save(path / f"class{label:04}" / f"{place:04}.jpg", quality=95)


WRITERS = {"npz": _npz, "parquet": _parquet, "images": _images}
