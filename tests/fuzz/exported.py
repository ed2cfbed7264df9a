"""Random PyTorch networks by number, written to ONNX by either of PyTorch's exporters."""

from __future__ import annotations

import logging
import random
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPORTERS = {"dynamo": range(18, 24), "older": range(11, 21)}
"""PyTorch's, and their opsets."""
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Softplus, nn.Mish)
SAMPLES = 6


class Skip(nn.Module):
    """x + f(x), x · f(x), or both side by side."""

    def __init__(self, inner: nn.Module, way: str) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return x + y if self.way == "add" else x * y if self.way == "mul" else torch.cat([x, y], 1)


class Resize(nn.Module):
    """To another size by a factor."""

    def __init__(self, factor: float, mode: str, corners: bool) -> None:
        super().__init__()
        self.factor, self.mode, self.corners = factor, mode, corners

    def forward(self, x: Tensor) -> Tensor:
        corners = None if self.mode == "nearest" else self.corners
        return F.interpolate(x, scale_factor=self.factor, mode=self.mode, align_corners=corners)


class Turn(nn.Module):
    """Height for width, or channels put behind and back: the same numbers in another shape."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "transpose":
            return x.transpose(2, 3)
        n, c, h, w = x.shape
        return x.reshape(n, c, h * w).permute(0, 2, 1).reshape(n, h * w, c).permute(0, 2, 1).reshape(n, c, h, w)


def random_module(seed: int) -> tuple[nn.Module, Tensor]:
    """The network of this number in evaluation mode, and samples for it."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    first = rng.choice(((3, 8, 8), (6,)))
    layers: list[nn.Module] = []
    shape: tuple[int, ...] = first
    for _ in range(rng.randint(1, 7)):
        layer = _on_image(rng, shape) if len(shape) == 3 else _on_row(rng, shape)
        layers.append(layer)
        shape = tuple(nn.Sequential(*layers).eval()(torch.zeros(1, *first)).shape[1:])
    if len(shape) == 3:
        layers.append(rng.choice((nn.Flatten(), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))))
        shape = tuple(nn.Sequential(*layers).eval()(torch.zeros(1, *first)).shape[1:])
    layers.append(nn.Linear(shape[0], 3, bias=rng.random() < 0.8))
    if rng.random() < 0.2:
        layers.append(nn.Softmax(1))
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return network.eval(), torch.randn(SAMPLES, *first)


def _on_row(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    width = shape[0]
    kind = rng.randrange(4)
    if kind == 0:
        return nn.Linear(width, rng.randint(2, 8), bias=rng.random() < 0.7)
    if kind == 1:
        return rng.choice((nn.BatchNorm1d, nn.LayerNorm))(width)
    if kind == 2:
        return rng.choice(ACTIVATIONS)()
    return Skip(rng.choice((nn.Linear(width, width), nn.Tanh())), rng.choice(("add", "mul", "cat")))


def _on_image(rng: random.Random, shape: tuple[int, ...]) -> nn.Module:
    channels, height, width = shape
    small = min(height, width) < 2
    kind = rng.randrange(6 if small or max(height, width) > 16 else 7)
    if kind == 0:
        kernel, padding = rng.choice((1, 3)), rng.choice(("zeros", "replicate"))
        stride, groups = rng.choice((1, 1, 2)), channels if rng.random() < 0.2 else 1
        out = channels if groups > 1 else rng.randint(2, 6)
        return nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, padding_mode=padding)
    if kind == 1:
        options = (
            nn.BatchNorm2d(channels),
            nn.GroupNorm(1, channels),
            nn.LayerNorm([width]),
            nn.InstanceNorm2d(channels),
        )
        return options[rng.randrange(3 if small else 4)]
    if kind == 2:
        return rng.choice(ACTIVATIONS)()
    if kind == 3:
        inner = rng.choice((nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU()))
        return Skip(inner, rng.choice(("add", "mul", "cat")))
    if kind == 4:
        return Turn(rng.choice(("transpose", "reshape")))
    if kind == 5 or small:
        return (
            nn.AdaptiveAvgPool2d(rng.choice((1, min(height, width))))
            if small
            else rng.choice((nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(3, 1, 1)))
        )
    return Resize(rng.choice((0.5, 1.5, 2.0)), rng.choice(("nearest", "bilinear")), rng.random() < 0.5)


def write(network: nn.Module, x: Tensor, exporter: str, opset: int, path: Path) -> None:
    """The network as ONNX for any number of samples."""
    dynamo = exporter == "dynamo"
    free = {"dynamic_shapes": ({0: torch.export.Dim("n", min=2)},)} if dynamo else {"dynamic_axes": {"x": {0: "n"}}}
    options = {"input_names": ["x"], "opset_version": opset, "external_data": False}
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(network, (x,), str(path), dynamo=dynamo, **options, **free)
    finally:
        logging.disable(logging.NOTSET)
