"""Per-sample gradients of recurrent layers, from what their products were given in time and the signals that come back.

A recurrent layer is a few products with the same weights, step after step. Of z_t = W x_t + b the gradient of a sample
is Σ_t δ_t x_tᵀ, δ_t the signal at z_t: one ordinary backward pass over a batch leaves the signals of all its samples
and steps, and no step's gradient is ever formed by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from audit.maths.blocks import HELD, SAMPLE_GRADIENTS, blocks
from audit.model.base import filled
from audit.network.hooks import scores

OPERATORS = ("lstm", "gru", "rnn")  # of an ONNX file, which walk through time by formula already

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]
"""W x + b of one step, R h + b, and the state → the next state."""


def is_recurrent(module: nn.Module) -> bool:
    """Whether a module is a recurrent layer: torch's own, or an ONNX file's operator."""
    return isinstance(module, nn.RNNBase) or module.extra_repr() in OPERATORS


@dataclass(frozen=True)
class Product:
    """Calls of one product z = W x + b, W and b being parts of parameters."""

    weight: tuple[str, int]  # the parameter's name, and where in it W begins
    bias: tuple[str, int] | None
    calls: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # x [n, T, in] and z [n, T, out]

    def gradients(self, rows: slice, delta: Tensor) -> Iterator[tuple[str, int, Tensor]]:
        """Name, place and values [n, K, …] of each parameter's part, for the samples `rows`: δ [n, K, T, out]."""
        x = torch.cat([x[rows] for x, _ in self.calls], 1)
        n, K, T, out = delta.shape
        by_row = delta.transpose(2, 3).reshape(n, K * out, T) @ x
        yield *self.weight, by_row.reshape(n, K, -1)
        if self.bias is not None:
            yield *self.bias, delta.sum(2)


class Unrolled:
    """Per-sample gradients of the named parameters of a network, all of them held by recurrent layers."""

    def __init__(self, network: nn.Module, values: Mapping[str, Tensor], batch: int | None) -> None:
        self._network, self._values, self._batch = network, values, batch

    def gradients(self, x: Tensor, cotangents: Tensor) -> dict[str, Tensor]:
        """∂(cotangent_ik · f_i)/∂θ of every sample i; cotangents [n, K, C] → for each name [n, K, *shape]."""
        if not self._values:
            return {}
        f, products = self._run(x)
        return self._joined(products, _signals(f, products, cotangents), slice(0, len(x)))

    def squares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j ‖∂f_i/∂θ_j‖² and Σ_j θ_j² ‖∂f_i/∂θ_j‖² of every sample i [n], float64."""
        plain, weighted = torch.zeros(2, len(x), dtype=torch.float64, device=x.device)
        for rows in blocks(len(x) if self._values else 0, 1, SAMPLE_GRADIENTS):
            f, products = self._run(x[rows])
            n, units = rows.stop - rows.start, torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
            for some in blocks(len(units), sum(z.numel() for each in products for _, z in each.calls), 2 * HELD):
                signals = _signals(f, products, units[some].expand(n, -1, -1))
                for part in blocks(n, len(units[some]) * sum(each.numel() for each in self._values.values()), HELD):
                    for name, values in self._joined(products, signals, part).items():
                        squared, theta = values.double().square().sum(1).flatten(1), self._values[name].double()
                        plain[rows][part] += squared.sum(1)
                        weighted[rows][part] += squared @ theta.square().flatten()
        return plain, weighted

    def _run(self, x: Tensor) -> tuple[Tensor, list[Product]]:
        """Scores of the samples, and the products on the way."""
        watch = Products(self._values)
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), step_by_step(self._network), watch:
            return scores(self._network, filled(x, self._batch or 1)), watch.products

    def _joined(self, products: Sequence[Product], signals: Sequence[Tensor], rows: slice) -> dict[str, Tensor]:
        """The gradients of the samples `rows`, put together from their parts."""
        n, K = signals[0][rows].shape[:2]
        flat = {name: value.new_zeros(n, K, value.numel()) for name, value in self._values.items()}
        for product, delta in zip(products, signals, strict=True):
            for name, place, values in product.gradients(rows, delta[rows]):
                flat[name][:, :, place : place + values.shape[2]] += values
        return {name: values.reshape(n, K, *self._values[name].shape) for name, values in flat.items()}


def _signals(f: Tensor, products: Sequence[Product], cotangents: Tensor) -> list[Tensor]:
    """What comes back to each product's calls, [n, K, T, out], of scores f with cotangents [n, K, C]."""
    zs = [z for each in products for _, z in each.calls]
    found = []
    for cotangent in cotangents.unbind(1):
        full = torch.zeros_like(f)
        full[: len(cotangent)] = cotangent.to(f.dtype)
        each = iter(torch.autograd.grad(f, zs, full, retain_graph=True, materialize_grads=True))
        found.append([torch.cat([next(each) for _ in product.calls], 1)[: len(cotangent)] for product in products])
    return [torch.stack(column, 1) for column in zip(*found, strict=True)]


