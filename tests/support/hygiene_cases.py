"""Data that hygiene is tested on."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn

from audit.measures.contract import Audit
from audit.measures.hygiene.block import Hygiene
from audit.measures.hygiene.measure import HygieneMeasure
from audit.network.record import Products


def measured(audit: Audit) -> Hygiene:
    fold = HygieneMeasure().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    found = fold.finish().network
    json.dumps(asdict(found), allow_nan=False)
    return found


def network(inputs: int, outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def blobs(n: int, seed: int, features: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes far apart, so that neighbours know the label."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, features)) * 6
    return (centres[y] + rng.normal(size=(n, features))).astype(np.float32), y.astype(np.int64)


def rows(x: np.ndarray) -> list[tuple[float, ...]]:
    return [tuple(row) for row in x.astype(np.float64).reshape(len(x), -1).tolist()]


coarse = st.integers(0, 10_000).map(np.random.default_rng)
