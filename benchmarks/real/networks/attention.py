"""Transformers: ViT-tiny with blocks of its own, and a toy built from torch's own encoder layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def vit_tiny(classes: int = 10) -> nn.Module:
    """ViT-tiny of six blocks on 32×32 images in patches of 4×4 (Dosovitskiy et al. 2021)."""
    return VisionTransformer(pixels=32, patch=4, width=192, depth=6, heads=3, classes=classes)


def toy_transformer(classes: int = 10) -> nn.Module:
    """About 85,000 parameters on 16 tokens of 49 features each."""
    return FeatureTransformer(tokens=16, features=49, width=48, depth=3, heads=4, classes=classes)


class VisionTransformer(nn.Module):
    """Patches and a class token through pre-norm blocks; the class token's end decides."""

    def __init__(self, *, pixels: int, patch: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (pixels // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, pixels, pixels] → logits [n, classes]."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(tokens.shape[0], -1, -1)
        tokens = self.blocks(torch.cat([first, tokens], dim=1) + self.positions)
        return self.head(self.norm(tokens[:, 0]))


class Block(nn.Module):
    """x + attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [n, t, width] → the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.perceptron(self.perceptron_norm(x))


class SelfAttention(nn.Module):
    """Queries, keys and values from one dense layer; torch's fused attention between them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [n, t, width] → the same shape."""
        n, t, width = x.shape
        q, k, v = self.into(x).reshape(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)  # [n, heads, t, width / heads]
        return self.out(mixed.transpose(1, 2).reshape(n, t, width))


class FeatureTransformer(nn.Module):
    """`nn.TransformerEncoderLayer`s on tokens of real features; their mean decides."""

    def __init__(self, *, tokens: int, features: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.into = nn.Linear(features, width)
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        options = {"dropout": 0.1, "activation": "gelu", "batch_first": True}
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, **options) for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [n, tokens, features] → logits [n, classes]."""
        x = self.into(x) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))
