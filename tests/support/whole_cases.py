"""The whole audits that are laid beside the slow reference: a trained network, a few real samples and the settings."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import format_networks
import formats
import numpy as np
import torch
import whole_networks
from formats import Splits, audited, loss_of, splits, task_of, write_state
from references.whole import Problem
from torch import nn

SETTINGS: dict[str, Any] = {"seed": 3, "subsets": 4, "subset_size": 12, "widths": 2, "volume": 2.0, "delta": 0.1}
FEW = 36, 18


@dataclass(frozen=True)
class Case:
    """A network by the name of its factory, and its layers as the report should list them, first to last."""

    network: str
    layers: tuple[str, ...]
    convolutions: tuple[str, ...] = ()  # those of `layers` that are convolutions
    shared: tuple[str, ...] = ()  # those whose weights act in another place, too
    fed_by_itself: tuple[str, ...] = ()  # those that act again on their own answers
    settings: dict[str, Any] = field(default_factory=dict)
    soiled: bool = False  # with copies, near copies, contradictions and wrong labels among the samples

    @property
    def task(self) -> str:
        """Of the networks of this file's own, the first has one output for two classes."""
        return {"token_mean": "binary", "siamese": "regression", "compared": "regression"}.get(
            self.network, task_of(self.network)
        )

    @property
    def data(self) -> Splits:
        """A few samples, evenly spaced."""
        data = _data_of(self.network)
        few = [np.linspace(0, len(y) - 1, n).astype(int) for y, n in zip((data.y_train, data.y_test), FEW, strict=True)]
        few_data = Splits(data.x_train[few[0]], data.y_train[few[0]], data.x_test[few[1]], data.y_test[few[1]])
        return (
            _soiled(few_data, 1 if self.task == "regression" else int(few_data.y_train.max()))
            if self.soiled
            else few_data
        )

    def report(self, folder: Path) -> dict[str, Any]:
        """As the JSON says it."""
        weights = write_state(trained(self.network, self.task), torch.empty(0), folder / "weights.pth")
        arch = f"{_home(self.network).__file__}:{self.network}"
        return audited(weights, self.data.save(folder / "data"), arch=arch, **(SETTINGS | self.settings))

    def problem(self) -> Problem:
        """The same network and samples in float64."""
        network = copy.deepcopy(trained(self.network, self.task)).double().requires_grad_(False)
        data = self.data
        x, y, x_test, y_test = map(torch.from_numpy, (data.x_train, data.y_train, data.x_test, data.y_test))
        y, y_test = (values.double() if self.task == "regression" else values.long() for values in (y, y_test))
        x, x_test = (values.double() if values.is_floating_point() else values for values in (x, x_test))
        return Problem(
            *(network, x, y, x_test, y_test, self.task, self.layers),
            convolutions=self.convolutions,
            shared=self.shared,
            fed_by_itself=self.fed_by_itself,
            partner_space=self.settings.get("partner_space", "input"),
        )


def _soiled(data: Splits, last: int) -> Splits:
    """Copies within and across the splits, some with another label, a near copy, and labels that are wrong."""
    x, y, x_test, y_test = (part.copy() for part in (data.x_train, data.y_train, data.x_test, data.y_test))
    x[5], y[5] = x[4], y[4]
    x[7], y[7] = x[6], last - y[6]
    x_test[0], y_test[0] = x[0], y[0]
    x_test[1], y_test[1] = x[1], y[1]
    x_test[2], y_test[2] = x[2], last - y[2]
    x_test[4], y_test[4] = x_test[3], y_test[3]
    x_test[6], y_test[6] = x[8] + np.float32(1e-3), y[8]
    y[10:13] = last - y[10:13]
    return Splits(x, y, x_test, y_test)


def _home(network: str) -> Any:
    return whole_networks if hasattr(whole_networks, network) else format_networks


@cache
def _data_of(network: str) -> Splits:
    """Real data; 30 features are 5 tokens of 6, and pixels of 17 shades are words."""
    if network in ("siamese", "compared"):
        return splits("diabetes")
    if network in ("shared_weights", "there_and_back"):
        return splits("wine")
    if network in ("words", "tied_words"):
        data, largest = splits("digits"), 16 if network == "words" else 9
        x, x_test = (np.rint(largest * x[:, 0, 2:6, 3]).astype(np.int64) for x in (data.x_train, data.x_test))
        return Splits(x, data.y_train, x_test, data.y_test)
    if hasattr(whole_networks, network):
        data = splits("breast_cancer")
        return Splits(data.x_train.reshape(-1, 5, 6), data.y_train, data.x_test.reshape(-1, 5, 6), data.y_test)
    return formats.data_of(network)


@cache
def trained(network: str, task: str) -> nn.Module:
    """After a short training, in eval mode; not to be changed."""
    if not hasattr(whole_networks, network):
        return formats.trained(network)
    torch.manual_seed(0)
    built: nn.Module = getattr(whole_networks, network)()
    data = _data_of(network)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    optimiser = torch.optim.Adam(built.parameters(), 0.02)
    for _ in range(30):
        optimiser.zero_grad()
        loss_of(task, built(x), y).backward()
        optimiser.step()
    return built.eval()