class Products(TorchFunctionMode):
    """While it is on, keeps the calls of every product whose weights are parts of the given parameters."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._parameters = parameters
        self._found: dict[object, Product] = {}

    @property
    def products(self) -> list[Product]:
        """In the order of their first calls."""
        return list(self._found.values())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function; of a product, the answer is something that has a gradient."""
        found = func(*args, **(kwargs or {}))
        weight = self._place(args[1]) if func is F.linear and len(args) > 1 else None
        if weight is None:
            return found
        bias = self._place(args[2]) if len(args) > 2 and isinstance(args[2], Tensor) else None
        z = found.movedim(0, 1) if found.dim() == 3 else found[:, None]  # time comes first where there is any
        z = z if z.requires_grad else z.detach().requires_grad_()
        x = args[0].detach()
        key = (weight, tuple(args[1].shape), bias)
        kept = self._found.setdefault(key, Product(weight, bias))
        kept.calls.append((x.movedim(0, 1) if x.dim() == 3 else x[:, None], z))
        return z.movedim(0, 1).clone() if found.dim() == 3 else z[:, 0].clone()

    def _place(self, part: Tensor) -> tuple[str, int] | None:
        """Which parameter a tensor lies in, and from which of its numbers on."""
        for name, value in self._parameters.items():
            offset = (part.data_ptr() - value.data_ptr()) // value.element_size()
            if 0 <= offset < value.numel() and part.is_contiguous():
                return name, offset
        return None


@contextmanager
def step_by_step(network: nn.Module) -> Iterator[None]:
    """Torch's own recurrent layers run by formula, so that their products are seen."""
    with ExitStack() as stack:
        for module in network.modules():
            if isinstance(module, nn.RNNBase):
                object.__setattr__(module, "forward", functools.partial(run, module))
                stack.callback(module.__dict__.pop, "forward")
        yield


def run(module: nn.RNNBase, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
    """What the layer itself would answer to x [n, T, in], or [T, n, in] where time comes first."""
    if getattr(module, "proj_size", 0) or not isinstance(x, Tensor) or x.dim() != 3:
        raise NotImplementedError("a recurrent layer with projections, or of sequences that are packed")
    x = x.transpose(0, 1) if module.batch_first else x
    directions, size = 1 + module.bidirectional, module.hidden_size
    kept = 2 if module.mode == "LSTM" else 1
    zeros = x.new_zeros(module.num_layers * directions, x.shape[1], size)
    starts = (zeros,) * kept if state is None else (state,) if isinstance(state, Tensor) else state
    ends: list[State] = []
    for _ in range(module.num_layers):
        answers = []
        for backward in range(directions):
            own = tuple(start[len(ends)] for start in starts)
            y, last = _walk(module, x.flip(0) if backward else x, own, len(ends))
            answers.append(y.flip(0) if backward else y)
            ends.append(last)
        x = torch.cat(answers, -1)
    found = tuple(torch.stack(column) for column in zip(*ends, strict=True))
    return x.transpose(0, 1) if module.batch_first else x, found if kept == 2 else found[0]


def _walk(module: nn.RNNBase, x: Tensor, state: State, place: int) -> tuple[Tensor, State]:
    """One direction of one layer through time."""
    W, R, *biases = module.all_weights[place]
    own, fed_back = biases if biases else (None, None)
    driven, step, answers = F.linear(x, W, own), STEPS[module.mode], []
    for each in driven:
        state = step(each, F.linear(state[0], R, fed_back), state)
        answers.append(state[0])
    return torch.stack(answers), state


def _lstm(driven: Tensor, recalled: Tensor, state: State) -> State:
    i, forget, proposal, o = (driven + recalled).chunk(4, -1)
    c = torch.sigmoid(forget) * state[1] + torch.sigmoid(i) * torch.tanh(proposal)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(driven: Tensor, recalled: Tensor, state: State) -> State:
    (r, z, proposal), (r_, z_, proposal_) = driven.chunk(3, -1), recalled.chunk(3, -1)
    update = torch.sigmoid(z + z_)
    return ((1 - update) * torch.tanh(proposal + torch.sigmoid(r + r_) * proposal_) + update * state[0],)


def _plain(activation: Callable[[Tensor], Tensor], driven: Tensor, recalled: Tensor, _state: State) -> State:
    return (activation(driven + recalled),)


STEPS: dict[str, Step] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": functools.partial(_plain, torch.tanh),
    "RNN_RELU": functools.partial(_plain, torch.relu),
}
