"""The same numbers in a wider float type are the same samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

import audit
from audit.compare.differences import pair, same_samples


def folder(path: Path, x: np.ndarray) -> Path:
    path.mkdir()
    for split in ("train", "test"):
        np.savez(path / f"{split}.npz", x=x if split == "train" else x[::-1], y=np.arange(40) % 2)
    return path


def test_the_same_samples_in_another_width_can_be_compared(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    earlier = audit.audit_model(nn.Linear(4, 2), folder(tmp_path / "single", x))
    later = audit.audit_model(nn.Linear(4, 2), folder(tmp_path / "double", x.astype(np.float64)))
    other = audit.audit_model(nn.Linear(4, 2), folder(tmp_path / "other", x.astype(np.float64) / 3))
    assert len({report.data.sha256 for report in (earlier, later, other)}) == 3
    for split in ("train", "test"):
        assert same_samples(earlier, later, split) and not same_samples(earlier, other, split)
        paired = pair(earlier, later, split)
        assert paired is not None and paired.whole
