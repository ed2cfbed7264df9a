"""How each network is made: its definition, its samples, the file it is saved as and how long it is trained.

Model files are ONNX (TorchScript exporter, opset 17) or torch's .pt2, so that both ways in are walked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cases import perceptron
from benchmarks.real import samples
from benchmarks.real.networks.attention import toy_transformer, vit_tiny
from benchmarks.real.networks.bert import bert_mini
from benchmarks.real.networks.efficient import efficientnet_b0
from benchmarks.real.networks.mixer import mlp_mixer
from benchmarks.real.networks.recurrent import gru, lstm
from benchmarks.real.networks.residual import resnet18, resnet50
from benchmarks.real.samples import Array, Splits


@dataclass(frozen=True)
class Recipe:
    """How a model file and its data folder come to be."""

    network: Callable[[], nn.Module]
    samples: Callable[[], Splits]
    shape: tuple[int, ...]  # of one sample as the network takes it
    parameters: int  # about how many
    suffix: str = ".onnx"
    layout: str = "npz"
    epochs: int = 3
    batch: int = 50
    rate: float = 1e-3  # of Adam; of momentum where `plain` is set
    plain: bool = False  # SGD, whose state is a third of Adam's
    crop: int | None = None  # side of the random crops trained on, where full size takes too long

    def fed(self, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        """Stored inputs as the network takes them: bytes become [0, 1], colours come first."""
        return tuple(_fed(x, self.shape) for x in inputs.values())


def _fed(x: Array, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.from_numpy(x)
    if x.dtype == np.uint8:
        tensor = tensor.float() / 255
    if tensor.ndim == 4:
        tensor = tensor.permute(0, 3, 1, 2)
    return tensor.reshape(len(x), *shape).contiguous()


RECIPES = {
    "resnet18": Recipe(resnet18, partial(samples.cifar, 2000, 500), (3, 32, 32), 11_170_000),
    "resnet50": Recipe(
        *(resnet50, partial(samples.gratings, 200, 100), (3, 224, 224), 25_560_000),
        layout="images",
        epochs=8,
        batch=20,
        rate=3e-4,
        crop=64,
    ),
    "vit-tiny": Recipe(
        *(vit_tiny, partial(samples.cifar, 1000, 300), (3, 32, 32), 2_690_000, ".pt2"), epochs=4, batch=25, rate=3e-4
    ),
    "bert-mini": Recipe(bert_mini, partial(samples.tokens, 1000, 300), (64,), 11_170_000, epochs=4, rate=3e-4),
    "toy-transformer": Recipe(
        *(toy_transformer, partial(samples.mnist_patches, 100, 50), (16, 49), 88_000, ".pt2"), epochs=40, batch=20
    ),
    "efficientnet-b0": Recipe(
        *(efficientnet_b0, partial(samples.cifar, 1000, 300), (3, 32, 32), 4_020_000, ".pt2"), epochs=4
    ),
    "mlp-mixer": Recipe(
        *(mlp_mixer, partial(samples.cifar, 1000, 300), (3, 32, 32), 3_270_000), epochs=4, batch=25, rate=3e-4
    ),
    "lstm": Recipe(lstm, partial(samples.mnist_rows, 1000, 300), (28, 28), 214_000, epochs=8),
    "gru": Recipe(gru, partial(samples.mnist_rows, 1000, 300), (28, 28), 62_000, ".pt2", epochs=8),
    "784-512-512-1000": Recipe(
        partial(perceptron, 784, 512, 512, 1000), samples.mnist_thousand, (784,), 1_178_000, epochs=8
    ),
    "784-4096-4096-10": Recipe(
        *(partial(perceptron, 784, 4096, 4096, 10), samples.mnist, (784,), 20_040_000, ".pt2"), batch=200
    ),
    "138M": Recipe(
        *(partial(perceptron, 784, 11360, 11360, 10), samples.mnist, (784,), 138_100_000),
        epochs=1,
        batch=200,
        rate=0.02,
        plain=True,
    ),
    "784-30-30-10": Recipe(
        *(partial(perceptron, 784, 30, 30, 10), partial(samples.mnist_shifted, 60_000, 10_000), (784,), 24_800),
        epochs=4,
    ),
    "table": Recipe(
        *(partial(perceptron, 40, 128, 64, 3), partial(samples.table, 200_000, 50_000), (40,), 13_700),
        layout="parquet",
        epochs=2,
        batch=200,
    ),
}
