"""The format is told by content; what is no model is called by its name."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_files
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torch_networks import mlp, save_pt2, save_script

from audit.errors import ModelError
from audit.model import detect, file_hash, load_model, sha256
from audit.settings import Settings

SKLEARN = "is a pickled scikit-learn or joblib object, which is not read"


def test_content_wins_over_the_name(tmp_path: Path) -> None:
    network, x = mlp(nn.ReLU).eval(), torch.randn(4, 6)
    script = save_script(network, x, tmp_path / "script", "scripted").read_bytes()
    for suffix in (".pt", ".onnx", ".csv", ""):
        path = tmp_path / f"m{suffix}"
        torch.save(network.state_dict(), path)
        assert detect(path) == "checkpoint"
        torch.save(network.state_dict(), path, _use_new_zipfile_serialization=False)
        assert detect(path) == "checkpoint"
        save_file(network.state_dict(), path)
        assert detect(path) == "safetensors"
        path.write_bytes(script)
        assert detect(path) == "torchscript"
    path.write_bytes(save_pt2(network, x, tmp_path / "m.pt2").read_bytes())
    assert detect(path) == "pt2"


@pytest.mark.parametrize("name", ["m.onnx", "m.pb", "m"])
def test_onnx_is_told_by_its_first_field(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x08\x12\x07pytorch")
    assert detect(tmp_path / name) == "onnx"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("m.onnx", b"", "is empty; export or download the model again"),
        (
            "m.onnx",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
            "is a Git LFS pointer, .* `git lfs pull`",
        ),
        (
            "m.h5",
            b"\x89HDF\r\n\x1a\n" + bytes(40),
            r"is a Keras .h5 \(HDF5\) file; export the model to ONNX with tf2onnx",
        ),
        ("m.tflite", b"\x1c\x00\x00\x00TFL3" + bytes(40), "is a TensorFlow Lite model; export the model to ONNX"),
        ("m.pt", b"x,y,label\n1,2,a\n", "is a CSV file; give a .onnx"),
        (
            "m.pkl",
            b"\x80\x04\x95\xcd\x01" + bytes(6) + b"\x8c\x10sklearn.pipeline",
            f"{SKLEARN}; convert it with skl2onnx",
        ),
        ("m.pkl", b"\x80\x03csklearn.pipeline\nPipeline\n", SKLEARN),
        ("m.joblib", b"\x80\x04}\x94.", SKLEARN),
        ("m.joblib", b"\x78\x5e" + bytes(60), f"{SKLEARN}; .*hand the fitted model to audit_model in Python"),
        ("m.csv", b"one column\n1\n", "is a CSV file"),
        ("m.onnx", b"<!DOCTYPE html><html>", "is a web page, perhaps a download that needed a login"),
        ("m.json", b'{"layers": []}', "is a JSON file"),
        ("net.py", b"import torch\n", "is Python source, which goes to --arch"),
        ("m.txt", "Gewichte für das Netz".encode(), "is a text file"),
        ("m.onnx", b"\x89PNG\r\n\x1a\n" + bytes(9), "is a PNG image"),
        ("m.onnx", b"\x1f\x8b\x08" + bytes(9), "is a gzip archive; unpack it first"),
        ("m.npy", b"\x93NUMPY\x01\x00" + bytes(60), "is a NumPy array"),
        ("m.gguf", b"GGUF" + bytes(60), "is a GGUF model"),
        ("m.pt", b"PK\x03\x04" + bytes(60), r"is truncated or corrupt \(a ZIP archive that does not open\)"),
        ("m.pt", b"\xff\xfe\xfd" + bytes(60), "is not a PyTorch file, or its beginning is corrupt"),
        ("m.safetensors", b"\xff" * 60, "is not a safetensors file, or its beginning is corrupt"),
        ("m.xyz", b"\xff" * 60, "is not a model that gen-audit knows; give a .onnx"),
    ],
)
def test_what_is_no_model(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name}: {sentence}"):
        load_model(tmp_path / name, Settings())


def test_archives_that_are_no_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=np.zeros(3))
    with pytest.raises(ModelError, match=r"train.npz: is a NumPy .npz archive"):
        load_model(tmp_path / "train.npz", Settings())
    for name, member, sentence in (
        ("m.keras", "model.weights.h5", "is a Keras archive"),
        ("m.zip", "a.txt", "is a ZIP archive without"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, b"-")
        with pytest.raises(ModelError, match=f"{name}: {sentence}"):
            load_model(tmp_path / name, Settings())


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent.onnx: there is no such file"):
        load_model(tmp_path / "absent.onnx", Settings())
    with pytest.raises(ModelError, match="is a folder; give the model file itself"):
        load_model(tmp_path, Settings())
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="is a TensorFlow SavedModel; export it to ONNX with tf2onnx"):
        load_model(tmp_path, Settings())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".pt", ".pt2", ".ts", ".safetensors", ".bin", ""]))
def test_any_bytes_give_a_format_or_a_sentence(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_bytes(content)
    try:
        form = detect(path)
    except ModelError as error:
        assert str(error).startswith(str(path)) and str(error).endswith(".")
        return
    if form != "onnx":
        with pytest.raises(ModelError):
            load_model(path, Settings())


def test_sha256_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"abc")
    assert sha256(tmp_path / "m") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_importing_the_package_wakes_no_heavy_module() -> None:
    code = "import sys, audit.model; print([m for m in ('torch', 'onnx', 'numpy') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_hash_of_a_file_is_the_models_own(tmp_path: Path) -> None:
    """Without loading it; an ONNX file's hash covers the weights that lie beside it."""
    onnx_model = onnx_files.mlp()
    plain, outside = tmp_path / "plain.onnx", tmp_path / "outside.onnx"
    onnx.save(onnx_model, plain)
    options: dict[str, Any] = {"all_tensors_to_one_file": True, "location": "outside.data", "size_threshold": 0}
    onnx.save_model(onnx_model, outside, save_as_external_data=True, **options)
    pt2 = save_pt2(torch.nn.Linear(4, 3).eval(), torch.randn(4, 4), tmp_path / "m.pt2")
    for path in (plain, outside, pt2):
        assert file_hash(path) == load_model(path, Settings()).sha256
    before = file_hash(outside)
    content = bytearray((tmp_path / "outside.data").read_bytes())
    content[0] ^= 1
    (tmp_path / "outside.data").write_bytes(content)
    assert file_hash(outside) != before
    (tmp_path / "outside.data").unlink()
    with pytest.raises(ModelError, match=r"its weights are in 'outside\.data', which is missing"):
        file_hash(outside)
