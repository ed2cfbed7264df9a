"""How far the weights can move along a direction before the train loss has doubled (Feng & Tu, Fig. S4).

The losses along a line in W come from the network behind the layer, run alone: a walk changes the layer's answer, not
what leads to it. That part is cut out of the network's graph where it can be traced and where nothing leads round the
layer. It must then give the network's own losses; otherwise the whole network is run, with the layer's answer shifted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn

from audit.maths.blocks import blocks
from audit.maths.intervals import standard_error
from audit.measures.duality.basis import Direction, Leading
from audit.measures.duality.block import Width
from audit.measures.duality.layer_pairs import as_raw, shifted_losses
from audit.network import DenseLayer
from audit.network.capture import Capture
from audit.network.hooks import hooked, scores

AGREEMENT = {torch.float64: 1e-10, torch.float32: 1e-4}

Losses = Callable[[float], Tensor]  # t → losses [n]


class Lines:
    """Losses of a few samples along straight lines in the weights of one layer."""

    def __init__(self, activations: LayerActivations, layer: DenseLayer) -> None:
        self._capture, self._layer, self._x = activations.capture, layer, activations.x
        capture, x, y = activations.capture, activations.x, activations.y
        self._y = y.to(next(capture.network.parameters()).device)
        self._tail = None if capture.fixed_batch else cut_behind(capture.network, layer)
        if self._tail is None:
            self.own = torch.cat([record.loss for record in capture.forward(x, y)])  # losses at W itself [n]
            return
        self._given, self._z, f = activations.of(layer)
        self.own = capture.loss.value(f.double(), self._y)
        allowed = AGREEMENT[self._z.dtype]
        if not torch.allclose(self._tail_losses(self._z), self.own, rtol=allowed, atol=allowed):
            self._tail = None

    @property
    def tolerance(self) -> float:
        """How closely a place on a line can be told apart."""
        return TOLERANCE[next(self._capture.network.parameters()).dtype]

    @property
    def mean_loss(self) -> float:
        """L at W itself."""
        return float(self.own.mean())

    def along(self, direction: Direction) -> Losses:
        """Losses with the layer's weights at W + t E, E the direction."""
        if self._tail is None:
            E = direction.matrix()
            return lambda t: self._whole_losses(t * E)
        if self._layer.patches is not None:
            moved = self._layer.patches.convolve(direction.matrix().to(self._given), self._given)
        else:
            given = self._layer.arrange_input(self._given, len(self._x))
            moved = as_raw(direction.times(given), self._z, self._layer)
        return lambda t: self._tail_losses(self._z + t * moved)

    @torch.no_grad()
    def _tail_losses(self, z: Tensor) -> Tensor:
        assert self._tail is not None
        f = self._tail(z).reshape(len(self._x), -1).double()
        return self._capture.loss.value(f, self._y)

    def _whole_losses(self, change: Tensor) -> Tensor:
        parts = blocks(len(self._x), 1, self._capture.forward_size)
        given = ((self._x[part], self._y[part]) for part in parts)
        return torch.cat(
            [shifted_losses(self._capture, self._layer, lambda x: x @ change.to(x).T, *part) for part in given]
        )


def cut_behind(network: nn.Module, layer: DenseLayer) -> fx.GraphModule | None:
    """The network from the layer's answer on, or None where it cannot be had alone."""
    if not stands_alone(layer):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = network if isinstance(network, fx.GraphModule) else fx.symbolic_trace(network)
            return _cut(traced, layer.module)
    except Exception:  # code that cannot be traced may fail in any way at all; the whole network still runs
        return None


def _cut(traced: fx.GraphModule, path: str) -> fx.GraphModule | None:
    graph = fx.Graph()
    graph.output(graph.graph_copy(traced.graph, {}))
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == path]
    if len(calls) != 1:
        return None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_before(calls[0]):
        calls[0].replace_all_uses_with(graph.placeholder("answer"))
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    for node in inputs:
        if node.users:
            return None
        graph.erase_node(node)
    return fx.GraphModule(traced, graph)


# What dense layers are given and what they answer on a few samples, in their raw shapes: all layers in one run.


Activations = tuple[Tensor, Tensor, Tensor]  # a layer's input, its answer, and the scores [n, C]


def stands_alone(layer: DenseLayer) -> bool:
    """Whether everything runs through the layer, once, and its weights are used nowhere else."""
    return layer.cut_point and layer.calls == 1 and not layer.tied_with


class LayerActivations:
    """Runs the samples when a layer is first asked for: with all layers if those fit into `room` bytes, or alone."""

    def __init__(self, capture: Capture, layers: Sequence[DenseLayer], x: Tensor, y: Tensor, room: int = 0) -> None:
        self.capture, self.x, self.y = capture, x, y
        alone = [layer for layer in layers if stands_alone(layer)]
        numbers = sum(layer.tokens * (layer.in_features + layer.out_features) for layer in alone)
        self._layers = alone if 8 * len(x) * numbers <= room else []
        self._found: dict[str, Activations] = {}

    def of(self, layer: DenseLayer) -> Activations:
        """Of a layer that is called once."""
        if layer.name not in self._found:
            together = layer in self._layers
            found = _run(self.capture, self._layers if together else [layer], self.x, self.y)
            if not together:
                return found[layer.name]
            self._found = found
        return self._found[layer.name]


@torch.no_grad()
def _run(capture: Capture, layers: Sequence[DenseLayer], x: Tensor, y: Tensor) -> dict[str, Activations]:
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {layer.name: [] for layer in layers}

    def keeping(name: str) -> Callable[..., None]:
        return lambda _module, inputs, z: seen[name].append((inputs[0].clone(), z.clone()))

    with hooked(capture.network, {layer.module: keeping(layer.name) for layer in layers}):
        batches = capture.batches(x, y, capture.forward_size)
        f = torch.cat([scores(capture.network, batch.x) for batch in batches])
    return {layer.name: (*_joined(layer, seen[layer.name]), f) for layer in layers}


