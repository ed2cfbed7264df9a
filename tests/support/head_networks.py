"""One small network under every final layer that people write; torch alone is needed, `--arch` opens it as a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Ending(NamedTuple):
    """What follows the scores [n, width], and the name in HEADS that it must be recognised by."""

    head: str
    write: Callable[[Tensor], Tensor]
    width: int = 3


def exp_over_sum(z: Tensor) -> Tensor:
    e = torch.exp(z)
    return e / e.sum(1, keepdim=True)


def exp_over_last(z: Tensor) -> Tensor:
    e = torch.exp(z)
    return e / e.sum(-1, keepdim=True)


def shifted_exp_over_sum(z: Tensor) -> Tensor:
    return exp_over_sum(z - z.max(1, keepdim=True).values)


def sigmoid_by_hand(z: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-z))


def pair(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return torch.cat([1 - p, p], 1)


ENDINGS = {
    "none": Ending("none", lambda z: z),
    "softmax": Ending("softmax", lambda z: z.softmax(-1)),
    "log_softmax": Ending("log_softmax", lambda z: z.log_softmax(1)),
    "exp_of_log_softmax": Ending("softmax", lambda z: torch.log_softmax(z, 1).exp()),
    "log_of_softmax": Ending("log_softmax", lambda z: z.softmax(1).log()),
    "exp_over_sum": Ending("softmax", exp_over_sum),
    "shifted_exp_over_sum": Ending("softmax", shifted_exp_over_sum),
    "minus_log_sum_exp": Ending("log_softmax", lambda z: z - z.logsumexp(1, keepdim=True)),
    "minus_log_of_sum": Ending("log_softmax", lambda z: z - z.exp().sum(1, keepdim=True).log()),
    "sigmoid": Ending("sigmoid", torch.sigmoid),
    "sigmoid_by_hand": Ending("sigmoid", sigmoid_by_hand),
    "half_of_one_and_tanh": Ending("sigmoid", lambda z: 0.5 * (1 + torch.tanh(z / 2))),
    "half_and_half_a_tanh": Ending("sigmoid", lambda z: torch.tanh(0.5 * z) / 2 + 0.5),
    "tanh_of_the_whole": Ending("none", lambda z: 0.5 * (1 + torch.tanh(z))),
    "one_sigmoid_without_its_axis": Ending("sigmoid", lambda z: torch.sigmoid(z).squeeze(-1), 1),
    "sigmoid_pair": Ending("sigmoid_pair", pair, 1),
    "reshaped": Ending("softmax", lambda z: z.softmax(1).unsqueeze(-1).flatten(1).double().float()),
    "two_rows": Ending("none", lambda z: z[:, None].expand(-1, 2, -1) * 1.5),
    "two_softmaxes": Ending("softmax", lambda z: (z[:, None].expand(-1, 2, -1) * 1.5).softmax(-1)),
    "two_softmaxes_by_hand": Ending("softmax", lambda z: exp_over_last(z[:, None].expand(-1, 2, -1) * 1.5)),
    "pixels": Ending("none", lambda z: z[:, None, None].expand(-1, 2, 2, -1) * 1.5),
    "softmax_of_a_map": Ending("softmax", lambda z: z[:, :, None, None].softmax(1).flatten(1)),
}


def normalised(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return p / p.sum(1, keepdim=True)


def swapped_pair(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return torch.cat([p, 1 - p], 1)


ENDINGS |= {
    "probabilities": Ending("softmax", normalised),
    "probabilities_of_two": Ending("softmax", swapped_pair, 1),
    "mean_of_two": Ending("softmax", lambda z: 0.5 * z.softmax(1) + 0.5 * (2 * z).softmax(1)),
    "logarithms_of_probabilities": Ending("log_softmax", lambda z: normalised(z).log()),
}
AT_POSITIONS = ("two_rows", "two_softmaxes", "two_softmaxes_by_hand")
"""Scores [n, 2, 3]."""
UNEXPLAINED = list(ENDINGS)[-4:]
"""Probabilities that are no function of scores which a rule could know."""


class Network(nn.Module):
    """x [n, 13] → 8 → scores [n, width] → the ending called `name`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.ending = ENDINGS[name]
        self.fc1, self.fc2 = nn.Linear(13, 8), nn.Linear(8, self.ending.width)

    def scores(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.ending.write(self.scores(x))


class Branching(Network):
    """One that no exporter can follow: it asks for a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if float(x.detach().sum()) < 1e9 else -x)


FACTORIES = SimpleNamespace(**{name: partial(Network, name) for name in ENDINGS})
"""`--arch head_networks.py:FACTORIES.softmax`."""
