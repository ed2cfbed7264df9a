"""How the gap is spread over the directions of each layer's weights: in a few steep ones, or over very many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from audit.measures.report import LayerReport, Report
from audit.report.numbers import number, share

HALF = 0.5
FEWEST_CLASSES = 3
SHIFT = "Shares are of what the directions hold together; a shift common to all samples is not among it."


@dataclass(frozen=True)
class SteepShare:
    """What the steepest directions of one layer hold of the gap."""

    place: int  # of the layer in the report
    name: str
    steepest: int  # as many as there are classes; for regression those before the elbow
    directions: int
    share: float  # of the gap, in the steepest; may leave 0…1 where others count against it
    slack: float  # half the width of the 95 % interval of the share before the elbow: the fixed one has none of its own
    elbow: bool
    path: str  # of that share in the JSON


def steep_shares(report: Report) -> list[SteepShare]:
    """Every layer whose gap splits into shares, in the report's order."""
    found = (_steep_share(place, layer) for place, layer in enumerate(report.layers))
    return [part for part in found if part is not None]


def hidden_steep_shares(report: Report) -> list[SteepShare]:
    """The layers that steep and flat are judged by: all directions known, the output layer only if it is alone.

    None with two classes: there clean networks, too, had little of the gap in their two steepest directions.
    """
    if report.data.classes is not None and report.data.classes < FEWEST_CLASSES:
        return []
    known = [part for part in steep_shares(report) if _complete(report.layers[part.place])]
    return [part for part in known if part.place < len(report.layers) - 1] or known


def _steep_share(place: int, layer: LayerReport) -> SteepShare | None:
    block = layer.duality
    if block is None or block.sharp is None or block.directions is None or block.approximate:
        return None
    steepest, name = (block.fixed, "fixed") if block.fixed is not None else (block.sharp, "sharp")
    if steepest.share is None or steepest.count == 0:
        return None
    beyond = 0 if block.remainder is None else block.remainder.directions
    path = f"layers[{place}].duality.{name}.share"
    low, high = block.ci95.sharp_share or (-math.inf, math.inf)
    directions, elbow = block.directions + beyond, block.sharp.elbow
    return SteepShare(place, layer.name, steepest.count, directions, steepest.share, (high - low) / 2, elbow, path)


def _complete(layer: LayerReport) -> bool:
    return layer.duality is not None and bool(layer.duality.basis_complete)


def in_few(found: Sequence[SteepShare]) -> bool:
    """Whether every one of some layers clearly has more than half of the gap in its steepest directions."""
    return bool(found) and all(part.share - part.slack > HALF for part in found)


def spread_out(found: Sequence[SteepShare]) -> bool:
    """Whether every one of some layers clearly has less than half of it there."""
    return bool(found) and all(part.share + part.slack < HALF for part in found)


def told(part: SteepShare) -> str:
    """One layer in words.

    >>> told(SteepShare(0, "fc2", 10, 900, 0.14, 0.02, False, ""))
    'in layer fc2 the 10 steepest of 900 directions hold 14 % of the gap'
    >>> told(SteepShare(0, "fc2", 1, 900, 1.2, 0.1, True, ""))
    'in layer fc2 the steepest of 900 directions holds 120 % of the gap, and the others count against it'
    """
    which = f"the {number(part.steepest)} steepest" if part.steepest != 1 else "the steepest"
    verb = "holds" if part.steepest == 1 else "hold"
    beyond = (
        ", and the others count against it"
        if part.share > 1
        else ", so that they count against it"
        if part.share < 0
        else ""
    )
    what = f"{which} of {number(part.directions)} directions {verb} {share(part.share)} of the gap"
    return f"in layer {part.name} {what}{beyond}"
