"""EfficientNet-b0 (Tan & Le 2019) for 32×32 images: the stem keeps the size, all else is as published."""

from __future__ import annotations

import torch
from torch import Tensor, nn

STAGES = (  # expansion, channels, blocks, stride of the first, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, TOP = 32, 1280
DROPOUT = 0.2


def efficientnet_b0(classes: int = 10) -> nn.Module:
    """Sixteen inverted residual blocks with squeeze-and-excitation, SiLU throughout."""
    layers: list[nn.Module] = [*_convolution(3, STEM, 3), nn.SiLU()]
    into = STEM
    for expansion, out, blocks, stride, kernel in STAGES:
        for place in range(blocks):
            layers.append(InvertedResidual(into, out, expansion, kernel, stride if place == 0 else 1))
            into = out
    layers += [*_convolution(into, TOP, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(DROPOUT), nn.Linear(TOP, classes))


class InvertedResidual(nn.Module):
    """Widen, filter each channel, reweight the channels, narrow; added to x where the sizes agree."""

    def __init__(self, into: int, out: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = into * expansion
        widen = (*_convolution(into, wide, 1), nn.SiLU()) if expansion > 1 else ()
        filtered = (*_convolution(wide, wide, kernel, stride, groups=wide), nn.SiLU())
        self.branch = nn.Sequential(*widen, *filtered, SqueezeExcitation(wide, into // 4), *_convolution(wide, out, 1))
        self.added = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        """Maps [n, into, h, w] → [n, out, h/stride, w/stride]."""
        return x + self.branch(x) if self.added else self.branch(x)


class SqueezeExcitation(nn.Module):
    """Each channel times a weight in (0, 1) that all channels' means decide."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """Maps [n, c, h, w] → the same shape."""
        means = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(self.activation(self.squeeze(means))))


def _convolution(into: int, out: int, size: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(into, out, size, stride, padding=size // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(out)
