"""Gram matrices of a pool's loss gradients against gradients that are formed, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from live_bytes import LiveBytes
from made_audits import AuditMaker
from references import fisher as reference
from tolerances import CANCELS, EXACT, SOLVED
from torch import nn

from audit.network.parameter_gradients import closed_parameters
from audit.network.patches import Factors
from audit.network.pool_gradients import REST, Pool, pool_grams


class Mixed(nn.Module):
    """A convolution, a norm, a layer over tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.token, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.conv(x))).flatten(2)  # [n, 3, 4]
        return self.head(torch.tanh(self.token(h)).mean(1))


@pytest.mark.parametrize("room", [1, 3000, 10**9])
def test_grams_are_those_of_plain_gradients_however_little_room_there_is(make_audit: AuditMaker, room: int) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 1, 4, 4)), rng.integers(0, 3, 9)
    audit = make_audit(Mixed().double(), x, y, x[:2], y[:2], bootstrap=10)
    pool_x, pool_y = audit.train.x, audit.train.y
    f = audit.network(pool_x).detach().double()
    pool = Pool(pool_x, pool_y, audit.loss.gradient(f, pool_y))
    found = pool_grams(audit.capture, pool, room)
    assert set(found) == {"token", "head", REST}
    network = audit.network.requires_grad_(True)
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in found}
    for i in range(len(pool_x)):
        loss = audit.loss.value(network(pool_x[i : i + 1]).double(), pool_y[i : i + 1])[0]
        gradients = dict(
            zip(dict(network.named_parameters()), torch.autograd.grad(loss, list(network.parameters())), strict=True)
        )
        for name in rows:
            mine = [
                g.flatten()
                for key, g in gradients.items()
                if (key.split(".")[0] == name) or (name == REST and key.split(".")[0] in ("conv", "norm"))
            ]
            rows[name].append(torch.cat(mine))
    network.requires_grad_(False)
    assert all(closed_parameters(audit.network, layer) == (True, True) for layer in audit.layers)
    for name, each in rows.items():
        G = torch.stack(each)
        torch.testing.assert_close(found[name], G @ G.T, rtol=SOLVED, atol=1e-14)


class Looked(nn.Module):
    """An embedding, a grouped convolution with a stride, a norm, a free parameter, and a layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(6, 4), nn.Conv1d(4, 4, 3, stride=2, padding=1, groups=2)
        self.free, self.norm = nn.Parameter(torch.randn(4)), nn.LayerNorm(4)
        self.twice, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.conv(self.embed(x).mT).mT * self.free)
        return self.head(torch.tanh(self.twice(torch.tanh(self.twice(h)))).mean(1))


def wide_convolution() -> nn.Module:
    """A convolution with few positions and many weights, so that its factors are kept."""
    return nn.Sequential(nn.Conv2d(8, 40, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3))


@pytest.mark.parametrize("room", [1, 20_000, 10**9])
@pytest.mark.parametrize("kind", ["looked up", "wide convolution"])
def test_the_sum_over_all_parameters_is_that_of_plain_gradients(make_audit: AuditMaker, kind: str, room: int) -> None:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    network = Looked() if kind == "looked up" else wide_convolution()
    x = rng.integers(0, 6, (7, 5)) if kind == "looked up" else rng.normal(size=(7, 8, 4, 4))
    y = rng.integers(0, 3, 7)
    audit = make_audit(network.double(), x, y, x[:2], y[:2], bootstrap=10)
    f = torch.from_numpy(audit.train_outcome.scores)
    pool = Pool(audit.train.x, audit.train.y, audit.loss.gradient(f, audit.train.y))
    found = sum(pool_grams(audit.capture, pool, room).values())
    G = reference.gradients(audit.network, audit.train.x, audit.train.y, "classification")
    torch.testing.assert_close(found, G @ G.T, rtol=SOLVED, atol=1e-14)


@pytest.mark.parametrize(("tokens", "wide", "out"), [(1, 5, 4), (2, 30, 40), (9, 3, 4)])
@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("numbers", [1, 300, 10**6])
def test_factors_have_the_gram_matrix_of_their_products(
    tokens: int, wide: int, out: int, weight: bool, bias: bool, numbers: int
) -> None:
    torch.manual_seed(2)
    x, delta = (torch.randn(6, tokens, size, dtype=torch.float64) for size in (wide, out))
    parts = [torch.einsum("nto,nti->noi", delta, x).flatten(1)] * weight + [delta.sum(1)] * bias
    G = torch.cat(parts, 1)
    found = Factors(x, delta, lambda x, delta: (x, delta), weight, bias).gram(numbers)
    torch.testing.assert_close(found, G @ G.T, rtol=EXACT, atol=CANCELS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_words_looked_up_take_at_most_half_the_room(make_audit: AuditMaker, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    rng, room = np.random.default_rng(3), 24 << 20
    network = nn.Sequential(nn.Embedding(500, 16), nn.LayerNorm(16), nn.Flatten(), nn.Linear(64 * 16, 3)).to(dtype)
    x, y = rng.integers(0, 500, (96, 64)), rng.integers(0, 3, 96)
    precision = "float64" if dtype == torch.float64 else "float32"
    audit = make_audit(network, x, y, x[:2], y[:2], bootstrap=10, precision=precision)
    gradient = audit.loss.gradient(torch.from_numpy(audit.train_outcome.scores), audit.train.y)
    with LiveBytes() as live:
        pool_grams(audit.capture, Pool(audit.train.x, audit.train.y, gradient), room)
    assert live.peak <= room / 2
