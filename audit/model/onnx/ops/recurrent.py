"""RNN, GRU and LSTM by formula, one step after the other: torch's fused cells have no second derivative everywhere.

x [time, n, in], h and c [n, hidden]; W, R and B are stacked by gate in ONNX's order: LSTM i, o, f, c; GRU z, r, h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from audit.errors import ModelError
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
    """z update, r reset: h' = (1 - z) ĥ + z h, with ĥ = g(x + r ∘ (R h + b)) or g(x + R (r ∘ h) + b)."""
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
    """i input, o output, f forget gate: c' = f ∘ c + i ∘ ĉ and h' = o ∘ tanh(c')."""
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
class Recurrence:
    """What the three operators share: how their attributes are read and how time is walked through."""

    step: Step
    gates: int
    states: int
    defaults: tuple[str, ...]

    def run(
        self, inputs: tuple[Tensor | None, ...], peephole: Tensor | None, options: dict[str, object]
    ) -> tuple[Tensor, ...]:
        """All directions: Y [time, directions, n, hidden] and the last states [directions, n, hidden]."""
        x, weight, recurrent, bias, lengths, *starts = inputs
        assert x is not None and weight is not None and recurrent is not None
        layout = bool(options["layout"])
        x = x.transpose(0, 1) if layout else x
        backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[str(options["direction"])]
        chosen = self._activations(options, len(backwards))
        runs = []
        for d, backward in enumerate(backwards):
            size = recurrent.shape[-1]
            both = bias[d] if bias is not None else x.new_zeros(2 * self.gates * size)
            cell = Cell(
                recurrent[d], both[self.gates * size :], chosen[d], None if peephole is None else peephole[d],
                bool(options.get("input_forget")), bool(options.get("linear_before_reset")),
            )  # fmt: skip
            start = tuple(
                (s.transpose(0, 1)[d] if layout else s[d]) if s is not None else x.new_zeros(x.shape[1], size)
                for s in starts[: self.states]
            )
            driven = F.linear(x, weight[d], both[: self.gates * size])
            runs.append(self._walk(cell, driven, start, lengths, backward))
        outputs = torch.stack([run[0] for run in runs], 1)
        finals = [torch.stack([run[1][i] for run in runs]) for i in range(self.states)]
        if layout:
            return outputs.permute(2, 0, 1, 3), *(final.transpose(0, 1) for final in finals)
        return outputs, *finals

    def _walk(
        self, cell: Cell, driven: Tensor, state: State, lengths: Tensor | None, backward: bool
    ) -> tuple[Tensor, State]:
        """One direction through time; a sequence that has ended keeps its state and gives zeros."""
        ends = lengths if lengths is not None else driven.new_full((driven.shape[1],), driven.shape[0], dtype=torch.long)
        if backward:
            driven = reverse_time(driven.transpose(0, 1), ends).transpose(0, 1)
        outputs = []
        for t in range(driven.shape[0]):
            following = self.step(cell, driven[t], state)
            if lengths is None:
                state = following
                outputs.append(state[0])
            else:
                alive = (t < lengths).unsqueeze(1)
                state = tuple(torch.where(alive, new, old) for new, old in zip(following, state, strict=True))
                outputs.append(torch.where(alive, state[0], torch.zeros_like(state[0])))
        y = torch.stack(outputs)
        return (reverse_time(y.transpose(0, 1), ends).transpose(0, 1) if backward else y), state

    def _activations(self, options: dict[str, object], directions: int) -> list[list[Activation]]:
        """The activations of every direction; α and β are handed out, in order, to those that have one."""
        names = [str(name).lower() for name in options["activations"] or self.defaults * directions]  # type: ignore[attr-defined]
        alphas, betas = list(options["activation_alpha"] or []), list(options["activation_beta"] or [])  # type: ignore[call-overload]
        chosen: list[Activation] = []
        for name in names:
            if name not in ACTIVATIONS:
                raise ModelError(f"a recurrent layer uses the activation {name!r}, which is not supported; use tanh.")
            a = alphas.pop(0) if alphas and name in WITH_ALPHA else None
            b = betas.pop(0) if betas and name in WITH_BETA else None
            chosen.append(_clipped(name, a, b, options["clip"]))  # type: ignore[arg-type]
        each = len(self.defaults)
        return [chosen[d * each : (d + 1) * each] for d in range(directions)]


def _clipped(name: str, alpha: float | None, beta: float | None, clip: float | None) -> Activation:
    function = ACTIVATIONS[name]
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(x.clamp(-clip, clip), alpha, beta)


RNN = Recurrence(_rnn_step, gates=1, states=1, defaults=("tanh",))
GRU = Recurrence(_gru_step, gates=3, states=1, defaults=("sigmoid", "tanh"))
LSTM = Recurrence(_lstm_step, gates=4, states=2, defaults=("sigmoid", "tanh", "tanh"))


def _options(given: dict[str, object]) -> dict[str, object]:
    absent = {"activations": None, "activation_alpha": None, "activation_beta": None, "clip": None}
    return {**absent, "direction": "forward", "layout": 0, **given}


@operator("RNN", weights=WEIGHTS)
def _rnn(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
         h: Tensor | None = None, **options: object) -> tuple[Tensor, ...]:  # fmt: skip
    return RNN.run((x, weight, recurrent, bias, lengths, h), None, _options(options))


@operator("GRU", weights=WEIGHTS)
def _gru(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
         h: Tensor | None = None, **options: object) -> tuple[Tensor, ...]:  # fmt: skip
    return GRU.run((x, weight, recurrent, bias, lengths, h), None, _options(options))


@operator("LSTM", weights={**WEIGHTS, 7: "peephole"})
def _lstm(x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
          h: Tensor | None = None, c: Tensor | None = None, peephole: Tensor | None = None,
          **options: object) -> tuple[Tensor, ...]:  # fmt: skip
    return LSTM.run((x, weight, recurrent, bias, lengths, h, c), peephole, _options(options))
