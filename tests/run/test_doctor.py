"""The doctor on networks trained for the test: silent where they are fed rightly, and with the right flag where not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from formats import QUICK, splits
from torch import nn

from audit import Report, audit_model
from audit.report.conduct import EXACT, Plan
from audit.run.doctor import LEAST, Patient, _rows
from audit.settings import Settings, from_report


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    """Digits as uint8 [n, 8, 8], and their labels."""
    data = splits("digits")
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    return (240 * x[:, 0]).round().astype(np.uint8), y


@cache
def trained(norm: bool = False, colour: bool = False, mean: float = 0.0, std: float = 1.0) -> nn.Module:
    """A small network on pixels between 0 and 1, with these subtracted and divided by."""
    torch.manual_seed(0)
    x, y = images()
    fed = torch.from_numpy((x / 255 - mean) / std).float()[:, None]
    fed = torch.cat([fed, fed.flip(2), 1 - fed], 1) if colour else fed
    channels = fed.shape[1]
    network = built(channels, norm)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(15):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(fed[rows]), torch.from_numpy(y[rows])).backward()
            optimizer.step()
    return network.eval()


def built(channels: int = 1, norm: bool = False) -> nn.Module:
    """A convolution, and a dense layer so small that its directions are found in no time."""
    first = [nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(72, 10))


def audited(network: nn.Module, x: np.ndarray, y: np.ndarray, **flags: Any) -> Report:
    """The first two thirds are train."""
    cut = 2 * len(x) // 3
    return audit_model(network, (x[:cut], y[:cut]), (x[cut:], y[cut:]), **(QUICK | {"quick": True} | flags))


@cache
def rightly(norm: bool) -> Report:
    return audited(trained(norm), *images())


def found(report: Report) -> dict[str, str]:
    ids = ("preprocessing", "class-order", "wrong-input", "batch-norm", "input-range")
    return {finding.id: finding.advice for finding in report.findings if finding.id in ids}


@pytest.mark.parametrize("norm", [False, True])
def test_a_network_that_is_fed_rightly_is_left_alone(norm: bool) -> None:
    report = rightly(norm)
    assert found(report) == {} and report.doctor is not None and report.warnings == []
    assert report.doctor.samples == min(256, report.data.train.samples)
    assert report.doctor.preferred is None and report.doctor.misordered is None


@pytest.mark.parametrize("norm", [False, True])
def test_the_flag_that_is_missing_is_printed_and_mends_it(norm: bool) -> None:
    network = trained(norm, mean=0.5, std=0.25)
    wrong = audited(network, *images())
    assert list(found(wrong)) == ["preprocessing"]
    (warning,) = wrong.warnings
    assert "The model is probably not fed as in training. Fed with --mean" in warning
    assert wrong.doctor is not None and wrong.doctor.preferred is not None
    flags = wrong.doctor.preferred.cure.split()
    pasted = dict(zip((flag[2:] for flag in flags[::2]), flags[1::2], strict=True))
    mended = audited(network, *images(), **{key: tuple(map(float, value.split(","))) for key, value in pasted.items()})
    assert mended.gap.train_loss < 0.5 * wrong.gap.train_loss
    assert mended.doctor is not None
    assert mended.doctor.trials[0].loss == pytest.approx(wrong.doctor.preferred.loss, rel=1e-4)


def test_raw_pixels_are_found_and_nothing_is_changed() -> None:
    x, y = images()
    report = audited(trained(True), x.astype(np.float32), y)
    assert "--scale 0.00392157" in found(report)["preprocessing"]
    assert report.doctor is not None and report.doctor.first_layer is not None
    assert report.doctor.first_layer.highest == 240.0 and report.settings["scale"] is None
    assert report.not_judged[0].what == "How the model does on unseen data"


def test_raw_pixels_are_found_where_they_cost_no_answer() -> None:
    """Without biases a ReLU network gives the same answers at every scale, and is the surer the larger its inputs."""
    torch.manual_seed(0)
    x, y = images()
    fed, labels = torch.from_numpy(x / 255).float().flatten(1), torch.from_numpy(y)
    network = nn.Sequential(nn.Linear(64, 60, bias=False), nn.ReLU(), nn.Linear(60, 10, bias=False))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(fed), labels).backward()
        optimizer.step()
    raw, right = audited(network, x.reshape(len(x), -1).astype(np.float32), y), audited(network, fed.numpy(), y)
    assert raw.gap.train_error == right.gap.train_error == 0 and found(right) == {}
    assert found(raw)["preprocessing"].startswith("Say --scale 0.00392157 and audit again")
    assert "numbers of the size that its first layer is made for" in raw.warnings[0]


def test_reversed_channels_are_found() -> None:
    x, y = images()
    colour = np.stack([x, x[:, ::-1], 255 - x], -1)[..., ::-1]
    report = audited(trained(colour=True), colour, y)
    assert found(report)["preprocessing"].startswith("Say --channels bgr and audit again")
    mended = audited(trained(colour=True), colour, y, channels="bgr")
    assert found(mended) == {} and mended.gap.train_error == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("moved", [[1, 0, 2], [1, 2, 0]])
def test_classes_in_another_order_are_named_with_the_flag_that_puts_them_right(moved: list[int]) -> None:
    x, y = images()
    places = np.array([*moved, *range(3, 10)])
    report = audited(trained(), x, places[y])
    (advice,) = found(report).values()
    order = advice.split("--classes ")[1].split(", and")[0].rstrip(",")
    assert "would be with --classes" in report.warnings[0] and order in report.warnings[0]
    mended = audited(trained(), x, places[y], classes=tuple(order.split(",")))
    assert found(mended) == {} and mended.gap.train_error == rightly(False).gap.train_error


def test_labels_that_are_places_in_named_classes_are_put_right_by_number() -> None:
    x, y = images()
    names = tuple("abcdefghij")
    places = np.array([1, 0, *range(2, 10)])
    report = audited(trained(), x, places[y], classes=names)
    assert found(report)["class-order"].startswith("Say --classes 1,0,2,3,4,5,6,7,8,9, and")
    assert report.doctor is not None and report.doctor.class_order is not None
    assert sorted(report.doctor.class_order.moved) == ["a", "b"]


def test_a_batch_norm_with_statistics_of_other_data_is_named() -> None:
    network = trained(True)
    state = {key: value.clone() for key, value in network.state_dict().items()}
    other = built(norm=True)
    state["1.running_mean"] += 2 * state["1.running_var"].sqrt()
    other.load_state_dict(state)
    report = audited(other.eval(), *images())
    assert "batch-norm" in found(report) or "preprocessing" in found(report)
    assert report.doctor is not None and report.doctor.batch_norms[0].shift == pytest.approx(2, abs=0.2)


def test_a_large_network_is_tried_on_fewer_samples() -> None:
    class Long:
        def __len__(self) -> int:
            return 1000

    patient = replace(Patient(None, None, "classification", Settings(), None), data=_data(1000))  # type: ignore[arg-type]
    assert len(_rows(patient, EXACT)) == 256
    large = Plan(budget=300.0, operations=1e10, speed=2.0**36)
    assert len(_rows(patient, large)) == LEAST
    middle = Plan(budget=300.0, operations=2e8, speed=2.0**36)
    assert LEAST < len(_rows(patient, middle)) < 256


def _data(samples: int) -> Any:
    from pathlib import Path

    from audit.data.dataset import Data, Split

    split = Split(np.zeros((samples, 2), np.float32), np.zeros(samples, np.int64), samples)
    return Data(split, split, path=Path("x"), layout="npz", sha256="", classes=None)


def test_whole_numbers_are_not_scaled() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 2))
    x = np.random.default_rng(0).integers(0, 20, (60, 3))
    report = audited(network, x, x[:, 0] % 2)
    assert report.doctor is not None and report.doctor.trials == []
    assert report.doctor.skipped == "the inputs are whole numbers, which are neither scaled nor shifted"
    assert from_report(report.settings, "report").scale is None
