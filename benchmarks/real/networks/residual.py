"""Residual networks (He et al. 2016): ResNet-18 for 32×32 images, ResNet-50 for 224×224."""

from __future__ import annotations

from torch import Tensor, nn

STAGE_WIDTHS = (64, 128, 256, 512)


def resnet18(classes: int = 10) -> nn.Module:
    """Basic blocks behind a 3×3 stem that keeps the size: the form used on CIFAR."""
    stem = (*_convolution(3, 64, 3), nn.ReLU())
    return _resnet(stem, BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> nn.Module:
    """Bottleneck blocks behind the stem that quarters the size: the form used on ImageNet."""
    stem = (*_convolution(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
    return _resnet(stem, Bottleneck, (3, 4, 6, 3), classes)


class Residual(nn.Module):
    """ReLU(x + branch(x)); where the sizes differ, a 1×1 convolution takes the place of x."""

    def __init__(self, branch: nn.Module, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = stride == 1 and into == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(into, out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Maps [n, into, h, w] → [n, out, h/stride, w/stride]."""
        return self.relu(self.shortcut(x) + self.branch(x))


class BasicBlock(Residual):
    """Two 3×3 convolutions."""

    expansion = 1

    def __init__(self, into: int, width: int, stride: int) -> None:
        convolutions = (*_convolution(into, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3))
        super().__init__(nn.Sequential(*convolutions), into, width, stride)


class Bottleneck(Residual):
    """A 3×3 convolution between two 1×1; the stride is in the 3×3, as everybody has it since 2017."""

    expansion = 4

    def __init__(self, into: int, width: int, stride: int) -> None:
        out = width * self.expansion
        narrow = (*_convolution(into, width, 1), nn.ReLU(), *_convolution(width, width, 3, stride), nn.ReLU())
        super().__init__(nn.Sequential(*narrow, *_convolution(width, out, 1)), into, out, stride)


def _resnet(
    stem: tuple[nn.Module, ...],
    block: type[BasicBlock] | type[Bottleneck],
    depths: tuple[int, ...],
    classes: int,
) -> nn.Module:
    blocks: list[nn.Module] = []
    into = STAGE_WIDTHS[0]
    for stage, (width, depth) in enumerate(zip(STAGE_WIDTHS, depths, strict=True)):
        for place in range(depth):
            blocks.append(block(into, width, 2 if stage > 0 and place == 0 else 1))
            into = width * block.expansion
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


def _convolution(into: int, out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(into, out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(out)
