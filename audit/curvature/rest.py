"""R, what Gauss–Newton leaves out of the curvature behind a layer: how it is summed up where it is not formed.

A product with R costs a second differentiation of everything behind the layer. Forms of R are exact, from one product
for each unit of the layer's answer, while those are few; beyond that they are means over random directions with the
form's weight as covariance: signs ε with E[ε εᵀ] = 1, drawn anew for every sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.maths.decompositions import eigh
from audit.network.record import LayerRecord

EXACT_UNITS = 128  # T·out up to which every unit has its product, however many samples there are
EXACT_PRODUCTS = 100_000  # … and above which it has, while all samples together need no more than this
MOST_PROBES = 16  # sign vectors of a sample
ENOUGH_PROBES = 4096  # … of all samples together, from which on two of each are enough


def is_probed(layer: LayerRecord, samples: int) -> bool:
    """Whether forms of R over `samples` are estimated."""
    return layer.residual_times is not None and not few_products(layer.z.shape[1] * layer.z.shape[2], samples)


def few_products(units: int, samples: int) -> bool:
    """Whether each of a layer's units may have its own product with R on each of `samples`."""
    return units <= EXACT_UNITS or units * samples <= EXACT_PRODUCTS


def probes(samples: int) -> int:
    """How many sign vectors a sample gets: the noise of a mean over samples counts all of them."""
    return max(2, min(MOST_PROBES, -(-ENOUGH_PROBES // samples)))


def rest_trace(layer: LayerRecord, samples: int, start: int, seed: int) -> Tensor:
    """Σ_tt′ (x_t·x_t′) tr R^{tt′}, what R adds to Tr H_W, of each sample [n]; `start`: the first one's position."""
    x = layer.x.double()
    if layer.residual_times is None:
        return x.new_zeros(len(x))
    if not is_probed(layer, samples):
        return _exact_trace(layer, x)
    root, (n, _, out) = gram_root(x), layer.z.shape
    streams = [seed * MOST_PROBES + probe for probe in range(probes(samples))]
    total = x.new_zeros(n)
    for stream in streams:
        v = root @ signs(start, (n, root.shape[2], out), stream, x)
        total += (v * layer.residual_times(v)).sum((1, 2))
    return total / len(streams)


def _exact_trace(layer: LayerRecord, x: Tensor) -> Tensor:
    total, K = x.new_zeros(len(x)), x @ x.mT
    for t, outputs, R_to in layer.residual_columns():
        own = R_to.gather(3, outputs[:, None, None, None].expand(-1, *R_to.shape[1:3], 1))[..., 0]  # [m, n, T]
        total += (own * K[:, t]).sum((0, 2))
    return total


def signs(start: int, shape: tuple[int, int, int], stream: int, like: Tensor) -> Tensor:
    """±1 [n, ...], a hash of the sample's place in the split, so that they do not depend on how samples are chunked."""
    each = shape[1] * shape[2]
    key = torch.arange(start * each, (start + shape[0]) * each, device=like.device)
    key = (key + (stream + 1) * 0x632BE59BD9B4E019 % (1 << 62)) * 0x1E3779B97F4A7C15  # int64 wraps around
    for multiplier in (0x3F58476D1CE4E5B9, 0x14D049BB133111EB):
        key = (key ^ (key >> 29)) * multiplier
    return (1 - 2 * ((key >> 40) & 1)).to(like.dtype).reshape(shape)


def gram_root(x: Tensor) -> Tensor:
    """L [n, T, r] with L Lᵀ = x xᵀ, for x [n, T, in], and r as small as is cheap."""
    if x.shape[2] < x.shape[1]:
        return x
    K = x @ x.mT
    if K.shape[1] == 1:
        return K.sqrt()
    values, vectors = eigh(K)
    root: Tensor = vectors * values.clamp(min=0).sqrt()[:, None, :]
    return root
