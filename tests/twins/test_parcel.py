"""What is sent to another process is the same there, whatever file the network came from."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from formats import ARCHITECTURES, FORMATS, data_of, example_of, trained, write_onnx
from places import ROOT
from torch import nn

from audit.run.pipeline import files_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins.kinds import KINDS
from audit.twins.problem import set_problem
from audit.twins.worker import CannotTravel, parcel_of, saved_parcel

OPEN = """
import sys, torch
from pathlib import Path
from audit.twins.worker import saved_parcel
for folder in map(Path, sys.argv[1:]):
    network, x = saved_parcel(folder).opened()
    torch.save(network(x).detach(), folder / "scores.pt")
"""


@pytest.mark.parametrize("name", ["relu", pytest.param("batch_norm", marks=pytest.mark.slow)])
def test_a_network_of_any_format_arrives(name: str, tmp_path: Path) -> None:
    x, sent = example_of(name), {}
    data = data_of(name).save(tmp_path / "data")
    for form, (file, write) in FORMATS.items():
        (folder := tmp_path / form).mkdir()
        settings = Settings(arch=f"{ARCHITECTURES}:{name}" if form in ("state_dict", "safetensors") else None)
        model = write(trained(name), x, folder / file)
        network = set_problem(files_of(model, data), settings, Progress()).architecture.network
        parcel_of((network, x)).save(folder)
        sent[folder] = network(x).detach()
    subprocess.run([sys.executable, "-c", OPEN, *sent], check=True, cwd=ROOT)
    for folder, scores in sent.items():
        assert torch.equal(torch.load(folder / "scores.pt"), scores), folder.name


def test_arrays_are_mapped_and_can_be_written_to_without_harm(tmp_path: Path) -> None:
    x, rows = torch.randn(50, 3), np.arange(7)
    sent = {"x": x, "rows": rows, "none": torch.empty(0, 3), "bfloat": x.bfloat16(), "layer": nn.Linear(3, 2)}
    parcel_of(sent).save(tmp_path)
    found, again = (saved_parcel(tmp_path).opened() for _ in range(2))
    found["x"][0] = 5.0
    assert torch.equal(again["x"], x) and torch.equal(found["x"][1:], x[1:])
    assert np.array_equal(found["rows"], rows) and found["none"].shape == (0, 3)
    assert torch.equal(found["bfloat"], sent["bfloat"])
    assert torch.equal(found["layer"].weight, sent["layer"].weight) and found["layer"].weight.requires_grad
    assert (tmp_path / "value.pickle").stat().st_size < 5000  # tensors are no part of the stream


def test_a_problem_and_all_kinds_arrive(tmp_path: Path) -> None:
    """The runtime of an ONNX file cannot be sent; a problem does without it."""
    file = write_onnx(trained("relu"), example_of("relu"), tmp_path / "model.onnx", opset=13)
    problem = set_problem(files_of(file, data_of("relu").save(tmp_path / "data")), Settings(), Progress())
    found, kinds = parcel_of((problem, KINDS)).opened()
    assert found.about(None) == problem.about(None)
    assert [kind.name for kind in kinds] == [kind.name for kind in KINDS]


def test_what_has_no_meaning_elsewhere_is_named() -> None:
    with pytest.raises(CannotTravel, match=r"TypeError: cannot pickle '_thread\.lock' object"):
        parcel_of(threading.Lock())
