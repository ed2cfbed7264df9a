"""The architectures that every format is tried with; torch alone is needed, `--arch` opens it as a user's file."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn


def stack(**modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(modules))


def relu() -> nn.Module:
    return stack(fc1=nn.Linear(13, 9), act1=nn.ReLU(), fc2=nn.Linear(9, 6), act2=nn.ReLU(), fc3=nn.Linear(6, 3))


def tanh() -> nn.Module:
    return stack(fc1=nn.Linear(13, 8), act1=nn.Tanh(), fc2=nn.Linear(8, 6), act2=nn.Tanh(), fc3=nn.Linear(6, 3))


def gelu_dropout() -> nn.Module:
    return stack(
        **{"fc1": nn.Linear(13, 8), "act1": nn.GELU(), "drop1": nn.Dropout(0.3)},
        **{"fc2": nn.Linear(8, 6), "act2": nn.GELU(), "drop2": nn.Dropout(0.3), "fc3": nn.Linear(6, 3)},
    )


def batch_norm() -> nn.Module:
    return stack(fc1=nn.Linear(13, 8), norm=nn.BatchNorm1d(8), act1=nn.ReLU(), fc2=nn.Linear(8, 3))


class Residual(nn.Module):
    """A skip around the middle layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(13, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.fc1(x))
        return self.fc3(h + torch.relu(self.fc2(h)))


def residual() -> nn.Module:
    return Residual()


def bias_free() -> nn.Module:
    return stack(fc1=nn.Linear(13, 8, bias=False), act1=nn.ReLU(), fc2=nn.Linear(8, 3, bias=False))


def linear() -> nn.Module:
    return stack(fc=nn.Linear(13, 3))


class LeNet(nn.Module):
    """Two convolutions with pooling, then two dense layers; images of 8 × 8."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(24, 12), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def lenet() -> nn.Module:
    return LeNet()


def tabular() -> nn.Module:
    return stack(fc1=nn.Linear(30, 8), act1=nn.ReLU(), fc2=nn.Linear(8, 1))


def regression() -> nn.Module:
    return stack(fc1=nn.Linear(10, 8), act1=nn.Tanh(), fc2=nn.Linear(8, 1))


def regressions() -> nn.Module:
    """Several outputs at once."""
    return stack(fc1=nn.Linear(8, 8), act1=nn.ReLU(), fc2=nn.Linear(8, 3))


def pointwise() -> nn.Module:
    """A 1 × 1 convolution on a 1 × 1 map: a dense layer by another name."""
    return stack(
        **{"conv": nn.Conv2d(1, 6, 3), "act1": nn.ReLU(), "pool": nn.AdaptiveAvgPool2d(1)},
        **{"mix": nn.Conv2d(6, 8, 1), "act2": nn.ReLU(), "flat": nn.Flatten(), "fc": nn.Linear(8, 10)},
    )


class Tied(nn.Module):
    """One dense layer used twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.twice, self.fc2 = nn.Linear(13, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.twice(torch.relu(self.twice(torch.relu(self.fc1(x))))))
        return self.fc2(h)


def tied() -> nn.Module:
    return Tied()


class Tokens(nn.Module):
    """The rows of an image as tokens, through one attention block."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(8, 6), nn.Linear(6, 10)
        self.block = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.embed(x.squeeze(1))).mean(1))


def tokens() -> nn.Module:
    return Tokens()
