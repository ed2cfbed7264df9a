"""RNN, GRU and LSTM by formula, one step after the other: torch's fused cells have no second derivative everywhere.

x [time, n, in], h and c [n, hidden]; W, R and B are stacked by gate in ONNX's order: LSTM i, o, f, c; GRU z, r, h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.model.onnx.ops.registry import operator
from audit.model.onnx.ops.shape import reverse_time

WEIGHTS = {1: "weight", 2: "recurrent_weight", 3: "bias"}
Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]

ACTIVATIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "softsign": lambda x, a, b: x / (1 + x.abs()),
    "softplus": lambda x, a, b: F.softplus(x, threshold=50.0),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (b or 0.0),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: torch.where(x > (1.0 if a is None else a), x, torch.zeros_like(x)),
    "scaledtanh": lambda x, a, b: (1.0 if a is None else a) * torch.tanh((1.0 if b is None else b) * x),
    "hardsigmoid": lambda x, a, b: ((0.2 if a is None else a) * x + (0.5 if b is None else b)).clamp(0, 1),
    "elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
}
WITH_ALPHA = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


@dataclass(frozen=True)
class Cell:
    """One direction's weights and activations."""

    recurrent: Tensor  # [gates · hidden, hidden]
    recurrent_bias: Tensor  # [gates · hidden]
    activations: list[Activation]
    peephole: Tensor | None = None  # [3 · hidden], in the order i, o, f
    input_forget: bool = False
    linear_before_reset: bool = False

    def gates(self, h: Tensor) -> Tensor:
        """R h + r for all gates at once."""
        return F.linear(h, self.recurrent, self.recurrent_bias)


Step = Callable[[Cell, Tensor, State], State]


def _rnn_step(cell: Cell, driven: Tensor, state: State) -> State:
    return (cell.activations[0](driven + cell.gates(state[0])),)


def _gru_step(cell: Cell, driven: Tensor, state: State) -> State:
    """With gates z and r: h' = (1 - z) ĥ + z h, where ĥ = g(x + r ∘ (R h + b)) or g(x + R (r ∘ h) + b)."""
    (h,) = state
    f, g = cell.activations
    size = h.shape[-1]
    recur = cell.gates(h)
    update = f(driven[:, :size] + recur[:, :size])
    reset = f(driven[:, size : 2 * size] + recur[:, size : 2 * size])
    if cell.linear_before_reset:
        recalled = reset * recur[:, 2 * size :]
    else:
        recalled = F.linear(reset * h, cell.recurrent[2 * size :], cell.recurrent_bias[2 * size :])
    proposal = g(driven[:, 2 * size :] + recalled)
    return ((1 - update) * proposal + update * h,)


def _lstm_step(cell: Cell, driven: Tensor, state: State) -> State:
    """With i input, o output, f forget gate: c' = f ∘ c + i ∘ ĉ and h' = o ∘ tanh(c')."""
    h, c = state
    f, g, out = cell.activations
    i, o, forget, proposal = (driven + cell.gates(h)).chunk(4, -1)
    peep_i, peep_o, peep_f = cell.peephole.chunk(3) if cell.peephole is not None else (None, None, None)
    i = f(i if peep_i is None else i + peep_i * c)
    forget = 1 - i if cell.input_forget else f(forget if peep_f is None else forget + peep_f * c)
    c = forget * c + i * g(proposal)
    o = f(o if peep_o is None else o + peep_o * c)
    return o * out(c), c


@dataclass(frozen=True)
class Options:
    """The attributes that the three operators share, and each one's own."""

    activations: Sequence[str] = ()
    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int = 0
    input_forget: int = 0
    layout: int = 0
    linear_before_reset: int = 0
    output_sequence: int = 0

    @property
    def backwards(self) -> list[bool]:
        """For each direction, whether it walks from the end of time."""
        return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[self.direction]


def _known(attributes: Mapping[str, Any]) -> bool:
    names = {name.lower() for name in attributes.get("activations", [])}
    return set(attributes) <= {field.name for field in fields(Options)} and names <= set(ACTIVATIONS)


