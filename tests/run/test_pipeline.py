"""The whole road: its numbers depend on the network and the data, not on how much memory there is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from formats import Splits, audited, data_of, differences, example_of, trained, write_onnx
from PIL import Image
from places import ROOT
from torch import nn

from audit import audit_model
from audit.data.preprocess import preprocess
from audit.errors import BudgetError, ModelError
from audit.run.list_layers import list_layers
from audit.settings import Settings


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("road")
    data_of("tanh").save(folder / "data")
    return write_onnx(trained("tanh"), example_of("tanh"), folder / "model.onnx", opset=13), folder / "data"


def test_a_small_memory_changes_no_number(files: tuple[Path, Path]) -> None:
    plenty, little = (audited(*files, memory=memory) for memory in ("1GB", "200KB"))
    assert little["settings"].pop("memory") != plenty["settings"].pop("memory")
    assert differences(plenty, little) == []


def test_too_little_memory_says_how_much_is_needed(files: tuple[Path, Path]) -> None:
    with pytest.raises(
        BudgetError, match=r"The memory budget of 10 KB is too small: .* raise --memory or lower --samples"
    ):
        audited(*files, memory="10KB")


def test_samples_that_were_left_out_are_stated(files: tuple[Path, Path]) -> None:
    data = audited(*files, samples=40, test_samples=20)["data"]
    assert (data["train"]["samples"], data["train"]["total"]) == (40, 110)
    assert (data["test"]["samples"], data["test"]["total"]) == (20, 60)
    assert sum(data["train"]["class_counts"].values()) == 40


def test_every_hash_and_every_setting_is_in_the_report(files: tuple[Path, Path]) -> None:
    first, second = audited(*files), audited(*files, seed=1)
    assert first["model"]["sha256"] == second["model"]["sha256"] and len(first["data"]["sha256"]) == 64
    assert set(first["settings"]) == set(Settings.__dataclass_fields__)
    assert differences(first["gap"]["train_loss"], second["gap"]["train_loss"]) == []
    assert first["gap"]["loss_gap_ci95"] != second["gap"]["loss_gap_ci95"]


def test_samples_are_fitted_once_also_where_the_number_type_shows_only_when_the_network_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))
    random = np.random.default_rng(0)
    (train, test), sizes = [(random.integers(0, 7, (n, 4)), np.arange(n) % 2) for n in (40, 30)], []

    def counted(x: np.ndarray, *others: Any) -> np.ndarray:
        sizes.append(len(x))
        return preprocess(x, *others)

    monkeypatch.setattr("audit.data.fit.preprocess", counted)
    report = audit_model(network, train, test, bootstrap=10, widths=0)
    assert "Inputs are fed as int64, neither scaled nor shifted." in report.data.notes
    assert [size for size in sizes if size > 8] == [40, 30]


def test_images_go_into_a_network_of_unstated_shape_where_only_one_reading_is_left(tmp_path: Path) -> None:
    """8×8 images could be rows, planes or vectors; a network that flattens them answers all of these alike."""
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def flat(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 2))\n"
        "def conv(): return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))\n"
    )
    draw = np.random.default_rng(0)
    for split, label in product(("train", "test"), ("dark", "light")):
        (tmp_path / "data" / split / label).mkdir(parents=True)
        for place in range(8):
            pixels = draw.integers(0, 256, (8, 8), dtype=np.uint8) // (2 if label == "dark" else 1)
            Image.fromarray(pixels).save(tmp_path / "data" / split / label / f"{place}.png")
    for name in ("flat", "conv"):
        sys.path.insert(0, str(tmp_path))
        torch.manual_seed(0)
        torch.save(getattr(import_module("nets"), name)().state_dict(), tmp_path / f"{name}.pt")
        sys.path.pop(0)
        report = audited(tmp_path / f"{name}.pt", tmp_path / "data", arch=f"{tmp_path}/nets.py:{name}")
        assert report["model"]["input"]["dtype"] == "float32"
        assert (report["model"]["input"]["shape"] == [1, 8, 8]) == (name == "conv")


def test_a_file_that_cannot_run_on_its_own_shape_is_refused_without_data(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    gemm = helper.make_node("Gemm", ["x", "fc.weight"], ["y"], transB=1)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 2), ("y", 3))]
    weight = numpy_helper.from_array(np.ones((3, 4), np.float32), "fc.weight")
    graph = helper.make_graph([gemm], "graph", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    assert onnx.load(tmp_path / "odd.onnx").graph.node
    with pytest.raises(ModelError, match=r"odd\.onnx: .*export .*again"):
        list_layers(tmp_path / "odd.onnx", Settings())


@pytest.mark.slow
def test_memory_stays_flat_when_the_samples_grow_tenfold(tmp_path: Path) -> None:
    """The largest memory of the process, beyond what ten times the data itself takes."""
    model = write_onnx(trained("relu"), example_of("relu"), tmp_path / "model.onnx", opset=13)
    peaks = [_peak(model, _grown(times).save(tmp_path / f"times{times}")) for times in (20, 200)]
    extra_data = 180 * 110 * (13 * 4 + 8) / 2**20
    assert peaks[1] - peaks[0] < 60 + 4 * extra_data  # megabytes


def _grown(times: int) -> Splits:
    data, random = data_of("relu"), np.random.default_rng(0)
    x = np.concatenate(
        [data.x_train + random.normal(0, 0.1, data.x_train.shape).astype(np.float32) for _ in range(times)]
    )
    return Splits(x, np.tile(data.y_train, times), data.x_test, data.y_test)


def _peak(model: Path, data: Path) -> float:
    """Megabytes that an audit under a small budget takes at most."""
    asked = ["report", model, data, "-o", data / "out", "-f", "json", "-q", "--memory", "100MB", "--samples", "0"]
    code = "import resource; from audit.cli import app\ntry: app()\nexcept SystemExit as end: assert not end.code\n"
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, asked)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the system says nowhere else what a process takes")
def test_a_model_is_run_within_the_limit_from_its_first_run_on(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    pipeline, limits = import_module("audit.run.pipeline"), []
    fitted = pipeline.fit

    def fit(*given: Any) -> Any:
        limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
        return fitted(*given)

    monkeypatch.setattr(pipeline, "fit", fit)
    report = audited(*files)
    assert len(limits) == 1 and limits[0] not in (resource.RLIM_INFINITY, -1)
    assert report["tool"]["threads"] == torch.get_num_threads() and report["tool"]["digits"] == 6
