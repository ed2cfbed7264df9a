"""Layers whose decomposition would take too long, each with its sentence."""

from __future__ import annotations

from audit.layers import DenseLayer
from audit.record import LayerRecord

MOST_WORK = 2e10  # multiplications in the pseudo-inverses of all pairs, up to a constant: some minutes
MOST_PASSES = 1024  # second derivatives of the network for one Hessian of a convolution
MOST_TRACE_PASSES = 16_384  # second derivatives of the network for the trace of one Hessian of a layer over tokens


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
    """Why the Hessian of a layer over tokens or patches is not looked for; None where it is."""
    layer = record.layer
    if layer.patches is None:
        return _too_many_tokens(record)
    passes = layer.out_features * min(layer.tokens, layer.in_features)
    if record.residual_times is None or passes <= MOST_PASSES:
        return None
    return (
        f"a convolution with a curved network behind it: its Hessian takes {passes:,} second derivatives of every "
        f"train sample, more than the {MOST_PASSES:,} that are tried"
    )


def _too_many_tokens(record: LayerRecord) -> str | None:
    """A layer that sees few vectors of each sample is never left out, however wide it is."""
    layer = record.layer
    passes = layer.out_features * layer.tokens
    if layer.tokens == 1 or record.residual_times is None or passes <= MOST_TRACE_PASSES:
        return None
    return (
        f"a layer over {layer.tokens:,} tokens with a curved network behind it: the trace of its Hessian takes "
        f"{passes:,} second derivatives of every train sample, more than the {MOST_TRACE_PASSES:,} that are tried"
    )
