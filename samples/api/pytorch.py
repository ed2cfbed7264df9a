"""Audits a network right after training it, with nothing but PyTorch: an nn.Module and two data loaders."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from audit import audit_model


def two_rings(samples: int, seed: int) -> TensorDataset:
    """Points on two noisy rings, and the ring each of them is on."""
    random = torch.Generator().manual_seed(seed)
    ring = torch.arange(samples) % 2
    angle = 2 * torch.pi * torch.rand(samples, generator=random)
    radius = 1 + ring + 0.35 * torch.randn(samples, generator=random)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), ring)


torch.manual_seed(0)
train = DataLoader(two_rings(200, seed=1), batch_size=20, shuffle=True)
test = DataLoader(two_rings(100, seed=2), batch_size=100)
network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(30):
    for x, y in train:
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

report = audit_model(network, train, test)

print(f"error: train {report.gap.train_error:.1%}, test {report.gap.test_error:.1%}")
print(f"gap {report.gap.error_gap:.1%}, 95 % interval", *(f"{end:.1%}" for end in report.gap.error_gap_ci95))
for finding in report.findings:
    print(f"{finding.level}: {finding.title}")
for path in report.save("gen-audit-report", "html,json"):
    print(path)
