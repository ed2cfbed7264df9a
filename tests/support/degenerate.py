"""Tiny networks and data in odd sizes and shapes, audited from file to JSON."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from formats import QUICK, Splits, write_pt2
from hypothesis import strategies as st
from torch import nn

from audit.run.pipeline import run_audit
from audit.run.progress import Progress
from audit.settings import Settings

SIZES = (1.0, 1.0, 1.0, 0.0, 1e-30, 1e-8, 1e3, 1e8, 1e30)
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "none": nn.Identity}


def audited_arrays(network: nn.Module, data: Splits, folder: Path, **settings: Any) -> dict[str, Any]:
    """The report as its JSON says it. A warning of numpy's about a number that is none is an error here."""
    network = network.double().eval()
    model = write_pt2(network, torch.from_numpy(data.x_train[:2]).double(), folder / "model.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        chosen = Settings(**{**QUICK, "bootstrap": 20, "subset_size": 5, **settings})
        report = run_audit(model, data.save(folder / "data"), chosen, "", Progress()).report
    found: dict[str, Any] = json.loads(report.to_json())
    return found


@dataclass(frozen=True)
class Recipe:
    """What to draw a network and its data from."""

    seed: int
    inputs: int
    hidden: int
    outputs: int
    depth: int
    activation: str
    bias: bool
    task: str
    weights: float  # size of the weights
    size: float  # … of the inputs
    targets: float  # … of a regression's targets
    rows: str  # plain, constant, repeated, some zero, leaked or binary
    train: int
    test: int

    def network(self) -> nn.Module:
        torch.manual_seed(self.seed)
        widths = [self.inputs, *[self.hidden] * self.depth, self.outputs]
        layers: list[nn.Module] = []
        for given, answered in pairwise(widths):
            layers += [nn.Linear(given, answered, self.bias), ACTIVATIONS[self.activation]()]
        network = nn.Sequential(*layers[:-1]).double().requires_grad_(False)
        for place, parameter in enumerate(network.parameters()):
            parameter.mul_(self.weights if (self.seed + place) % 3 else 1.0)
        return network

    def data(self) -> Splits:
        rng, n = np.random.default_rng(self.seed), self.train + self.test
        x = self._rows(rng, rng.normal(size=(n, self.inputs)) * self.size)
        if self.task == "regression":
            y = rng.normal(size=(n, self.outputs)) * self.targets
        else:
            y = rng.integers(0, max(2, self.outputs), n)
            y[:2] = 0, 1
        return Splits(x[: self.train], y[: self.train], x[self.train :], y[self.train :])

    def _rows(self, rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
        if self.rows == "constant":
            x[:] = x[0]
        elif self.rows == "repeated":
            x = x[rng.integers(0, max(1, len(x) // 4), len(x))]
        elif self.rows == "some zero":
            x[rng.random(len(x)) < 0.4] = 0
        elif self.rows == "leaked":
            x[self.train :] = x[rng.integers(0, self.train, self.test)]
        elif self.rows == "binary":
            x = (x > 0).astype(np.float64)
        return x


def _recipe(**parts: Any) -> Recipe:
    return Recipe(**{**parts, "outputs": 1 if parts["task"] == "binary" else max(2, parts["outputs"])})


RECIPES = st.builds(
    _recipe,
    seed=st.integers(0, 10**6),
    inputs=st.integers(1, 4),
    hidden=st.integers(1, 4),
    outputs=st.integers(1, 5),
    depth=st.integers(0, 2),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    bias=st.booleans(),
    task=st.sampled_from(["classification", "binary", "regression"]),
    weights=st.sampled_from(SIZES),
    size=st.sampled_from(SIZES),
    targets=st.sampled_from(SIZES),
    rows=st.sampled_from(["plain", "constant", "repeated", "some zero", "leaked", "binary"]),
    train=st.integers(3, 30),
    test=st.integers(2, 15),
)
