"""Checks that the measures made on their way: read off their blocks."""

from __future__ import annotations

from audit.measures.duality.block import DualityBlock
from audit.measures.sensitivity.block import NetworkSensitivity
from audit.measures.suite import Results
from audit.report.blocks import Check, skipped, worst

CLOSES = 1e-9


def check_reports(results: Results) -> list[Check]:
    """Duality, decomposition and bounds."""
    return [*_duality(results), _bounds(results)]


def _duality(results: Results) -> list[Check]:
    exact = ("duality-exact", "A test sample's input change equals its weight change")
    closes = ("decomposition-closes", "The directions' contributions add up to the measured gap")
    straight = ("basis-orthonormal", "The directions are orthogonal and of unit length")
    measured = results.measurements.get("duality")
    blocks: dict[str, DualityBlock] = {} if measured is None else dict(measured.layers)
    kept = {name: block for name, block in blocks.items() if block.skipped is None and block.gap is not None}
    if not kept:
        why = "No layer has an activity–weight decomposition; the section on where the gap comes from says why."
        return [skipped(*which, why, ["duality"]) for which in (exact, closes, straight)]
    equal = {name: block for name, block in kept.items() if not block.approximate}
    closing = max(_closing_error(block) for block in kept.values())
    crooked = max(block.basis_orthonormality or 0.0 for block in kept.values())
    layers = _counted(len(kept))
    return [
        _exactness(*exact, equal, [name for name in kept if name not in equal]),
        worst(
            *closes, closing, CLOSES, f"Largest relative distance of the sum from the gap, over {layers}.", ["duality"]
        ),
        worst(*straight, crooked, 1e-8, f"Largest entry of |EᵀE − 1| over {layers}.", ["duality"]),
    ]


def _exactness(id: str, title: str, equal: dict[str, DualityBlock], approximate: list[str]) -> Check:
    """The equality where it is claimed; layers with a least-squares fit are named, not judged."""
    named = f" Only approximate, and not judged here: {', '.join(approximate)}." if approximate else ""
    if not equal:
        return skipped(id, title, f"No decomposed layer claims an equality.{named}", ["duality"])
    judged = max(equal.values(), key=lambda block: (block.max_residual or 0.0) / (block.tolerance or 1e-9))
    words = f"Largest |l(w*, x) − l(w, x′)| over all pairs of {_counted(len(equal))}.{named}"
    return worst(id, title, judged.max_residual or 0.0, judged.tolerance or 1e-9, words, ["duality"])


def _counted(layers: int) -> str:
    return f"the {layers} decomposed layers" if layers > 1 else "the decomposed layer"


def _closing_error(block: DualityBlock) -> float:
    rest = block.remainder.contribution if block.remainder is not None else 0.0
    terms = [*block.contribution, rest, block.mean_term or 0.0, block.target_term or 0.0]
    total, scale = sum(terms), sum(map(abs, terms))
    return abs(total - (block.gap or 0.0)) / max(scale, 1e-300)


def _bounds(results: Results) -> Check:
    which = ("bounds-hold", "Every bound of sensitivity and volume holds")
    measured = results.measurements.get("sensitivity")
    network = None if measured is None else measured.network
    judged = (
        [bound for bound in network.bounds if bound.holds is not None]
        if isinstance(network, NetworkSensitivity)
        else []
    )
    if not judged:
        return skipped(*which, "No bound could be judged on this network; the bounds table says why.", ["sensitivity"])
    broken = [bound.id for bound in judged if not bound.holds]
    named = f" Broken: {', '.join(broken)}." if broken else ""
    words = f"Bounds whose left side exceeds the right, of {len(judged)} that could be judged.{named}"
    return worst(*which, len(broken), 0, words, ["sensitivity"])
