"""Gram matrices of a pool's loss gradients against gradients that are formed, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_audits import AuditMaker
from torch import nn

from audit.network.parameter_gradients import closed_parameters
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
        torch.testing.assert_close(found[name], G @ G.T, rtol=1e-9, atol=1e-14)
