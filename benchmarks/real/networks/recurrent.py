"""Recurrent classifiers of sequences of features: an LSTM and a GRU, torch's own."""

from __future__ import annotations

from torch import Tensor, nn


def lstm(classes: int = 10) -> nn.Module:
    """Two LSTM layers of 128 units over 28 features a step."""
    return Recurrent(nn.LSTM(28, 128, num_layers=2, batch_first=True), 128, classes)


def gru(classes: int = 10) -> nn.Module:
    """One GRU layer of 128 units over 28 features a step."""
    return Recurrent(nn.GRU(28, 128, batch_first=True), 128, classes)


class Recurrent(nn.Module):
    """The last step's answer decides."""

    def __init__(self, cells: nn.LSTM | nn.GRU, width: int, classes: int) -> None:
        super().__init__()
        self.cells = cells
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Sequences [n, steps, features] → logits [n, classes]."""
        answers, _ = self.cells(x)
        return self.head(answers[:, -1])
