"""Layers that are used more than once in one forward pass."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from audit.layers import DenseLayer
from audit.measure import Audit


def feeds_itself(audit: Audit, layer: DenseLayer) -> bool:
    """Whether changing the layer's weights changes what it is given."""
    changed = copy.deepcopy(audit.network)
    weight = layer.weight(changed)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight += noise.to(weight.device, weight.dtype) * (1 + weight.abs().mean())
    few = slice(0, min(4, len(audit.train)))
    captures = (audit.capture, replace(audit.capture, network=changed))
    before, after = (next(capture.forward(audit.train.x[few], audit.train.y[few])) for capture in captures)
    return not torch.equal(before.layers[layer.name].x, after.layers[layer.name].x)
