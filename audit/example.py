"""A made-up input of the shape a model takes, for looking at its layers without data."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import Model
from audit.model.trace import accepts

SAMPLES = 4
FREE_SIZES = (32, 224, 28, 64, 16, 8, 1)  # tried, in this order, for a size that the file leaves open


def example_input(model: Model) -> Tensor:
    """Random samples [n, ...] that the network accepts."""
    for shape in _shapes(model):
        if accepts(model, shape):
            return _random(model, shape)
    raise ModelError(
        f"{model.path.name}: the file does not say what input shape it takes and none could be guessed; "
        "run `gen-audit report` with the data instead."
    )


def _shapes(model: Model) -> list[tuple[int, ...]]:
    """Candidates: the declared shape with its open sizes filled in, or what the first layer suggests."""
    if model.input.shape is not None:
        choices = [FREE_SIZES if size is None else (size,) for size in model.input.shape]
        same = [tuple(choice[0] if len(choice) == 1 else free for choice in choices) for free in FREE_SIZES]
        return same + [shape for shape in product(*choices) if len(choices) <= 3]
    for module in model.network.modules():
        if isinstance(module, nn.Linear):
            return [(module.in_features,), (16, module.in_features), (module.in_features // 784 or 1, 28, 28)]
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            dimensions = len(module.kernel_size)
            return [(module.in_channels, *[size] * dimensions) for size in FREE_SIZES]
        if isinstance(module, (nn.Embedding, nn.RNNBase)):
            width = () if isinstance(module, nn.Embedding) else (module.input_size,)
            return [(16, *width), (32, *width), (8, *width)]
    return []


def _random(model: Model, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    n = 2 * model.input.batch if model.input.batch else SAMPLES
    if model.input.dtype.is_floating_point:
        return torch.rand((n, *shape), generator=generator)
    return torch.randint(0, 2, (n, *shape), generator=generator, dtype=model.input.dtype)
