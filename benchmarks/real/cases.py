"""What is asked of an audit: each case with its flags and its limits on two cores."""

from __future__ import annotations

from dataclasses import dataclass

ALL_SAMPLES = ("--samples", "0", "--test-samples", "0")
DEFAULT_SAMPLES = 4000  # of train, where `--samples` says nothing


@dataclass(frozen=True)
class Case:
    """One audit: of which recipe's network, on how many train samples, how, and what it may take."""

    recipe: str
    train: int
    seconds: float
    gigabytes: float | None = None  # above libraries, model and data
    epochs: float | None = None  # how many epochs' time at most
    flags: tuple[str, ...] = ()

    @property
    def audited(self) -> int:
        """Train samples that the audit uses."""
        return self.train if self.flags == ALL_SAMPLES else min(self.train, DEFAULT_SAMPLES)


CASES = {
    "resnet18": Case("resnet18", 2000, 120, 2, epochs=5),
    "vit-tiny": Case("vit-tiny", 1000, 240, 3),
    "bert-mini": Case("bert-mini", 1000, 240, 3),
    "toy-transformer": Case("toy-transformer", 100, 15),
    "resnet50": Case("resnet50", 200, 300, 4),
    "efficientnet-b0": Case("efficientnet-b0", 1000, 240),
    "mlp-mixer": Case("mlp-mixer", 1000, 240),
    "lstm": Case("lstm", 1000, 45),
    "gru": Case("gru", 1000, 45),
    "784-512-512-1000": Case("784-512-512-1000", 4000, 60, 2),
    "784-4096-4096-10": Case("784-4096-4096-10", 4000, 90, 2),
    "138M": Case("138M", 4000, 300, 4, flags=("--memory", "4GB")),
    "mnist": Case("784-30-30-10", 60_000, 20, 2),
    "mnist-all": Case("784-30-30-10", 60_000, 180, 2, flags=ALL_SAMPLES),
    "table": Case("table", 200_000, 20, 1),
    "table-1GB": Case("table", 200_000, 20, 1, flags=("--memory", "1GB")),
}
