"""Small networks that answer at every position, and sentences of several lengths with a tag for each word."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

LENGTH, WORDS, TAGS = 5, 12, 3
TRAIN, TEST = 40, 30
Arrays = dict[str, np.ndarray]


class Plain(nn.Module):
    """Each word, and the one before it, through two dense layers."""

    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(WORDS, 4), nn.Linear(8, 6), nn.Linear(6, TAGS)
        self.end = nn.Softmax(-1) if softmax else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        here = self.words(x)
        before = torch.cat([torch.zeros_like(here[:, :1]), here[:, :-1]], 1)
        return self.end(self.head(torch.relu(self.mix(torch.cat([here, before], 2)))))


class Recurrent(nn.Module):
    """An LSTM below the dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.walk, self.head = nn.Embedding(WORDS, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, TAGS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.walk(self.words(x))[0])


class Masked(nn.Module):
    """Words and a mask, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.tagger = Plain()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.tagger(input_ids * attention_mask)


def plain() -> nn.Module:
    return Plain()


def recurrent() -> nn.Module:
    return Recurrent()


BUILD = {"plain": plain, "recurrent": recurrent, "softmax": lambda: Plain(softmax=True), "masked": Masked}


def sentences(n: int, seed: int) -> Arrays:
    """Words x, 0 behind the end, tags y, which follow from a word and the one before it, and −100 behind the end."""
    draws = np.random.default_rng(seed)
    x = draws.integers(1, WORDS, (n, LENGTH))
    y = (x + np.roll(x, 1, 1)) // 3 % TAGS
    y[draws.random(y.shape) < 0.1] = 0
    ends = np.arange(LENGTH) >= draws.integers(1, LENGTH + 1, (n, 1))
    x[ends], y[ends] = 0, -100
    return {"x": x.astype(np.int64), "y": y.astype(np.int64)}


def split(which: str) -> Arrays:
    return sentences(TRAIN, 0) if which == "train" else sentences(TEST, 1)


def folder(root: Path) -> Path:
    """The sentences as npz files."""
    root.mkdir(parents=True, exist_ok=True)
    for which in ("train", "test"):
        np.savez(root / which, **split(which))
    return root


@cache
def trained(name: str) -> nn.Module:
    """After a short training, in eval mode. Do not change it."""
    torch.manual_seed(0)
    network, data = BUILD[name](), {key: torch.from_numpy(value) for key, value in split("train").items()}
    given = (data["x"], (data["x"] > 0).long()) if name == "masked" else (data["x"],)
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(*given).transpose(1, 2), data["y"], ignore_index=-100).backward()
        optimiser.step()
    return network.eval()
