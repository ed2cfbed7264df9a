"""Networks with parameters outside dense layers, and their gradients by plain autograd."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class Free(nn.Module):
    """A free parameter, an embedding whose weights the head shares, a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.words = nn.Parameter(torch.randn(4)), nn.Embedding(7, 4)
        self.cell, self.head, self.tied = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2), nn.Linear(4, 7)
        self.tied.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.place
        return self.head(self.cell(x)[0][:, -1]) + self.tied(x).mean(1)[:, :2]


class TwiceNormed(nn.Module):
    """One norm layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(torch.tanh(self.norm(x))))


class Folded(nn.Module):
    """Two pictures a sample, folded into the batch: the layer's rows are not the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(1, 2, 2), nn.Linear(16, 2)

    def forward(self, x):
        n = x.shape[0]
        return self.head(self.conv(x.reshape(2 * n, 1, -1)).reshape(n, -1))


class UnseenConvolution(nn.Module):
    """One convolution as a module, one as a function that no hook sees, with free parameters as its kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.kernel = nn.Conv2d(1, 2, 3), nn.Parameter(torch.randn(2, 2, 2, 2))
        self.used, self.head = nn.Conv2d(2, 2, 2), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(F.conv2d(torch.relu(self.first(x)), self.kernel))
        return self.head(F.conv2d(x, self.used.weight, self.used.bias).flatten(1))


class ConvolvedTwice(nn.Module):
    """One convolution called twice, and a norm between the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Linear(32, 3)
        self.norm.running_mean.copy_(torch.randn(2))
        self.norm.running_var.copy_(torch.rand(2) + 0.5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(torch.relu(self.norm(self.conv(x))))).flatten(1))


def grouped() -> nn.Sequential:
    """Groups, strides, holes and uneven padding at once."""
    first = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False)
    second = nn.Conv2d(6, 6, 2, groups=6)
    return nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.LazyLinear(3))


def pictures(groups: int = 1, inplace: bool = False) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=groups),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace),
        nn.Conv2d(4, 4, 2, dilation=2),
        nn.GroupNorm(2, 4),
        nn.PReLU(),
        nn.PReLU(4),
        nn.Flatten(),
        nn.LayerNorm(16),
        nn.Linear(16, 3),
    )


def ids() -> torch.Tensor:
    return torch.randint(0, 7, (5, 6), generator=torch.Generator().manual_seed(0))


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def with_shapes(network: nn.Module, x: torch.Tensor) -> nn.Module:
    """A network whose lazy layers have seen x."""
    network(x.float())
    return network


def chain(*parts: nn.Module, width: int, scores: int = 2) -> nn.Sequential:
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(width, scores))


CASES = {
    "pictures": (pictures, floats(2, 8, 8)),
    "grouped-in-place": (lambda: pictures(2, True), floats(2, 8, 8)),
    "series": (lambda: chain(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.LayerNorm([3, 4]), width=12, scores=1), floats(2, 6)),
    "same-padding": (lambda: chain(nn.Conv2d(1, 2, 3, padding="same"), width=18), floats(1, 3, 3)),
    "volumes": (lambda: chain(nn.Conv3d(1, 2, 2), nn.ReLU(), width=2), floats(1, 2, 2, 2)),
    "transposed": (lambda: chain(nn.ConvTranspose1d(1, 2, 2), nn.ReLU(), width=8), floats(1, 3)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(18, 2)), ids()),
    "free-tied-recurrent": (Free, ids()),
    "called-twice": (TwiceNormed, floats(4)),
    "folded": (Folded, floats(2, 5)),
    "unseen-convolution": (UnseenConvolution, floats(1, 6, 6)),
    "convolved-twice": (ConvolvedTwice, floats(2, 4, 4)),
    "grouped-strided-dilated": (lambda: with_shapes(grouped(), floats(4, 6, 6)), floats(4, 6, 6)),
    "batch-norm-1d": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), floats(4)),
}


def truth(network: nn.Module, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """∂f/∂θ [C, *shape] of every sample, by plain autograd."""
    found = []
    for x_i in x:
        values = {name: value.clone().requires_grad_() for name, value in network.named_parameters()}
        f = functional_call(network, values, (x_i[None],)).reshape(-1)
        rows = [torch.autograd.grad(f_c, list(values.values()), retain_graph=True, materialize_grads=True) for f_c in f]
        found.append({name: torch.stack(column) for name, column in zip(values, zip(*rows, strict=True), strict=True)})
    return found
