"""Units that never act are found by what the scores answer to, not by their values."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from audit.measures.sensitivity.measure import Sensitivity
from audit.network.record import Products


def test_a_unit_counts_where_a_change_of_it_moves_a_score(make_audit) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        network[0].bias[:2] = torch.tensor([-1e3, 1e3])  # never on; always on
        network[2].weight[:, 3] = 0  # on or off, nobody listens
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = np.arange(40) % 2
    audit = make_audit(network, x, y, x[:9], y[:9])
    fold = Sensitivity().start(audit)
    for record in audit.train:
        fold.see(record, Products(record))
    counts = [block.units_active for block in fold.finish().layers.values()]
    on = (torch.from_numpy(x) @ network[0].weight.T + network[0].bias > 0).sum(0).tolist()
    assert counts == [[0, 40, on[2], 0], [40, 40]]
