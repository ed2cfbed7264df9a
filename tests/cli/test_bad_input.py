"""Whatever is wrong with the input: exit code 2, one sentence that names the file and the remedy, nothing written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from forks import complaints
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from typer.testing import CliRunner

from audit.cli import app, main

WEIGHTS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """`run("model.onnx", "data")` in a folder of its own: the sentence it fails with."""
    monkeypatch.chdir(tmp_path)

    def fails(model: str = "model.onnx", data: str = "data", *flags: str) -> str:
        before = sorted(Path().rglob("*"))
        monkeypatch.setattr(sys, "argv", ["gen-audit", "report", model, data, "-o", "out", *flags])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        assert caught.value.code == 2, printed.err
        assert sorted(Path().rglob("*")) == before  # nothing written
        assert printed.out == ""
        (line,) = complaints(printed.err).splitlines()
        assert line.startswith("gen-audit: ") and line.endswith(".")
        return line.removeprefix("gen-audit: ")

    save_model(Path("model.onnx"))
    save_data(Path("data"))
    yield fails


def dense_graph(
    nodes: list[onnx.NodeProto], outputs: int = 3, weights: np.ndarray = WEIGHTS, **constants: np.ndarray
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(values, name) for name, values in {"fc.weight": weights, **constants}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save_model(path: Path, weights: np.ndarray = WEIGHTS) -> None:
    onnx.save(dense_graph([helper.make_node("Gemm", ["x", "fc.weight"], ["f"], transB=1)], weights=weights), path)


def save_data(folder: Path, x: np.ndarray = X, y: np.ndarray = Y, splits: tuple[str, ...] = ("train", "test")) -> None:
    folder.mkdir(exist_ok=True)
    for split in splits:
        np.savez(folder / f"{split}.npz", x=x, y=y)


Run = Callable[..., str]


def test_a_missing_model(run: Run) -> None:
    assert run("nowhere.onnx") == "nowhere.onnx: there is no such file; check the path of the model."


def test_an_empty_model(run: Run) -> None:
    Path("empty.onnx").touch()
    assert run("empty.onnx") == "empty.onnx: is empty; export or download the model again."


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_model(run: Run, share: float) -> None:
    content = Path("model.onnx").read_bytes()
    Path("cut.onnx").write_bytes(content[: int(share * len(content))])
    assert run("cut.onnx") == (
        "cut.onnx: not a readable ONNX file, it is cut short, damaged or of another format; export or copy it again."
    )


def test_not_a_model(run: Run) -> None:
    Path("notes.onnx").write_text("a,b\n1,2\n")
    assert run("notes.onnx") == (
        "notes.onnx: is a CSV file; give a .onnx, .pt2, TorchScript, .safetensors or .pt/.pth file."
    )


def test_an_operator_that_cannot_be_converted_is_named_with_its_node(run: Run) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "fc.weight"], ["h"], name="fc", transB=1),
        helper.make_node("Hologram", ["h"], ["f"], name="shiny", domain="acme"),
    ]
    model = dense_graph(nodes)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(model, "odd.onnx")
    assert run("odd.onnx") == (
        "odd.onnx: the model uses operators that cannot be converted, Hologram-1 (acme, node 'shiny'): export the "
        "model again without them."
    )


def test_no_dense_layer(run: Run) -> None:
    kernel = np.random.default_rng(2).normal(size=(3, 1, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["image"]),
        helper.make_node("Conv", ["image", "conv.weight"], ["h"], name="conv"),
        helper.make_node("Squeeze", ["h", "last"], ["f"]),
    ]
    axes = {"axis": np.array([1]), "last": np.array([2])}
    model = dense_graph(nodes, **{"conv.weight": kernel}, **axes)
    del model.graph.initializer[0]  # the dense weights
    onnx.save(model, "conv.onnx")
    assert run("conv.onnx") == (
        "conv.onnx: no dense layer was found (it has conv (conv)); gen-audit measures dense layers, so audit a model "
        "that has one, such as a network with a linear head, or have its convolutions measured with --conv."
    )
    listing = CliRunner().invoke(app, ["layers", "conv.onnx"])
    assert listing.exit_code == 0 and "passed by" in listing.output and "no dense layer was found" in listing.output


def test_no_weights_at_all(run: Run) -> None:
    model = dense_graph([helper.make_node("Mul", ["x", "fc.weight"], ["f"])], 4, np.ones((1, 4), np.float32))
    onnx.save(model, "bare.onnx")
    assert run("bare.onnx") == "bare.onnx: has no parameters, so there is nothing to audit; give a trained network."


def test_nan_in_the_weights(run: Run) -> None:
    save_model(Path("sick.onnx"), np.where(np.arange(12).reshape(3, 4) == 6, np.nan, WEIGHTS).astype(np.float32))
    assert run("sick.onnx").startswith("sick.onnx: fc.weight holds 1 NaN or infinite value")


def save_double_model(path: Path, factor: float) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "fc.weight"], ["f"], transB=1)],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 4])],
        [helper.make_tensor_value_info("f", TensorProto.DOUBLE, ["n", 3])],
        [numpy_helper.from_array(WEIGHTS.astype(np.float64) * factor, "fc.weight")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_weights_whose_squares_overflow(run: Run) -> None:
    save_double_model(Path("model.onnx"), 1e200)
    sentence = run("model.onnx", "data", "--bootstrap", "10")
    assert sentence.endswith(
        "with inputs and weights of this size the arithmetic of the audit overflows; scale the inputs (--scale) or the "
        "model to ordinary sizes."
    )


def test_a_first_sample_that_overflows(run: Run) -> None:
    save_double_model(Path("model.onnx"), 10.0)
    x = X.astype(np.float64)
    x[0] = [1e308, -1e308, 1e308, 1e308]
    save_data(Path("data"), x=x)
    assert run() == (
        "model.onnx: onnxruntime answers with NaN or infinity, first for sample 0; check the preprocessing of the data "
        "and the weights of the model."
    )


def test_classes_that_the_model_file_calls_otherwise(run: Run) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "fc.weight"], ["z"], transB=1),
        helper.make_node("Softmax", ["z"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["f"], domain="ai.onnx.ml", classlabels_strings=["cat", "dog", "emu"]),
    ]
    model = dense_graph(nodes)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    label = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(label))
    onnx.save(model, "model.onnx")
    save_data(Path("data"), y=np.array(["chat", "chien", "emu"])[Y])
    assert run() == (
        "data: the labels chat, chien are not among the classes that the model file names (cat, dog, emu); say with "
        "--classes what your data call them, in the order of the model's outputs."
    )


def test_a_folder_that_takes_no_files(run: Run) -> None:
    sentence = run("model.onnx", "data", "-o", "/proc/report")
    assert sentence.startswith("/proc/report: cannot be written to (")


def test_a_missing_data_folder(run: Run) -> None:
    assert run(data="nowhere") == (
        "nowhere: there is no such folder; give the folder that holds the train and test data."
    )


def test_a_data_folder_without_a_split(run: Run) -> None:
    Path("bare").mkdir()
    assert run(data="bare").startswith("bare: the folder is empty; expected train and test as .npz, ")
    save_data(Path("half"), splits=("train",))
    assert run(data="half") == (
        "half: has a train split only; add the other split, or hold out a share of it with --test-fraction 0.2."
    )


def test_inputs_and_labels_of_different_length(run: Run) -> None:
    save_data(Path("uneven"), y=Y[:-1])
    assert run(data="uneven") == (
        "uneven/test.npz:x holds 12 samples but test.npz:y holds 11 labels; they must pair up one to one."
    )


def test_labels_beyond_the_outputs(run: Run) -> None:
    save_data(Path("beyond"), y=np.arange(12) % 7)
    assert run(data="beyond") == (
        "beyond: has the label 3 but the model has 3 outputs, so labels go from 0 to 2; correct the labels, or check "
        "that this is the right model."
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_in_the_data(run: Run, bad: float) -> None:
    x = X.copy()
    x[5, 1] = bad
    save_data(Path("sick"), x=x)
    which = "train sample 5 (counted from 0)"
    assert run(data="sick") == f"sick/train.npz: {which} is NaN or infinite; correct or remove it."


def test_one_class(run: Run) -> None:
    save_data(Path("one"), y=Y * 0)
    assert run(data="one") == "one: every label is '0'; an audit needs at least two classes."


def test_one_sample(run: Run) -> None:
    save_data(Path("lone"), x=X[:1], y=Y[:1])
    assert run(data="lone") == "lone/train.npz: the train split has only one sample; an audit needs at least two."


def test_a_wrong_shape_shows_both(run: Run) -> None:
    save_data(Path("wide"), x=np.zeros((12, 5), np.float32))
    assert run(data="wide") == (
        "wide: samples have shape (5,) but the model's input is (4,); store the samples in the model's shape, or "
        "choose with --reshape."
    )


def test_an_unreadable_image_is_named(run: Run) -> None:
    for split in ("train", "test"):
        for label in ("a", "b", "c"):
            folder = Path("pictures") / split / label
            folder.mkdir(parents=True)
            for k in range(2):
                Image.fromarray(np.full((2, 2), 40 * k, np.uint8)).save(folder / f"{k}.png")
    broken = Path("pictures") / "train" / "b" / "1.png"
    broken.write_bytes(broken.read_bytes()[:40])
    sentence = run(data="pictures")  # the reason in brackets is Pillow's, and depends on what it has loaded before
    assert sentence.startswith("pictures/train/b/1.png: cannot be decoded as an image (")
    assert sentence.endswith("); replace or remove it.")


def test_too_small_a_memory_budget(run: Run) -> None:
    assert run("model.onnx", "data", "--memory", "1KB").startswith("The memory budget of 1 KB is too small: ")


def test_a_pickle_is_not_opened(run: Run) -> None:
    torch.save(torch.nn.Linear(4, 3), "whole.pt")
    sentence = run("whole.pt")
    assert sentence.startswith("whole.pt: ") and "--trust-pickle" in sentence and "--arch" in sentence


def test_a_state_dict_needs_an_architecture(run: Run) -> None:
    torch.save(torch.nn.Linear(4, 3).state_dict(), "weights.pt")
    assert run("weights.pt") == (
        "weights.pt: holds weights only (2 tensors, such as weight); name the code that builds their network with "
        "--arch package.module:factory or --arch path/to/file.py:factory."
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--seed", "x"), "--seed: 'x' is not a whole number (seed of every random choice)."),
        (("--task", "guess"), "--task: 'guess' is not one of auto, classification, binary, regression, tagging."),
        (("-f", "docx"), "-f: 'docx' names no format that exists; choose among html, pdf, json, md"),
        (
            ("--config", "none.toml"),
            "none.toml: cannot be opened (No such file or directory); name a settings file that exists.",
        ),
    ],
)
def test_nonsense_flags(run: Run, flags: tuple[str, ...], sentence: str) -> None:
    assert run("model.onnx", "data", *flags).startswith(sentence)


def test_the_good_case_is_good(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the others: the same files, unspoilt, pass."""
    monkeypatch.setattr(sys, "argv", ["gen-audit", "report", "model.onnx", "data", "-o", "out", "-f", "json", "-q"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (0, None)
    assert sorted(path.name for path in Path("out").iterdir()) == ["report.json"]


def test_several_columns_to_drop(run: Callable[..., str]) -> None:
    Path("table").mkdir()
    for split in ("train", "test"):
        Path(f"table/{split}.csv").write_text("id,day,f,y\n1,2,3,0\n4,5,6,1\n")
    assert run("model.onnx", "table", "--drop", "id", "--drop", "days") == (
        "table/train.csv: has no column 'days' to drop; its columns are id, day, f, y."
    )
    assert "samples have shape (1,)" in run("model.onnx", "table", "--drop", "id", "--drop", "day")
