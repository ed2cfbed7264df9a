"""A training loop with hooks, as Lightning has them: the release is held against a policy when the fit ends.

With Lightning itself, `Release` is a `lightning.Callback` and `on_fit_end(self, trainer, module)` reads the loaders
from `trainer.train_dataloader` and `trainer.val_dataloaders`; the call of `audit_model` is the same.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from audit import Policy, PolicyFailed, Rule, audit_model

POLICY = Policy((Rule("gap.error_gap", "max", 0.25), Rule("check.determinism", "status")), "the release policy")


class Classifier(nn.Module):
    """A module that knows how it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the three classes."""
        return self.layers(x)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """What moves the weights."""
        return torch.optim.AdamW(self.parameters(), lr=0.02)


class Release:
    """Called when the fit ends: audits the module as it stands, still in training mode."""

    def on_fit_end(self, module: nn.Module, train: DataLoader, test: DataLoader) -> None:
        """Releases the module, or says why not."""
        try:
            report = audit_model(module, train, test, policy=POLICY)
        except PolicyFailed as failure:
            failure.report.save("gen-audit-report", "html,junit", failure.verdict)
            raise SystemExit(f"not released: {failure}") from failure
        print(f"released: test error {report.gap.test_error:.1%}; still training: {module.training}")


def fit(module: Classifier, train: DataLoader, test: DataLoader, callback: Release) -> None:
    """What a trainer does."""
    optimiser = module.configure_optimizers()
    module.train()
    for _ in range(20):
        for batch in train:
            optimiser.zero_grad()
            module.training_step(batch).backward()
            optimiser.step()
    callback.on_fit_end(module, train, test)


def blobs(samples: int, seed: int) -> TensorDataset:
    """Three clouds of points in ten dimensions that overlap a little."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 3
    centres = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    return TensorDataset(centres[y] + torch.randn(samples, 10, generator=random), y)


torch.manual_seed(0)
fit(Classifier(), DataLoader(blobs(300, 1), 32, shuffle=True), DataLoader(blobs(150, 2), 64), Release())
