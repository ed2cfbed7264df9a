"""A convolution as a dense layer: what its kernel sees at each position is a vector, and its weights act on all alike.

z_p = W u_p + b with W [out, in·k] the flattened kernel and u_p the patch at position p: everything that is said of a
dense layer over tokens holds for a convolution over its patches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv1d_input, conv2d_input, conv3d_input

from audit.maths.blocks import TABLE, blocks
from audit.network.hooks import CONVOLUTIONS

CONVOLVE = (F.conv1d, F.conv2d, F.conv3d)
INPUT_GRADIENTS = (conv1d_input, conv2d_input, conv3d_input)

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Patches:
    """How a convolution cuts a map [in, *space] into patches. One entry per dimension of space in every field."""

    channels: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # zeros before and after

    @classmethod
    def of(cls, module: Convolution, space: tuple[int, ...]) -> Patches:
        """Those of an ordinary convolution on maps of size `space`."""
        kernel, stride, dilation = (tuple(size) for size in (module.kernel_size, module.stride, module.dilation))
        return cls(module.in_channels, space, kernel, stride, dilation, _padding(module))

    @property
    def positions(self) -> tuple[int, ...]:
        """How many patches there are along each dimension."""
        sizes = zip(self.space, self.padding, self.extent, self.stride, strict=True)
        return tuple((size + sum(pads) - extent) // step + 1 for size, pads, extent, step in sizes)

    @property
    def extent(self) -> tuple[int, ...]:
        """The width of a patch, the holes that a dilation leaves included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def cut(self, x: Tensor) -> Tensor:
        """Maps [N, in, *space] → patches [N, P, in·k]; in the order of the kernel's weights and of the answer's map.

        >>> Patches.of(nn.Conv1d(1, 4, 2), (3,)).cut(torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[1., 2.],
                 [2., 3.]]])
        """
        x = self._windows(x).movedim(1, 1 + len(self.space))  # [N, *positions, in, *kernel]
        return x.reshape(len(x), prod(self.positions), -1)

    def columns(self, x: Tensor) -> Tensor:
        """The same patches as [N, in·k, P]: much quicker to write, since whole rows of the map stay together."""
        dims = len(self.space)
        windows = self._windows(x).permute(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
        return windows.reshape(len(x), -1, prod(self.positions))

    def _windows(self, x: Tensor) -> Tensor:
        """[N, in, *positions, *kernel], a view of the padded map."""
        x = F.pad(x, self._flat_padding)
        for axis, (extent, step, hole) in enumerate(zip(self.extent, self.stride, self.dilation, strict=True), start=2):
            x = x.unfold(axis, extent, step)[..., ::hole]
        return x

    def convolve(self, W: Tensor, x: Tensor) -> Tensor:
        """Maps [N, in, *space] → [N, out, *positions] with the weights W [out, in·k], never forming the patches."""
        weight = W.reshape(len(W), self.channels, *self.kernel)
        return CONVOLVE[len(self.space) - 1](F.pad(x, self._flat_padding), weight, None, self.stride, 0, self.dilation)

    def vjp(self, W: Tensor, g: Tensor) -> Tensor:
        """∂(g·z)/∂x as [N, in·space] for g [N, P, out]: back through the convolution with the weights W [out, in·k]."""
        dims = len(self.space)
        padded = [size + sum(pads) for size, pads in zip(self.space, self.padding, strict=True)]
        signal = g.mT.reshape(len(g), len(W), *self.positions)
        weight = W.reshape(len(W), self.channels, *self.kernel)
        size = [len(g), self.channels, *padded]
        full: Tensor = INPUT_GRADIENTS[dims - 1](size, weight, signal, self.stride, 0, self.dilation)  # type: ignore[no-untyped-call]
        for axis, ((before, _), n) in enumerate(zip(self.padding, self.space, strict=True), start=2):
            full = full.narrow(axis, before, n)
        return full.flatten(1)

    @property
    def _flat_padding(self) -> list[int]:
        return [amount for pads in reversed(self.padding) for amount in pads]


def why_no_patches(module: Convolution, calls: list[tuple[Tensor, Tensor]]) -> str | None:
    """Why a convolution is not a dense layer over patches; None where it is one."""
    if module.groups != 1:
        return "a grouped convolution: no output sees all channels of a patch, so there is no one weight matrix"
    if module.padding_mode != "zeros":
        return f"a convolution with {module.padding_mode} padding: only zeros around a map are measured"
    if len(calls) > 1:
        return f"a convolution that is used {len(calls)} times: its patches are not those of one map"
    x, z = calls[0]
    if x.dim() != 2 + len(module.kernel_size):
        return "a convolution of a single map, without an axis for the samples"
    patches = Patches.of(module, tuple(x.shape[2:]))
    answer = patches.cut(x) @ module.weight.flatten(1).T
    own = z if module.bias is None else z - module.bias.reshape(-1, *[1] * len(module.kernel_size))
    if not torch.allclose(answer, own.flatten(2).mT, rtol=1e-4, atol=1e-4 * float(own.abs().max())):
        return "not an ordinary convolution: it answers something else than its weights times its patches"
    return None


def _padding(module: Convolution) -> tuple[tuple[int, int], ...]:
    """Before and after each dimension, "same" and "valid" in numbers."""
    if module.padding == "valid":
        return tuple((0, 0) for _ in module.kernel_size)
    if module.padding == "same":
        totals = [d * (k - 1) for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((int(amount), int(amount)) for amount in module.padding)


# Gram matrices of gradients that are sums of outer products, from their factors, in bounded memory.
#
# The gradient of one sample's loss in W is Σ_t δ_t x_tᵀ over its tokens t (the patches of a convolution, the places
# where an embedding is looked up). The inner product of two samples' gradients is Σ_tt′ (δ_t·δ_t′)(x_t·x_t′): quicker
# for few tokens, and nothing is formed. For many, the gradients are formed, a few rows of W at a time. Sums in double
# precision.


SHORT = 1 << 14  # columns of gradients that are brought to double precision at once
TABLES = 2  # of inner products in double precision, that are multiplied with each other
GROUPS = 4  # of samples: a Gram matrix is symmetric, so that 10 of their 16 products are enough

Vectors = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What a layer was given and the signals at its answer, of some samples → x [n, T, in] and δ [n, T, out]."""


@dataclass(frozen=True)
class Factors:
    """What is kept of a layer for each sample of a pool."""

    x: Tensor  # [N, …]
    signal: Tensor  # [N, …]
    vectors: Vectors
    weight: bool = True  # whether W counts
    bias: bool = False  # whether b counts
    looked_up: bool = False  # an embedding: x are row numbers [n, T, 1], alike or not

    def gram(self, numbers: int) -> Tensor:
        """[N, N], with about `numbers` numbers in double precision at a time on the way."""
        x, delta = self._of(slice(0, 1))
        T, wide, out = x.shape[1], x.shape[2], delta.shape[2]
        if self.looked_up or not self.weight or T == 1 or T * T * (wide + out) < wide * out:
            return self._by_products(max(1, int((min(numbers, TABLE) / TABLES) ** 0.5) // T))
        return self._by_rows(numbers)

    def _of(self, rows: slice) -> tuple[Tensor, Tensor]:
        return self.vectors(self.x[rows], self.signal[rows])

    def _by_products(self, samples: int) -> Tensor:
        """Σ_tt′ (δ_t·δ_t′)(x_t·x_t′ + 1), so many samples at a time."""
        N = len(self.x)
        K = torch.zeros(N, N, dtype=torch.float64, device=self.signal.device)
        parts = list(blocks(N, 1, samples))
        for place, one in enumerate(parts):
            x, delta = self._of(one)
            for other in parts[place:]:
                x_, delta_ = self._of(other)
                found = _products(delta, delta_).mul_(self._alike(x, x_))
                found = found.reshape(len(x), x.shape[1], len(x_), -1).sum((1, 3))
                K[one, other], K[other, one] = found, found.T
        return K

    def _alike(self, x: Tensor, x_: Tensor) -> Tensor | float:
        """x_t·x_t′ + 1 [n·T, n′·T], as far as W and b count."""
        if self.looked_up:
            return x.reshape(-1, 1) == x_.reshape(1, -1)
        return _products(x, x_).add_(float(self.bias)) if self.weight else float(self.bias)

    def _by_rows(self, numbers: int) -> Tensor:
        """Through the gradients, a few rows of W at a time."""
        x, delta = self._of(slice(0, 1))
        N, T, wide, out = len(self.x), x.shape[1], x.shape[2], delta.shape[2]
        K = torch.zeros(N, N, dtype=torch.float64, device=delta.device)
        samples = list(blocks(N, T * (wide + out), numbers))
        if self.bias:
            K += gram(torch.cat([self._of(some)[1].sum(1) for some in samples]))
        for rows in blocks(out, N * wide, numbers):
            G = torch.empty(N, rows.stop - rows.start, wide, dtype=delta.dtype, device=delta.device)
            for some in samples:
                x, delta = self._of(some)
                torch.bmm(delta[:, :, rows].mT, x, out=G[some])
            K += gram(G.flatten(1))
        return K


def _products(a: Tensor, b: Tensor) -> Tensor:
    """All inner products [n·T, n′·T] of a [n, T, w] and b [n′, T, w], float64."""
    return a.double().flatten(0, 1) @ b.double().flatten(0, 1).T


def gram(G: Tensor, H: Tensor | None = None) -> Tensor:
    """G Gᵀ [N, N], or G Hᵀ, float64; G [N, P] in single or double precision."""
    if H is not None:
        return torch.stack([a.double() @ b.double().T for a, b in _columns(G, H)]).sum(0)
    N = len(G)
    K = torch.zeros(N, N, dtype=torch.float64, device=G.device)
    groups = list(blocks(N, 1, -(-N // GROUPS)))
    for part, _ in _columns(G, G):
        wide = part.double()
        for one in groups:
            K[one, one.start :] += wide[one] @ wide[one.start :].T
    return K.triu() + K.triu(1).T


def _columns(G: Tensor, H: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(G, SHORT, 1), torch.split(H, SHORT, 1), strict=True)


def module_factors(
    module: nn.Module, names: Collection[str], space: tuple[int, ...]
) -> Callable[[Tensor, Tensor], Factors] | None:
    """How factors of a convolution or an embedding are kept, with those of its parameters in `names` that count.

    `space`: the size of the maps that a convolution is given. None for modules whose gradients have no such factors.
    """
    weight, bias = "weight" in names, "bias" in names
    if isinstance(module, CONVOLUTIONS) and module.groups == 1:
        patches = Patches.of(module, space)

        def cut(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            return patches.columns(x).mT, g.flatten(2).mT

        return lambda x, g: Factors(x, g, cut, weight, bias)
    if isinstance(module, nn.Embedding) and weight:
        rows = len(module.weight)

        def look(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            return x.remainder(rows).reshape(len(x), -1, 1), g.reshape(len(x), -1, g.shape[-1])

        return lambda x, g: Factors(x, g, look, looked_up=True)
    return None
