"""MLP-Mixer (Tolstikhin et al. 2021) for 32×32 images."""

from __future__ import annotations

from torch import Tensor, nn


def mlp_mixer(classes: int = 10) -> nn.Module:
    """Six blocks on 64 patches of 4×4, 256 channels wide."""
    return Mixer(pixels=32, patch=4, channels=256, depth=6, classes=classes)


class Mixer(nn.Module):
    """Perceptrons over the patches and over the channels in turn; the patches' mean decides."""

    def __init__(self, *, pixels: int, patch: int, channels: int, depth: int, classes: int) -> None:
        super().__init__()
        tokens = (pixels // patch) ** 2
        self.patches = nn.Conv2d(3, channels, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, channels) for _ in range(depth)))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, pixels, pixels] → logits [n, classes]."""
        tokens = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(tokens).mean(1))


class MixerBlock(nn.Module):
    """x + perceptron over tokens, then x + perceptron over channels, each behind a norm."""

    def __init__(self, tokens: int, channels: int) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.over_tokens = _perceptron(tokens, channels // 2)
        self.over_channels = _perceptron(channels, 4 * channels)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [n, tokens, channels] → the same shape."""
        x = x + self.over_tokens(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.channel_norm(x))


def _perceptron(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
