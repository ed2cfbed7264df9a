"""Files as people have them: healthy, odd, broken, and not models at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_files import agrees, graph, loaded, mlp, node, weights

from audit.errors import ModelError
from audit.model.onnx import load
from audit.model.onnx.file import read_file
from audit.settings import Settings


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path, Settings())
    text = str(caught.value)
    assert text.startswith(str(path)) or text.startswith(str(path.parent))
    assert text.endswith(".") and "\n" not in text
    return text


def saved(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return path


def with_external(tmp_path: Path, location: str = "weights.bin") -> Path:
    """A model whose first weight lies in another file."""
    model = mlp()
    tensor = model.graph.initializer[0]
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, "offset": "8", "length": str(len(data))}.items():
        tensor.external_data.add(key=key, value=entry)
    (tmp_path / "weights.bin").write_bytes(bytes(8) + data)
    return saved(tmp_path, model.SerializeToString())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty; export the model again"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer, not the model itself; fetch it with"),
        (b"PK\x03\x04rest", "is a zip archive"),
        (b"\x80\x04\x95rest", "is a Python pickle"),
        (b"\x89HDF\r\n", "is an HDF5 file"),
        (b"<!DOCTYPE html>", "is a web page"),
        (b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        (bytes(range(1, 200)), "not a readable ONNX file"),
        (mlp().SerializeToString()[:-40], "cut short, damaged or of another format"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "there is no network in this file"),
    ],
)
def test_what_is_no_model_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(saved(tmp_path, content))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "there is no such file; check the path" in refusal(tmp_path / "absent.onnx")
    (tmp_path / "folder.onnx").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder.onnx")


@pytest.mark.parametrize("opset", [1, 6])
def test_ancient_opset_is_refused(tmp_path: Path, opset: int) -> None:
    text = refusal(saved(tmp_path, mlp(opset=opset).SerializeToString()))
    assert f"opset {opset} is too old" in text and "version_converter" in text


def test_opset_from_the_future_is_refused(tmp_path: Path) -> None:
    newest = onnx.defs.onnx_opset_version()
    text = refusal(saved(tmp_path, mlp(opset=newest + 1).SerializeToString()))
    assert f"opset {newest + 1} is newer than the installed onnx knows (up to {newest})" in text


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 17, 20])
def test_every_opset_since_seven_loads(tmp_path: Path, opset: int) -> None:
    model = agrees(loaded(mlp(opset=opset), tmp_path))
    assert model.opset == opset


def test_operator_that_its_opset_lacks_is_refused(tmp_path: Path) -> None:
    model = graph([node("Gelu", ["x"], ["y"])], {}, opset=13)
    assert "not a valid ONNX model" in refusal(saved(tmp_path, model.SerializeToString()))


def test_oddities_that_onnxruntime_accepts_are_accepted(tmp_path: Path) -> None:
    model = mlp()
    model.graph.name = ""  # the checker insists on a name
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    agrees(loaded(model, tmp_path))


def test_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, mlp().SerializeToString())
    assert read_file(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_external_data_beside_the_file_is_read_and_hashed(tmp_path: Path) -> None:
    path = with_external(tmp_path)
    model = agrees(load(path, Settings()))
    weight = next(model.network.parameters()).numpy()
    np.testing.assert_array_equal(weight, weights(5, 4))
    content = path.read_bytes() + (tmp_path / "weights.bin").read_bytes()
    assert model.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/passwd", "sub/../../weights.bin", "sub/weights.bin", "", ".."]
)
def test_external_data_elsewhere_is_not_followed(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    text = refusal(with_external(folder, location))
    assert repr(location) in text and "outside the model's own folder, which is not followed" in text


def test_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = with_external(folder)
    (folder / "weights.bin").rename(tmp_path / "secret.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "secret.bin")
    assert "outside the model's own folder" in refusal(path)


def test_missing_and_short_external_data(tmp_path: Path) -> None:
    path = with_external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(20))
    assert "too short for the weights of 'fc1.weight' that model.onnx expects in it" in refusal(path)
    (tmp_path / "weights.bin").unlink()
    assert "'weights.bin', which is missing; put that file beside the model" in refusal(path)


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    model = mlp()
    broken = weights(5, 4)
    broken[2, 1] = np.nan
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(broken, "fc1.weight"))
    text = refusal(saved(tmp_path, model.SerializeToString()))
    assert "fc1" in text and "NaN" in text


def test_external_data_in_a_constant_node(tmp_path: Path) -> None:
    array = weights(4, 3)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], array.tobytes(), raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(array.tobytes())
    model = graph([node("Constant", [], ["w"], value=tensor), node("MatMul", ["x", "w"], ["y"])], {})
    path = saved(tmp_path, model.SerializeToString())
    np.testing.assert_array_equal(next(load(path, Settings()).network.parameters()).numpy(), array.T)
