"""Networks with convolutions, and their audits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from made_audits import AuditMaker
from torch import Tensor, nn
from zoo import lenet

from audit.measures.contract import Audit
from audit.measures.suite import Results, run_suite
from audit.run.progress import Progress

CHOSEN = {"subsets": 3, "subset_size": 5, "bootstrap": 20, "widths": 2}


def tanh_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(2, 3, 3, padding="same"), nn.Tanh(), nn.Conv1d(3, 4, 2, stride=2), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(16, 3)),
    )


def normed_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=2)),
        *(nn.ReLU(), nn.Conv2d(4, 3, 2, dilation=2), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 5), nn.ReLU()),
        nn.Linear(5, 3),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lenet, (1, 12, 12)),
    "tanh": (tanh_net, (2, 8)),
    "normed": (normed_net, (2, 8, 8)),
    "space": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)), (1, 3, 3, 3)),
}


def made(name: str, n: int = 12) -> tuple[nn.Module, Tensor, Tensor]:
    build_network, shape = NETWORKS[name]
    torch.manual_seed(1)
    network = build_network().double().eval().requires_grad_(False)
    return network, torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3


def audit_of(
    make_audit: AuditMaker, network: nn.Module, x: Tensor, y: Tensor, conv: bool = True, **chosen: object
) -> Audit:
    x_test = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    table = (x.numpy(), y.numpy(), x_test.numpy(), y.numpy())
    return make_audit(network, *table, conv=conv, **{**CHOSEN, **chosen})


def suite(audit: Audit) -> Results:
    return run_suite(audit, Progress())
