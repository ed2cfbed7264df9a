"""Where a window stands: paddings and output sizes that convolutions and pools share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from audit.model.onnx.ops.tensors import Ints, ints


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial axes of a tensor: one entry per axis."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]

    @property
    def extent(self) -> list[int]:
        """How far the window reaches along each axis."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]

    @property
    def padded(self) -> bool:
        """Whether anything is added around the input."""
        return any(self.before) or any(self.after)

    @property
    def flat_pads(self) -> list[int]:
        """Amounts in the order of `torch.nn.functional.pad`: the last axis first."""
        return [side[i] for i in reversed(range(len(self.kernel))) for side in (self.before, self.after)]


def window(
    sizes: list[int], kernel: list[int], strides: Ints, dilations: Ints, pads: Ints, auto_pad: str, ceil: bool = False
) -> Window:
    """The window over an input of these spatial sizes, with its paddings in numbers."""
    rank = len(kernel)
    stride, dilation = ints(strides) or [1] * rank, ints(dilations) or [1] * rank
    given = ints(pads) if pads is not None and auto_pad in ("NOTSET", "") else [0] * 2 * rank
    before, after = given[:rank], given[rank:]
    for i in range(rank):
        extent = dilation[i] * (kernel[i] - 1) + 1
        if auto_pad.startswith("SAME"):
            missing = max(0, (math.ceil(sizes[i] / stride[i]) - 1) * stride[i] + extent - sizes[i])
            small, large = missing // 2, missing - missing // 2
            before[i], after[i] = (large, small) if auto_pad == "SAME_LOWER" else (small, large)
        elif ceil:
            room = sizes[i] + before[i] + after[i] - extent
            steps = math.ceil(room / stride[i])
            # a last window that would start in the padding beyond the input is left out
            steps -= steps * stride[i] >= sizes[i] + before[i]
            after[i] += max(0, steps * stride[i] - room)
    return Window(kernel, stride, dilation, before, after)
