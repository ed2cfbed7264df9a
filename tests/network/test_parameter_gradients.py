"""Per-sample gradients of parameters that no dense layer holds: every way against plain autograd."""

from __future__ import annotations

import pytest
import torch
from parameter_cases import CASES, floats, truth
from tolerances import ROUNDING
from torch import nn

from audit.network.parameter_gradients import SampleGradients


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
        assert torch.allclose(found[name], torch.stack(rows), rtol=ROUNDING, atol=ROUNDING), name


@pytest.mark.parametrize("fixed_batch", [None, 3])
def test_squares_are_summed_over_scores_and_parameters(case, fixed_batch):
    network, x, expected = case
    values = dict(network.named_parameters())
    plain, weighted = SampleGradients(network, list(values), x, fixed_batch).squares(x)
    for i, one in enumerate(expected):
        assert plain[i].item() == pytest.approx(sum(g.square().sum().item() for g in one.values()), rel=ROUNDING)
        sizes = sum((g.square() * values[name].square()).sum().item() for name, g in one.items())
        assert weighted[i].item() == pytest.approx(sizes, rel=ROUNDING)


def test_no_names_no_gradients():
    network = nn.Linear(2, 1).double()
    plain, weighted = SampleGradients(network, (), floats(2)).squares(floats(2))
    assert plain.tolist() == weighted.tolist() == [0.0] * 5


@pytest.mark.parametrize("name", ["pictures", "free-tied-recurrent"])
def test_a_huge_network_is_taken_score_by_score(monkeypatch, name):
    for where in ("closed_forms", "parameter_gradients"):
        monkeypatch.setattr(f"audit.network.{where}.HELD", 8)
    torch.manual_seed(0)
    build, x = CASES[name]
    network = build().double().eval().requires_grad_(False)
    plain, _ = SampleGradients(network, [name for name, _ in network.named_parameters()], x).squares(x)
    expected = [sum(g.square().sum().item() for g in one.values()) for one in truth(network, x)]
    assert plain.tolist() == pytest.approx(expected, rel=ROUNDING)
