"""Layers whose decomposition would take too long, each with its sentence."""

from __future__ import annotations

from audit.layers import DenseLayer
from audit.record import LayerRecord

MOST_WORK = 2e10  # multiplications in the pseudo-inverses of all pairs, up to a constant: some minutes
MOST_PASSES = 1024  # second derivatives of the network for one Hessian of a convolution


def too_many_patches(layer: DenseLayer, pairs: int) -> str | None:
    """Why the dual weights of a convolution are not looked for; None where they are."""
    if layer.patches is None:
        return None
    if pairs * layer.tokens * layer.in_features * min(layer.tokens, layer.in_features) <= MOST_WORK:
        return None
    return (
        f"a convolution whose dual weights take too long: {layer.tokens:,} patches of {layer.in_features:,} numbers "
        f"for each of {pairs:,} pairs; lower --test-samples"
    )


def too_curved(record: LayerRecord) -> str | None:
    """Why the Hessian of a convolution is not looked for; None where it is."""
    layer = record.layer
    passes = layer.out_features * min(layer.tokens, layer.in_features)
    if layer.patches is None or record.residual_times is None or passes <= MOST_PASSES:
        return None
    return (
        f"a convolution with a curved network behind it: its Hessian takes {passes:,} second derivatives of every "
        f"train sample, more than the {MOST_PASSES:,} that are tried"
    )