def _joined(layer: DenseLayer, parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    given, answers = zip(*parts, strict=True)
    return torch.cat(given, layer.batch_axis), torch.cat(answers, layer.batch_axis)


# The widths: where the mean loss has doubled on either side.
# On each side, from W outwards in doubling steps until the mean loss is beyond 2 L₀, then the secant method with a safe
# bracket (Illinois) on ln L. The first step is half of what the curvature alone would allow.


STEP = 1e-3  # relative, beyond the place where the loss has doubled, to see its slope there
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}  # of the place where the loss has doubled
FARTHEST = 1e3  # multiples of ‖W‖ that are walked before the loss counts as never doubling
MOST_STEPS = 60
BEYOND = 1e3  # stands for the logarithm of a loss that is no positive number
SAMPLES = 1000  # train samples, evenly spaced, that the widths are found on
SAMPLES_OF_CONVOLUTIONS = 200  # most of the network lies behind a convolution, and is run at every step


def spaced(count: int, most: int = SAMPLES) -> Tensor:
    """Evenly spaced positions in a split of `count` samples: all of them, or `most`."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def flatness_widths(lines: Lines, directions: Leading, curvatures: list[float], weight_norm: float) -> list[Width]:
    """F_n for each of `directions`, with eᵀ H e beside it for the first step."""
    if lines.mean_loss == 0:
        why = "not defined: the train loss is exactly zero, so there is nothing to double"
        return [_none(n + 1, why) for n in range(len(directions))]
    return [
        _width(n + 1, lines, direction, curvature, weight_norm)
        for n, (direction, curvature) in enumerate(zip(directions, curvatures, strict=True))
    ]


def _width(place: int, lines: Lines, direction: Direction, curvature: float, weight_norm: float) -> Width:
    along = lines.along(direction)
    start = math.sqrt(2 * lines.mean_loss / curvature) / 2 if curvature > 0 else math.inf
    start = min(start, max(weight_norm, 1.0))
    far = FARTHEST * max(weight_norm, 1.0)
    upper = crossing(lambda t: float(along(t).mean()), lines.mean_loss, (start, far), lines.tolerance)
    lower = crossing(lambda t: float(along(-t).mean()), lines.mean_loss, (start, far), lines.tolerance)
    above = None if upper is None else _moved(along, lines, upper)
    below = None if lower is None else _moved(along, lines, -lower)
    both = None if above is None or below is None else above - below
    return Width(
        direction=place,
        lower=None if lower is None else -lower,
        upper=upper,
        width=None if lower is None or upper is None else upper + lower,
        lower_std=_error(below),
        upper_std=_error(above),
        width_std=_error(both),
        skipped=None if both is not None else "the train loss does not double on both sides, however far one walks",
    )


def _moved(along: Losses, lines: Lines, t: float) -> Tensor:
    """What each sample adds to the place t where the mean loss has doubled, to first order [n].

    L(t) − 2 L(0) = 0 moves t by minus its own change over its slope, seen by a small step beyond t.
    """
    beyond = along(t * (1 + STEP)) - 2 * lines.own
    slope = float(beyond.mean()) / (t * STEP)
    return -beyond / slope if slope != 0 else torch.zeros_like(beyond)


def _error(added: Tensor | None) -> float | None:
    """Standard error of the mean of what samples add; None where it is no number."""
    if added is None:
        return None
    error = float(standard_error(added))
    return error if math.isfinite(error) else None


def _none(place: int, why: str) -> Width:
    return Width(direction=place, lower=None, upper=None, width=None, skipped=why)


def crossing(
    loss: Callable[[float], float], at_zero: float, within: tuple[float, float], tolerance: float
) -> float | None:
    """The first t > 0 where `loss` rises through twice its value at 0; `within`: a first step and the farthest one.

    >>> round(crossing(lambda t: 1 + t * t, 1.0, (0.1, 10.0), 1e-6), 6)
    1.0
    >>> crossing(lambda t: max(0.0, 1 - t), 1.0, (0.1, 10.0), 1e-6)
    """
    step, farthest = within

    def height(t: float) -> float:
        value = loss(t)
        if value <= 0:  # a loss that has fallen below the smallest number
            return -BEYOND
        return math.log(value / (2 * at_zero)) if value < math.inf else BEYOND

    a, height_a, b = 0.0, -math.log(2), step
    height_b = height(b)
    while height_b < 0:
        if b >= farthest:
            return None
        a, height_a, b = b, height_b, min(2 * b, farthest)
        height_b = height(b)
    return _illinois(height, (a, height_a), (b, height_b), tolerance)


def _illinois(
    height: Callable[[float], float], below: tuple[float, float], beyond: tuple[float, float], tolerance: float
) -> float:
    """The zero of `height` between two places, each given with its height."""
    (a, height_a), (b, height_b) = below, beyond
    middle, previous, side = b, a, 0
    for _ in range(MOST_STEPS):
        middle = (a * height_b - b * height_a) / (height_b - height_a)
        if abs(middle - previous) <= tolerance * middle:
            break
        previous, height_m = middle, height(middle)
        above = 1 if height_m >= 0 else -1
        if above == 1:
            b, height_b, height_a = middle, height_m, height_a / (2 if side == above else 1)
        else:
            a, height_a, height_b = middle, height_m, height_b / (2 if side == above else 1)
        side = above
    return middle
