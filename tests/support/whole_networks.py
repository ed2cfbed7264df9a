"""Networks whose dense layers see several vectors of a sample, or are used more than once; torch alone is needed.

`--arch whole_networks.py:<name>` opens one as a user's file.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TokenMean(nn.Module):
    """One dense layer on every token, then their mean: as many features as the tokens need to be independent."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)).mean(1))


class TokensSideBySide(nn.Module):
    """What every token became, side by side; inside, the samples are on the second axis."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.narrow, self.head = nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(15, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.narrow(torch.relu(self.embed(x.transpose(0, 1)))))
        return self.head(h.transpose(0, 1).flatten(1))


class Attention(nn.Module):
    """A transformer's block, its attention written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(6, 4), nn.Linear(4, 12), nn.Linear(4, 4)
        self.norm1, self.norm2 = nn.LayerNorm(4), nn.LayerNorm(4)
        self.up, self.down, self.head = nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        q, k, v = self.qkv(self.norm1(h)).chunk(3, -1)
        h = h + self.out((q @ k.transpose(1, 2) / 2).softmax(-1) @ v)
        h = h + self.down(F.gelu(self.up(self.norm2(h))))
        return self.head(h.mean(1))


class Mixer(nn.Module):
    """One dense layer across the tokens, one across the features, each with a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.across, self.within, self.head = nn.Linear(5, 5), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x + F.gelu(self.across(x.transpose(1, 2))).transpose(1, 2)
        h = h + F.gelu(self.within(h))
        return self.head(h.mean(1))


class Words(nn.Module):
    """Whole numbers, looked up in a table, with a learnt vector for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(17, 5), nn.Parameter(torch.randn(4, 5) / 4)
        self.mix, self.head = nn.Linear(5, 6), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.table(x) + self.place)).mean(1))


class TiedWords(nn.Module):
    """The table that words are looked up in gives the scores of the classes, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(10, 5), nn.Linear(5, 5), nn.Linear(5, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.table(x))).mean(1))


class Siamese(nn.Module):
    """One layer for both halves of a sample: used twice, but never on its own answer."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.head = nn.Linear(5, 4), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        return self.head(torch.cat([torch.relu(self.both(first)), torch.relu(self.both(second))], 1))


class Compared(nn.Module):
    """Both halves of a sample through one layer, and the product of what they became: curved across the uses."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.head = nn.Linear(5, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        return self.head(torch.tanh(self.both(first)) * torch.tanh(self.both(second)))


class SharedWeights(nn.Module):
    """Two layers that hold one weight matrix, each with a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3, self.head = nn.Linear(13, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.fc3.weight = self.fc2.weight

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.fc1(x))
        return self.head(torch.relu(self.fc3(torch.relu(self.fc2(h)))))


class ThereAndBack(nn.Module):
    """An encoder whose weights, transposed, decode again."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.back, self.head = nn.Linear(13, 6), nn.Parameter(torch.zeros(13)), nn.Linear(13, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.fc(x))
        return self.head(torch.relu(F.linear(h, self.fc.weight.t(), self.back)))


class KeptTransposed(nn.Module):
    """`ThereAndBack` with the weights that act twice kept as [in, out], by no layer but the network itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc_weight, self.fc_bias = nn.Parameter(torch.zeros(13, 6)), nn.Parameter(torch.zeros(6))
        self.back, self.head = nn.Parameter(torch.zeros(13)), nn.Linear(13, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x @ self.fc_weight + self.fc_bias)
        return self.head(torch.relu(h @ self.fc_weight.t() + self.back))

    @classmethod
    def like(cls, other: nn.Module) -> KeptTransposed:
        """With the numbers of a `ThereAndBack`."""
        values = other.state_dict()
        values |= {"fc_weight": values.pop("fc.weight").t(), "fc_bias": values.pop("fc.bias")}
        made = cls()
        made.load_state_dict(values)
        return made.eval()


class Recurrent(nn.Module):
    """A recurrent layer, which is passed by, and dense layers behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.mix, self.head = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(self.gru(x)[0])).mean(1))


def token_mean() -> nn.Module:
    return TokenMean()


def side_by_side() -> nn.Module:
    return TokensSideBySide()


def attention() -> nn.Module:
    return Attention()


def mixer() -> nn.Module:
    return Mixer()


def words() -> nn.Module:
    return Words()


def tied_words() -> nn.Module:
    return TiedWords()


def siamese() -> nn.Module:
    return Siamese()


def compared() -> nn.Module:
    return Compared()


def shared_weights() -> nn.Module:
    return SharedWeights()


def there_and_back() -> nn.Module:
    return ThereAndBack()


def kept_transposed() -> nn.Module:
    return KeptTransposed()


def recurrent() -> nn.Module:
    return Recurrent()
