"""Per-sample gradients of recurrent layers, from what each step was given and the signal that comes back to it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from parameter_cases import floats, truth
from tolerances import EXACT, ROUNDING
from torch import nn

from audit.model import load_model
from audit.network.parameter_gradients import SampleGradients
from audit.network.unrolled import Unrolled, is_recurrent, run, step_by_step
from audit.settings import Settings

LAYERS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "gru": (nn.GRU, {"batch_first": True}),
    "gru of two layers, both ways": (nn.GRU, {"batch_first": True, "num_layers": 2, "bidirectional": True}),
    "lstm, time first, both ways": (nn.LSTM, {"bidirectional": True}),
    "lstm of two layers without biases": (nn.LSTM, {"batch_first": True, "num_layers": 2, "bias": False}),
    "plain": (nn.RNN, {"batch_first": True}),
    "plain with relu": (nn.RNN, {"nonlinearity": "relu"}),
}


class Recurrent(nn.Module):
    """A recurrent layer from a state that is learned, and a head on its last state; x [n, 4, 3]."""

    def __init__(self, kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
        super().__init__()
        self.cell = kind(3, 5, **options)
        self.start = nn.Parameter(torch.randn(self.cell.num_layers * (1 + self.cell.bidirectional), 1, 5))
        self.head = nn.Linear(10 if self.cell.bidirectional else 5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = self.start.expand(-1, len(x), -1).contiguous()
        y, last = self.cell(
            x if self.cell.batch_first else x.transpose(0, 1),
            (start, start) if isinstance(self.cell, nn.LSTM) else start,
        )
        h, c = last if isinstance(last, tuple) else (last, last)
        middle = y[:, 2] if self.cell.batch_first else y[2]
        return self.head(middle) + h.sum((0, 2))[:, None] + c.square().sum((0, 2))[:, None]


def recurrent(name: str) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(*LAYERS[name]).double().eval().requires_grad_(False)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_by_formula_answers_as_torchs_own(name: str) -> None:
    network, x = recurrent(name), floats(4, 3)
    expected = network(x)
    with step_by_step(network):
        torch.testing.assert_close(network(x), expected, rtol=EXACT, atol=EXACT)
    assert network.cell.forward.__func__ is type(network.cell).forward  # as before


@pytest.mark.parametrize("batch", [None, 7])
@pytest.mark.parametrize("name", LAYERS)
def test_unrolled_gradients_are_those_of_plain_autograd(name: str, batch: int | None) -> None:
    network, x = recurrent(name), floats(4, 3)
    values = {f"cell.{name}": value for name, value in network.cell.named_parameters()}
    cotangents = torch.randn(len(x), 3, 2, dtype=torch.float64)
    found = Unrolled(network, values, batch).gradients(x, cotangents)
    for i, one in enumerate(truth(network, x)):
        for name, each in found.items():
            torch.testing.assert_close(
                each[i], torch.tensordot(cotangents[i], one[name], 1), rtol=ROUNDING, atol=ROUNDING
            )
    assert set(found) == set(values)


@pytest.mark.parametrize("held", [8, 1 << 22])
def test_squares_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr("audit.network.unrolled.HELD", held)
    monkeypatch.setattr("audit.network.unrolled.SAMPLE_GRADIENTS", 3)
    network, x = recurrent("gru of two layers, both ways"), floats(4, 3)
    values = {f"cell.{name}": value for name, value in network.cell.named_parameters()}
    plain, weighted = Unrolled(network, values, None).squares(x)
    for i, one in enumerate(truth(network, x)):
        assert float(plain[i]) == pytest.approx(float(sum(one[name].square().sum() for name in values)), rel=ROUNDING)
        sizes = sum((one[name].square() * value.square()).sum() for name, value in values.items())
        assert float(weighted[i]) == pytest.approx(float(sizes), rel=ROUNDING)


class AllStates(nn.Module):
    """A recurrent layer and a dense layer on its last answer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell, self.head = kind(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_an_onnx_operator_is_unrolled_like_torchs_own_layer(kind: type[nn.RNNBase], tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, x = tmp_path / "network.onnx", torch.randn(5, 6, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its own end
        torch.onnx.export(
            AllStates(kind).eval(), (x,), str(path), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    network, x = load_model(path, Settings()).network.double(), x.double()
    (held,) = (path for path, module in network.named_modules() if is_recurrent(module))
    values = {name: value for name, value in network.named_parameters() if name.startswith(f"{held}.")}
    cotangents = torch.eye(2, dtype=torch.float64).expand(5, -1, -1)
    found = Unrolled(network, values, None).gradients(x, cotangents)
    for i, one in enumerate(truth(network, x)):
        for name in values:
            torch.testing.assert_close(found[name][i], one[name], rtol=ROUNDING, atol=ROUNDING)


def test_a_layer_with_projections_is_taken_in_another_way() -> None:
    torch.manual_seed(0)
    network = nn.LSTM(3, 5, proj_size=2, batch_first=True).double().eval().requires_grad_(False)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = network

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x)[0][:, -1]

    with pytest.raises(NotImplementedError, match="projections"):
        run(network, floats(4, 3))
    names = [f"cell.{name}" for name, _ in network.named_parameters()]
    x, cotangent = floats(4, 3), torch.ones(5, 2, dtype=torch.float64)
    found = SampleGradients(Last(), names, x).gradients(x, cotangent)
    for i, one in enumerate(truth(Last(), x)):
        for name in names:
            torch.testing.assert_close(found[name][i], one[name].sum(0), rtol=ROUNDING, atol=ROUNDING)
