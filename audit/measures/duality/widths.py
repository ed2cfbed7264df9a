"""How far the weights can move along a direction before the train loss has doubled (Feng & Tu, Fig. S4).

On each side, from W outwards in doubling steps until the mean loss is beyond 2 L₀, then the secant method with a safe
bracket (Illinois) on ln L. The first step is half of what the curvature alone would allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from audit.measures.duality.block import Width
from audit.measures.duality.tail import Lines, Losses

STEP = 1e-3  # relative, beyond the place where the loss has doubled, to see its slope there
TOLERANCE = 1e-6  # of the place where the loss has doubled
FARTHEST = 1e3  # multiples of ‖W‖ that are walked before the loss counts as never doubling
MOST_STEPS = 60
BEYOND = 1e3  # stands for the logarithm of a loss that is no positive number
SAMPLES = 1000  # train samples, evenly spaced, that the widths are found on
SAMPLES_OF_CONVOLUTIONS = 200  # most of the network lies behind a convolution, and is run at every step


def spaced(count: int, most: int = SAMPLES) -> Tensor:
    """Evenly spaced positions in a split of `count` samples: all of them, or `most`."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def flatness_widths(lines: Lines, directions: Tensor, curvatures: list[float], weight_norm: float) -> list[Width]:
    """F_n for each of `directions` [m, out, in], with eᵀ H e beside it for the first step."""
    if lines.mean_loss == 0:
        why = "not defined: the train loss is exactly zero, so there is nothing to double"
        return [_none(n + 1, why) for n in range(len(directions))]
    return [
        _width(n + 1, lines, E, curvature, weight_norm)
        for n, (E, curvature) in enumerate(zip(directions, curvatures, strict=True))
    ]


def _width(place: int, lines: Lines, E: Tensor, curvature: float, weight_norm: float) -> Width:
    along = lines.along(E)
    start = math.sqrt(2 * lines.mean_loss / curvature) / 2 if curvature > 0 else math.inf
    start = min(start, max(weight_norm, 1.0))
    far = FARTHEST * max(weight_norm, 1.0)
    upper = crossing(lambda t: float(along(t).mean()), lines.mean_loss, start, far)
    lower = crossing(lambda t: float(along(-t).mean()), lines.mean_loss, start, far)
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
    error = float(added.std(correction=0)) / len(added) ** 0.5
    return error if math.isfinite(error) else None


def _none(place: int, why: str) -> Width:
    return Width(direction=place, lower=None, upper=None, width=None, skipped=why)


def crossing(loss: Callable[[float], float], at_zero: float, step: float, farthest: float) -> float | None:
    """The first t > 0, in doubling steps, where `loss` rises through twice its value at 0.

    >>> round(crossing(lambda t: 1 + t * t, 1.0, 0.1, 10.0), 6)
    1.0
    >>> crossing(lambda t: max(0.0, 1 - t), 1.0, 0.1, 10.0)
    """

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
    return _illinois(height, a, height_a, b, height_b)


def _illinois(height: Callable[[float], float], a: float, height_a: float, b: float, height_b: float) -> float:
    """The zero of `height` between a (below) and b (above)."""
    middle, previous, side = b, a, 0
    for _ in range(MOST_STEPS):
        middle = (a * height_b - b * height_a) / (height_b - height_a)
        if abs(middle - previous) <= TOLERANCE * middle:
            break
        previous, height_m = middle, height(middle)
        above = 1 if height_m >= 0 else -1
        if above == 1:
            b, height_b, height_a = middle, height_m, height_a / (2 if side == above else 1)
        else:
            a, height_a, height_b = middle, height_m, height_b / (2 if side == above else 1)
        side = above
    return middle
