"""Running again from a layer on gives what running from the start gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from audit.network.hooks import Replay


class Branched(nn.Module):
    """A skip, a layer used twice, and a layer beside the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.gate, self.head = (nn.Linear(5, 5) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        h = h + self.shared(torch.relu(self.shared(h)))
        return self.head(h * torch.sigmoid(self.gate(x)))


class Overwriting(Branched):
    """The same, with an operator that writes over its input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).add_(1.0)


@pytest.mark.parametrize("kind", [Branched, Overwriting])
@pytest.mark.parametrize("layer", ["first", "shared", "gate", "head"])
def test_a_graph_and_its_module_answer_alike_whatever_a_layer_says(kind: type[nn.Module], layer: str) -> None:
    torch.manual_seed(0)
    network, x = kind().double(), torch.randn(3, 5, dtype=torch.float64)
    graph = fx.symbolic_trace(network)
    plain, traced = Replay(network, x), Replay(graph, x)
    assert torch.equal(plain.f, traced.f)
    said = [torch.randn_like(z) for _, z in plain.calls[layer]]
    from_start, from_layer = plain.again(layer, said), traced.again(layer, said)
    assert not torch.allclose(from_start, plain.f)
    assert torch.equal(from_start, from_layer)


def test_what_does_not_depend_on_the_layer_is_not_computed_again() -> None:
    torch.manual_seed(0)
    graph, x = fx.symbolic_trace(Branched()), torch.randn(3, 5)
    replay, called = Replay(graph, x), []
    for name in ("first", "shared", "gate", "head"):
        graph.get_submodule(name).register_forward_hook(lambda *_, name=name: called.append(name))
    replay.again("gate", [torch.zeros(3, 5)])
    assert called == ["head"]
