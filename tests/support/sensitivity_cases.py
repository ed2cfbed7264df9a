"""Networks and data that sensitivity is tested on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from audit.measures.contract import Measurement
from audit.measures.sensitivity.measure import Sensitivity
from audit.network.record import Products


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = x + torch.relu(self.a(x))
        return self.head(x + torch.tanh(self.b(x)))


class Attention(nn.Module):
    def __init__(self, tokens: int = 3) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(tokens, 4))
        self.embed, self.q, self.k, self.v = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.embed(x) + self.place
        weights = (self.q(x) @ self.k(x).mT / 2).softmax(-1)
        return self.head(self.norm(x + weights @ self.v(x)).mean(1))


def _mlp(*widths: int, act: type[nn.Module] = nn.ReLU, bias: bool = True, norm: bool = False) -> nn.Sequential:
    parts: list[nn.Module] = []
    for place, (a, b) in enumerate(pairwise(widths)):
        parts.append(nn.Linear(a, b, bias=bias))
        if place < len(widths) - 2:
            parts += [nn.BatchNorm1d(b)] * norm + [act()]
    return nn.Sequential(*parts)


CONV = [nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 2, groups=1), nn.Flatten()]

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str], str]] = {
    "relu": (lambda: _mlp(6, 9, 7, 3), (6,), ["0", "2", "4"], "classification"),
    "tanh": (lambda: _mlp(6, 9, 3, act=nn.Tanh), (6,), ["0", "2"], "classification"),
    "gelu": (lambda: _mlp(6, 9, 3, act=nn.GELU), (6,), ["0", "2"], "classification"),
    "wide-input": (lambda: _mlp(40, 8, 3), (40,), ["0", "2"], "classification"),
    "batch-norm": (lambda: _mlp(6, 9, 8, 3, norm=True), (6,), ["0", "3", "6"], "classification"),
    "bias-free": (lambda: _mlp(6, 9, 3, bias=False), (6,), ["0", "2"], "classification"),
    "linear": (lambda: _mlp(6, 3), (6,), ["0"], "classification"),
    "binary": (lambda: _mlp(6, 9, 1), (6,), ["0", "2"], "binary"),
    "regression": (lambda: _mlp(6, 9, 2), (6,), ["0", "2"], "regression"),
    "one-weight": (lambda: _mlp(1, 1), (1,), ["0"], "regression"),
    "conv": (
        lambda: nn.Sequential(*CONV, nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3)),
        (1, 8, 8),
        ["4", "6"],
        "classification",
    ),
    "residual": (Residual, (5,), ["a", "b", "head"], "classification"),
    "attention": (Attention, (3, 5), ["embed", "q", "k", "v", "head"], "classification"),
    "flat-tokens": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
        (3, 5),
        ["0", "3"],
        "classification",
    ),
}


def measure(make_audit, network, x, y, task="classification", **knobs) -> Measurement:
    audit = make_audit(network, x, y, x[:4], y[:4], task=task, **{"bootstrap": 20, **knobs})
    fold = Sensitivity().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    measurement = fold.finish()
    json.dumps([asdict(measurement.network), {k: asdict(v) for k, v in measurement.layers.items()}], allow_nan=False)
    return measurement


def samples(shape: tuple[int, ...], task: str, n: int = 13, seed: int = 0, outputs: int = 3):
    rng = np.random.default_rng(seed)
    y = {"classification": rng.integers(0, 3, n), "binary": rng.integers(0, 2, n)}.get(task)
    return rng.normal(size=(n, *shape)), rng.normal(size=(n, outputs)) if y is None else y
