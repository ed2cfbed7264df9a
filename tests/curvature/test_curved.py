"""Products behind a curved tail hold on to a graph, and let go of it."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from audit.curvature import curved_tails


def test_a_tail_behind_an_operator_that_saves_its_own_answer_goes_with_its_graph(make_audit) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 3)).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    y = network(x).argmax(1)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy())
    answers: list[weakref.ref[torch.Tensor]] = []
    for curved in ("1", "3"):
        audit.network.get_submodule(curved).register_forward_hook(
            lambda _module, _in, z: answers.append(weakref.ref(z))
        )
    (tail,) = curved_tails(audit.capture, audit.layers[0], audit.train.x, audit.train.y)
    assert tail.bytes > 0 and tail.curvature_times(torch.ones(1, 12, 1, 8, dtype=torch.float64)).abs().max() > 0
    assert len(answers) == 2
    del tail
    gc.collect()
    assert [answer() for answer in answers] == [None, None]
