"""A convolution as a dense layer: what its kernel sees at each position is a vector, and its weights act on all alike.

z_p = W u_p + b with W [out, in·k] the flattened kernel and u_p the patch at position p: everything that is said of a
dense layer over tokens holds for a convolution over its patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv1d_input, conv2d_input, conv3d_input

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
