"""Columns of most energy against the Hessian that is formed: no eigenvalue is overestimated, and the bound holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_audits import AuditMaker
from tolerances import EXACT, SOLVED
from torch import nn

from audit.curvature import LayerHessian
from audit.curvature.sampled import choose_columns, energy_columns, forward_energies, score_curvature
from audit.maths.gram import column_pairs
from audit.measures.contract import Audit
from audit.network.loss import LOSS_OF_TASK, TokenCrossEntropy


class Tokens(nn.Module):
    """A layer over tokens, then one over their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)).mean(1))


def made(make_audit: AuditMaker, task: str, tokens: bool) -> Audit:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    outputs = {"classification": 4, "binary": 1, "regression": 4}[task]
    x = rng.normal(size=(50, 5, 3) if tokens else (50, 6))
    y = rng.normal(size=(50, outputs)) if task == "regression" else rng.integers(0, max(2, outputs), 50)
    dense = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, outputs))
    return make_audit((Tokens() if tokens else dense).double(), x, y, x[:4], y[:4], task, bootstrap=10)


@pytest.mark.parametrize(
    ("task", "tokens"),
    [
        ("classification", False),
        ("binary", False),
        ("regression", False),
        ("classification", True),
        ("regression", True),
    ],
)
@pytest.mark.parametrize("count", [10, 40, 10_000])
def test_kept_columns_bound_every_eigenvalue(make_audit: AuditMaker, task: str, tokens: bool, count: int) -> None:
    audit = made(make_audit, task, tokens)
    capture = replace(audit.capture, to_input=False)
    x, y = audit.train.x, audit.train.y
    energies = forward_energies(capture, x, y, 4)
    columns = energy_columns(capture, audit.layers, x, y, choose_columns(energies, audit.layers, count))
    for layer in audit.layers:
        H = LayerHessian(audit.train, layer).dense()
        trace, whole = float(H.trace()), torch.linalg.eigvalsh(H).flip(0)
        pairs = column_pairs(columns[layer.name], len(audit.train), trace, 5)
        k, slack = len(pairs.values), 1e-9 * float(whole[0])
        assert k > 0
        assert bool((pairs.values <= whole[:k] + slack).all())
        assert bool((whole[:k] <= pairs.values + pairs.dropped + slack).all())
        if count == 10_000:
            torch.testing.assert_close(pairs.values, whole[:k], rtol=SOLVED, atol=slack)
            assert pairs.dropped <= 1e-9 * trace


@pytest.mark.parametrize(
    ("task", "classes"), [("classification", 6), ("classification", 50), ("binary", 1), ("regression", 3)]
)
def test_directions_of_the_scores_make_up_their_curvature(task: str, classes: int) -> None:
    torch.manual_seed(0)
    f = 3 * torch.randn(7, classes, dtype=torch.float64)
    y, units = torch.zeros(7, dtype=torch.int64), torch.eye(classes, dtype=torch.float64).expand(7, -1, -1)
    whole = LOSS_OF_TASK[task].curvature_times(f, y, units)
    found = score_curvature(LOSS_OF_TASK[task], f, y, classes)
    missing = whole - found.roots.mT @ found.roots
    assert float(torch.linalg.eigvalsh(missing).min()) >= -EXACT
    torch.testing.assert_close(found.trace, whole.diagonal(dim1=1, dim2=2).sum(1), rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(found.roots.square().sum(2), found.sizes, rtol=EXACT, atol=EXACT)
    if classes <= 32:
        torch.testing.assert_close(missing, torch.zeros_like(missing), rtol=0, atol=EXACT)


@pytest.mark.parametrize("most", [3, 100])
def test_directions_of_positions_make_up_the_curvature_of_all(most: int) -> None:
    f = 3 * torch.randn(5, 4 * 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([[0, 1, 2, 0], [0, -100, -100, -100], [2, 2, -1, -1], [0, 1, 2, -100], [1, 1, 1, 1]])
    loss = TokenCrossEntropy(3)
    whole = loss.curvature_times(f, y, torch.eye(12, dtype=torch.float64).expand(5, -1, -1))
    found = score_curvature(loss, f, y, most)
    missing = whole - found.roots.mT @ found.roots
    assert float(torch.linalg.eigvalsh(missing).min()) >= -EXACT
    torch.testing.assert_close(found.trace, whole.diagonal(dim1=1, dim2=2).sum(1), rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(found.sizes, torch.linalg.eigvalsh(whole).flip(1)[:, : found.sizes.shape[1]])
    if most == 100:
        torch.testing.assert_close(missing, torch.zeros_like(missing), rtol=0, atol=EXACT)
