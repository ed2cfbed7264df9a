"""Whether a network is linear in each of its parameters and piecewise linear in its input: seen in one forward pass.

Every operator that the pass runs is watched, whatever file the network comes from. Each tensor is marked with what it
depends on: the input, and parameters by name. A product of two that depend on different things is linear in each; one
of two that depend on the same thing is not. An operator that is not known to be linear counts as curved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from audit.network.hooks import Operators

INPUT = ""  # what the network's input is called among the parameters' names

LINEAR = {  # in all their tensors together, or piecewise so
    *("add", "add_", "sub", "sub_", "rsub", "neg", "cat", "stack", "sum", "mean", "clone", "copy_", "_to_copy"),
    *("view", "_unsafe_view", "_reshape_alias", "permute", "transpose", "t", "squeeze", "unsqueeze"),
    *("expand", "slice", "select", "split", "split_with_sizes", "unbind", "alias", "detach", "flip"),
    *("as_strided", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "repeat"),
    *("relu", "relu_", "threshold", "leaky_relu", "leaky_relu_", "hardtanh", "hardtanh_", "clamp", "clamp_"),
    *("clamp_min", "clamp_min_", "clamp_max", "abs", "amax", "max", "min", "maximum", "minimum"),
    *("max_pool2d", "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "upsample_nearest2d"),
    *("upsample_bilinear2d", "im2col", "col2im"),
}
PRODUCTS = {"mul", "mul_", "mm", "bmm", "mv", "dot", "convolution", "_prelu_kernel", "embedding"}
WITH_SUMMAND = {"addmm", "baddbmm", "addmv"}  # the first tensor is added to the product of the other two
QUOTIENTS = {"div", "div_"}
NORMS = {"native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"}

Marks = frozenset[str]
NOTHING: Marks = frozenset()


@torch.no_grad()
def is_multilinear(network: nn.Module, x: Tensor) -> bool:
    """Whether, on the samples x [n, …], the scores are for certain linear in each parameter while all others rest.

    Then ∂²f/∂θ_j² = 0 for each of them; and the scores are piecewise linear in the input and in each layer's answer.

    >>> x = torch.ones(2, 3)
    >>> is_multilinear(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), x), is_multilinear(nn.Tanh(), x)
    (True, False)
    """
    watch = _Watch({name: value for name, value in network.named_parameters()} | {INPUT: x})
    with watch:
        network(x)
    return not watch.curved


class _Watch(Operators):
    """Follows what depends on what while a network runs."""

    def __init__(self, given: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.curved = False
        self._marks = {_place(value): frozenset([name]) for name, value in given.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator, and marks what it gives."""
        found = func(*args, **(kwargs or {}))
        given = _tensors([*args, *(kwargs or {}).values()])
        marks = [self._marks.get(_place(tensor), NOTHING) for tensor in given]
        self.curved = self.curved or not _keeps_linear(func._overloadpacket.__name__, marks, args)
        together = NOTHING.union(*marks)
        places = {_place(tensor) for tensor in given}
        for tensor in _tensors([found]):
            kept = self._marks.get(_place(tensor), NOTHING) if _place(tensor) in places else NOTHING
            self._marks[_place(tensor)] = kept | together  # memory that was free until now has lost its marks
        return found


def _keeps_linear(name: str, marks: Sequence[Marks], args: Sequence[Any]) -> bool:
    """Whether the operator is linear in everything that its tensors depend on."""
    if not any(marks) or name in LINEAR:
        return True
    if name in PRODUCTS:
        return _are_apart(marks[:2])
    if name in WITH_SUMMAND:
        return _are_apart(marks[1:3])
    if name in QUOTIENTS:
        return len(marks) < 2 or not marks[1]
    if name in NORMS and not any(argument is True for argument in args[3:6]):
        return _are_apart(marks[:2])
    return False


def _are_apart(marks: Sequence[Marks]) -> bool:
    return len(marks) < 2 or not marks[0] & marks[1]


def _place(tensor: Tensor) -> int:
    """The memory that a tensor and all its views lie in."""
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [part for value in values for part in _tensors(value)] if isinstance(values, (list, tuple)) else []
