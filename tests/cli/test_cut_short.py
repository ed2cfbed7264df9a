"""A data file that another program cuts short during the audit, in every layout: one sentence that names it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from forks import Forks, complaints
from test_hostile_terminal import network

ROWS = 600
CUT = """
import os
import audit.run.pipeline as pipeline
before = pipeline.{step}
def step(*given, **more):
    os.truncate({file!r}, os.path.getsize({file!r}) // 3)
    return before(*given, **more)
pipeline.{step} = step
"""


def write(form: str, split: str, x: np.ndarray, y: np.ndarray) -> Path:
    """The samples in one file; it is returned."""
    path = Path("data") / f"{split}.{form}"
    text = "a,b,c,d,label\n" + "".join(f"{','.join(map(str, row))},{label}\n" for row, label in zip(x, y, strict=True))
    if form == "npz":
        np.savez_compressed(path, x=x, y=y)
    elif form == "csv":
        path.write_text(text)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif form == "parquet":
        pq.write_table(pa.table({**dict(zip("abcd", x.T, strict=True)), "label": y}), path)
    elif form == "pt":
        torch.save({"x": torch.from_numpy(x), "y": torch.from_numpy(y)}, path)
    return path


@pytest.mark.parametrize("step", ["read_data", "fit"])
@pytest.mark.parametrize("form", ["npz", "csv", "csv.gz", "parquet", "pt"])
def test_it_is_named(form: str, step: str, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "model.onnx", "fc")
    (tmp_path / "data").mkdir()
    x, y = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32), np.arange(ROWS) % 3
    files = [str(write(form, split, x, y)) for split in ("test", "train")]
    before = CUT.format(file=files[1], step=step)
    asked = ("report", "model.onnx", "data", "-o", "out", "-f", "json", "-q", "--quick")
    finished = forks.run(*asked, cwd=tmp_path, before=before)
    told = complaints(finished.stderr)
    assert (finished.returncode, finished.stdout, told.count("\n")) == (2, "", 1)
    assert told.startswith(f"gen-audit: {files[1]}: ") and not (tmp_path / "out").exists()
