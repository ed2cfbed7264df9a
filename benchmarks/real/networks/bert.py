"""BERT-mini (Devlin et al. 2019; Turc et al. 2019): token ids and their mask, classified from the first token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

VOCABULARY = 30522
POSITIONS = 512


def bert_mini(classes: int = 4) -> nn.Module:
    """Four post-norm blocks of width 256 with four heads."""
    return Bert(width=256, depth=4, heads=4, classes=classes)


class Bert(nn.Module):
    """Embeddings, encoder, pooler and a dense layer, as fine-tuned for classification."""

    def __init__(self, *, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.positions = nn.Embedding(POSITIONS, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(BertBlock(width, heads) for _ in range(depth))
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, classes)
        self.apply(_initialise)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Ids [n, t] and mask [n, t], 1 for a token and 0 for padding → logits [n, classes]."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.dropout(self.norm(self.words(input_ids) + self.positions(places)))
        hidden = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for block in self.blocks:
            x = block(x, hidden)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


class BertBlock(nn.Module):
    """norm(x + attention(x)), then norm(x + perceptron(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = MaskedAttention(width, heads)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.perceptron_norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Tokens [n, t, width] → the same shape; `hidden` [n, 1, 1, t] is added to the attention's scores."""
        x = self.attention_norm(x + self.dropout(self.attention(x, hidden)))
        return self.perceptron_norm(x + self.dropout(self.perceptron(x)))


class MaskedAttention(nn.Module):
    """Softmax attention with dense layers of their own for queries, keys, values and the way out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Tokens [n, t, width] → the same shape."""
        n, t, width = x.shape
        q, k, v = (
            layer(x).reshape(n, t, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + hidden  # [n, heads, t, t]
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, width))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
