"""Random networks: what onnxruntime answers is what the audited network answers; none that runs is refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from audit.errors import ModelError
from audit.model import load_model
from audit.model.base import HEADS
from audit.model.parity import check_behaviour, check_parity
from audit.settings import Settings
from fuzz.exported import EXPORTERS, random_module, write
from fuzz.graphs import NEWEST, OLDEST, random_network

FEW, ALL = 40, 2000
VANISHING = 1e-3  # an output that is what rounding leaves of a difference, such as x - relu(x), may be refused
CLOSE = 1e-4  # of the largest output: the file computes in single precision


def answers_alike(seed: int, folder: Path) -> int:
    """What a network written by hand answers; the opset is returned."""
    made, x = random_network(seed)
    path = folder / "random.onnx"
    path.write_bytes(made.SerializeToString())
    answers_as_onnxruntime(path, x)
    return int(made.opset_import[0].version)


def answers_as_onnxruntime(path: Path, x: np.ndarray) -> None:
    """Audits' own gate passes, and an independent look agrees."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    model = load_model(path, Settings())
    check_behaviour(model, x)
    try:
        check_parity(model, x)
    except ModelError:
        assert np.abs(expected).max() < VANISHING
        return
    with torch.no_grad():
        scores = model.network.double()(torch.from_numpy(x).double())
    got = HEADS[model.head](scores).numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE * max(1.0, float(np.abs(expected).max())))


def exported_alike(seed: int, exporter: str, folder: Path) -> None:
    """What a network of PyTorch's answers, as an exporter writes it in one of its opsets."""
    network, x = random_module(seed)
    opset = random.Random(seed).choice(EXPORTERS[exporter])
    write(network, x, exporter, opset, folder / "exported.onnx")
    answers_as_onnxruntime(folder / "exported.onnx", x.numpy())


def test_a_few_random_networks(tmp_path: Path) -> None:
    opsets = {answers_alike(seed, tmp_path) for seed in range(FEW)}
    assert min(opsets) == OLDEST and max(opsets) >= NEWEST - 1


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, ALL, ALL // 20))
def test_all_random_networks(start: int, tmp_path: Path) -> None:
    for seed in range(start, start + ALL // 20):
        answers_alike(seed, tmp_path)


def test_a_few_exported_networks(tmp_path: Path) -> None:
    for seed in range(6):
        exported_alike(seed, "older", tmp_path)  # the newer one takes seconds to wake


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("start", range(0, ALL // 2, ALL // 20))
def test_all_exported_networks(exporter: str, start: int, tmp_path: Path) -> None:
    for seed in range(start, start + ALL // 20):
        exported_alike(seed, exporter, tmp_path)