@dataclass(frozen=True)
class Recurrence:
    """How one of the three operators walks through time."""

    step: Step
    gates: int
    defaults: tuple[str, ...]

    def run(
        self,
        x: Tensor,
        weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
        lengths: Tensor | None,
        starts: tuple[Tensor | None, ...],
        options: Options,
    ) -> tuple[Tensor, ...]:
        """All directions: Y [time, directions, n, hidden] and the last states [directions, n, hidden]."""
        weight, recurrent, bias, peephole = weights
        x = x.transpose(0, 1) if options.layout else x
        size, runs = recurrent.shape[-1], []
        for d, backward in enumerate(options.backwards):
            both = bias[d] if bias is not None else x.new_zeros(2 * self.gates * size)
            cell = Cell(
                recurrent[d],
                both[self.gates * size :],
                self._activations(options)[d],
                None if peephole is None else peephole[d],
                bool(options.input_forget),
                bool(options.linear_before_reset),
            )
            state = tuple(
                x.new_zeros(x.shape[1], size) if start is None else start.select(options.layout, d) for start in starts
            )
            driven = F.linear(x, weight[d], both[: self.gates * size])
            runs.append(_walk(self.step, cell, driven, state, lengths, backward))
        outputs = torch.stack([y for y, _ in runs], 1)
        finals = [torch.stack(last, options.layout) for last in zip(*(state for _, state in runs), strict=True)]
        return outputs.permute(2, 0, 1, 3) if options.layout else outputs, *finals

    def _activations(self, options: Options) -> list[list[Activation]]:
        """The activations of every direction; α and β are handed out, in order, to those that have one."""
        directions = len(options.backwards)
        names = [name.lower() for name in options.activations or self.defaults * directions]
        alphas, betas = list(options.activation_alpha), list(options.activation_beta)
        chosen = []
        for name in names:
            alpha = alphas.pop(0) if alphas and name in WITH_ALPHA else None
            beta = betas.pop(0) if betas and name in WITH_BETA else None
            chosen.append(_clipped(name, alpha, beta, options.clip))
        each = len(self.defaults)
        return [chosen[d * each : (d + 1) * each] for d in range(directions)]


def _walk(
    step: Step, cell: Cell, driven: Tensor, state: State, lengths: Tensor | None, backward: bool
) -> tuple[Tensor, State]:
    """One direction through time; a sequence that has ended keeps its state and gives zeros."""
    time, samples = driven.shape[:2]
    ends = lengths if lengths is not None else torch.full((samples,), time, device=driven.device)
    if backward:
        driven = reverse_time(driven.transpose(0, 1), ends).transpose(0, 1)
    outputs = []
    for t in range(time):
        following = step(cell, driven[t], state)
        if lengths is None:
            state = following
            outputs.append(state[0])
        else:
            alive = (t < lengths).unsqueeze(1)
            state = tuple(torch.where(alive, new, old) for new, old in zip(following, state, strict=True))
            outputs.append(torch.where(alive, state[0], torch.zeros_like(state[0])))
    y = torch.stack(outputs)
    return (reverse_time(y.transpose(0, 1), ends).transpose(0, 1) if backward else y), state


def _clipped(name: str, alpha: float | None, beta: float | None, clip: float | None) -> Activation:
    function = ACTIVATIONS[name]
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(x.clamp(-clip, clip), alpha, beta)


RNN = Recurrence(_rnn_step, gates=1, defaults=("tanh",))
GRU = Recurrence(_gru_step, gates=3, defaults=("sigmoid", "tanh"))
LSTM = Recurrence(_lstm_step, gates=4, defaults=("sigmoid", "tanh", "tanh"))


@operator("RNN", weights=WEIGHTS, accepts=_known)
def _rnn(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
         h: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:  # fmt: skip
    return RNN.run(x, (weight, recurrent, bias, None), lengths, (h,), Options(**options))


@operator("GRU", weights=WEIGHTS, accepts=_known)
def _gru(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
         h: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:  # fmt: skip
    return GRU.run(x, (weight, recurrent, bias, None), lengths, (h,), Options(**options))


@operator("LSTM", weights={**WEIGHTS, 7: "peephole"}, accepts=_known)
def _lstm(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
          h: Tensor | None = None, c: Tensor | None = None, peephole: Tensor | None = None,
          **options: Any) -> tuple[Tensor, ...]:  # fmt: skip
    return LSTM.run(x, (weight, recurrent, bias, peephole), lengths, (h, c), Options(**options))
