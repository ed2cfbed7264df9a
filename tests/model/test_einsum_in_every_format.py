"""An einsum with a weight is the same dense layer from every format."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from formats import silent, write_onnx, write_pt2, write_script
from tolerances import EXACT
from torch import Tensor, nn

from audit.model import canonical_form, load_model
from audit.model.base import Model
from audit.model.parity import check_parity
from audit.settings import Settings

EQUATIONS = {
    "bti,oi->bto": (7, 5),
    "bti,io->bto": (5, 7),
    "oi,bti->bto": (7, 5),
    "bti,iho->btho": (5, 2, 3),
    "bti,hoi->btho": (2, 3, 5),
    "...i,oi->...o": (7, 5),
}
WRITERS = {
    "onnx": (lambda network, x, path: write_onnx(network, x, path, opset=13), "m.onnx"),
    "pt2": (write_pt2, "m.pt2"),
    "torchscript": (write_script, "m.pt"),
}


class Einsum(nn.Module):
    """x [n, 4, 5] → einsum with a weight → mean over tokens → 3 scores."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation
        self.mix = nn.Parameter(torch.randn(EQUATIONS[equation]))
        self.fc = nn.Linear(7 if len(EQUATIONS[equation]) == 2 else 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        operands = (self.mix, x) if self.equation.startswith("oi") else (x, self.mix)
        return self.fc(torch.tanh(torch.einsum(self.equation, *operands)).flatten(2).mean(1))


def weights(model: Model) -> list[tuple[str, tuple[int, ...]]]:
    modules = dict(model.network.named_modules())
    linear = [path for path in model.ops if isinstance(modules[path], nn.Linear)]
    return [(model.ops[path], tuple(modules[path].weight.shape)) for path in linear]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_the_layer_in_an_einsum(equation: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, x = Einsum(equation).eval(), torch.randn(4, 4, 5)
    expected = copy.deepcopy(network).double()(x.double()).detach()
    found = {}
    for form, (write, name) in WRITERS.items():
        with silent():
            model = canonical_form(load_model(write(network, x, tmp_path / name), Settings()), x)
        scores = copy.deepcopy(model.network).double()(x.double()).detach()
        torch.testing.assert_close(scores, expected, rtol=EXACT, atol=EXACT)
        check_parity(model, x.numpy())
        found[form] = [shape for _, shape in weights(model)]
        if form != "onnx":  # its older exporter writes some equations as MatMul
            assert weights(model)[0][0] == "einsum"
    outputs = 7 if len(EQUATIONS[equation]) == 2 else 6
    assert found == {form: [(outputs, 5), (3, outputs)] for form in WRITERS}
