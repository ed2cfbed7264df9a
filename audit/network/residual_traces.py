"""What Gauss–Newton leaves out of the Hessian of every dense layer's weights, in size: its trace, on a few samples.

With g = ∂l/∂f held fixed, M = Σ_c g_c ∂²f_c/∂W² is zero where the network behind a layer is piecewise linear. For a
vector v of random signs over the weights of all layers at once, v_l·(M v)_l has the mean Tr M_ll: products between two
layers cancel. So one double backward pass over a batch gives one draw for every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.network import DenseLayer
from audit.network.capture import Batch
from audit.network.hooks import Operators, scores
from audit.network.loss import Loss
from audit.network.random_signs import Draw, Draws, Estimate


@dataclass(frozen=True)
class ResidualTraces:
    """By layer name."""

    traces: dict[str, Estimate]  # mean over samples of Tr M
    curved: frozenset[str]  # layers behind which M is not zero on some sample
    known: bool = True  # False where the network could not be differentiated twice


def residual_traces(
    network: nn.Module, layers: Sequence[DenseLayer], loss: Loss, batches: Sequence[Batch], draw: Draw
) -> ResidualTraces:
    """`draw.repeats` double backward passes over each batch; behind which layers M is not zero, the first one shows."""
    names = [layer.name for layer in layers]
    draws = {name: Draws(draw.population) for name in names}
    generator = torch.Generator().manual_seed(draw.seed)
    with _leaves(network, layers) as weights:
        passes = Passes(network, weights, loss, generator)
        try:
            curved = frozenset(name for name, found in zip(names, passes.curved(batches[0]), strict=True) if found)
            for batch in batches if curved else ():
                found = torch.stack([passes.draw(batch) for _ in range(draw.repeats)])  # [R, L]
                for place, name in enumerate(names):
                    draws[name].add(found[:, place], batch.rows)
        except RuntimeError:  # "derivative for … is not implemented": a fused kernel in the network
            return ResidualTraces({}, frozenset(names), known=False)
    return ResidualTraces({name: draws[name].estimate() for name in curved}, curved)


@contextmanager
def _leaves(network: nn.Module, layers: Sequence[DenseLayer]) -> Iterator[list[nn.Parameter]]:
    """The layers' weights, with gradients for a while."""
    weights = [network.get_parameter(f"{layer.module}.weight".lstrip(".")) for layer in layers]
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        yield weights
    finally:
        for weight, needed in zip(weights, before, strict=True):
            weight.requires_grad_(needed)


@dataclass(frozen=True)
class Passes:
    """Double backward passes with random signs over the weights."""

    network: nn.Module
    weights: Sequence[Tensor]
    loss: Loss
    generator: torch.Generator

    def draw(self, batch: Batch) -> Tensor:
        """v_l·(M v)_l summed over the batch, for every layer [L], float64."""
        slopes, signs = self._slopes(batch)
        along = torch.stack([(slope * v).sum() for slope, v in zip(slopes, signs, strict=True)]).sum()
        second = self._derivative(along)
        return torch.stack([(part.double() * v.double()).sum() for part, v in zip(second, signs, strict=True)])

    def curved(self, batch: Batch) -> list[bool]:
        """Whether M_ll v_l is anything but zero, layer by layer."""
        slopes, signs = self._slopes(batch)
        found = []
        for weight, slope, v in zip(self.weights, slopes, signs, strict=True):
            along = (slope * v).sum()
            second = (
                []
                if not along.requires_grad
                else torch.autograd.grad(along, [weight], retain_graph=True, allow_unused=True)
            )
            found.append(any(part is not None and bool((part != 0).any()) for part in second))
        return found

    def _slopes(self, batch: Batch) -> tuple[Sequence[Tensor], list[Tensor]]:
        """∂(g·f)/∂W with its graph, and signs like it, for every layer."""
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            f = scores(self.network, batch.x)
            g = torch.zeros_like(f)
            g[: batch.rows] = self.loss.gradient(f.detach().double()[: batch.rows], batch.y[: batch.rows]).to(f)
            slopes = torch.autograd.grad(f, self.weights, g, create_graph=True, materialize_grads=True)
        return slopes, [torch.randint(2, w.shape, generator=self.generator).to(w) * 2 - 1 for w in self.weights]

    def _derivative(self, along: Tensor) -> Sequence[Tensor]:
        if not along.requires_grad:
            return [torch.zeros_like(weight) for weight in self.weights]
        return torch.autograd.grad(along, self.weights, materialize_grads=True)


# Whether a network is linear in each of its parameters and piecewise linear in its input: seen in one forward pass.
#
# Every operator that the pass runs is watched, whatever file the network comes from. Each tensor is marked with what it
# depends on: the input, and parameters by name. A product of two that depend on different things is linear in each; one
# of two that depend on the same thing is not. An operator that is not known to be linear counts as curved.


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
