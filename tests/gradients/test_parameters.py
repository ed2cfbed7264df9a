"""Per-sample gradients of parameters that no dense layer holds: every way against plain autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from audit.gradients.parameters import SampleGradients

EXACT = 1e-11


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


@pytest.fixture(params=CASES)
def case(request):
    build, x = CASES[request.param]
    torch.manual_seed(0)
    network = build().double().eval().requires_grad_(False)
    return network, x, truth(network, x)


@pytest.mark.parametrize("fixed_batch", [None, 3])
def test_gradients_are_those_of_autograd(case, fixed_batch):
    network, x, expected = case
    names = [name for name, _ in network.named_parameters()]
    cotangent = torch.randn(len(x), len(expected[0][names[0]]), dtype=torch.float64)
    found = SampleGradients(network, names, x, fixed_batch).gradients(x, cotangent)
    assert list(found) == names
    for name in names:
        rows = [torch.tensordot(c, one[name], 1) for c, one in zip(cotangent, expected, strict=True)]
        assert torch.allclose(found[name], torch.stack(rows), rtol=EXACT, atol=EXACT), name


@pytest.mark.parametrize("fixed_batch", [None, 3])
def test_squares_are_summed_over_scores_and_parameters(case, fixed_batch):
    network, x, expected = case
    values = dict(network.named_parameters())
    plain, weighted = SampleGradients(network, list(values), x, fixed_batch).squares(x)
    for i, one in enumerate(expected):
        assert plain[i].item() == pytest.approx(sum(g.square().sum().item() for g in one.values()), rel=EXACT)
        sizes = sum((g.square() * values[name].square()).sum().item() for name, g in one.items())
        assert weighted[i].item() == pytest.approx(sizes, rel=EXACT)


def test_no_names_no_gradients():
    network = nn.Linear(2, 1).double()
    plain, weighted = SampleGradients(network, (), floats(2)).squares(floats(2))
    assert plain.tolist() == weighted.tolist() == [0.0] * 5


def test_a_huge_network_is_taken_score_by_score(monkeypatch):
    monkeypatch.setattr("audit.gradients.parameters.NUMBERS", 8)
    torch.manual_seed(0)
    network, x = pictures().double().eval().requires_grad_(False), floats(2, 8, 8)
    plain, _ = SampleGradients(network, [name for name, _ in network.named_parameters()], x).squares(x)
    expected = [sum(g.square().sum().item() for g in one.values()) for one in truth(network, x)]
    assert plain.tolist() == pytest.approx(expected, rel=EXACT)
