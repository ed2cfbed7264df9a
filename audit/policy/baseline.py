"""Compares a number with the same number of an earlier report: only where that means something, and with an interval.

Two reports are comparable number by number. What is measured on the test split needs the same test samples; a gap, and
whatever is measured inside the network, needs the same train samples, too. Curvature follows the train loss, so it says
nothing between two models that were fitted to different losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from audit.policy.limits import span
from audit.policy.rules import Interval

HIGHER_IS_BETTER = ("accuracy", "r2")
FOLLOWS_TRAIN_LOSS = ("flatness", "fisher", "duality")  # blocks made of derivatives of the loss
MATCHED = 0.05  # train losses that differ by at most this share count as equal
CHANGE_NUMBERS = (
    *("samples", "test_samples", "test_fraction", "partner_space", "conv", "directions", "subsets", "subset_size"),
    *("normalized_logits", "volume", "delta", "precision"),
)
"""Settings under which the numbers of a layer or of the network are other numbers."""


def worsening(path: str, new: float, old: float) -> float:
    """How much worse: the increase, or for accuracy and R² the decrease."""
    return old - new if _higher_is_better(path) else new - old


def worsening_interval(path: str, new: float, new_ci: Interval, old: float, old_ci: Interval) -> Interval:
    """95 % interval of the difference of two independent estimates, from both intervals (MOVER; Newcombe 1998).

    On shared samples the two vary together, so that this is wider than it need be: it never calls too early.
    """
    if new_ci is None and old_ci is None:
        return None
    (low, high), (low_old, high_old) = span(new, new_ci), span(old, old_ci)
    difference = new - old
    lower = difference - math.hypot(new - low, high_old - old)
    upper = difference + math.hypot(high - new, old - low_old)
    return (-upper, -lower) if _higher_is_better(path) else (lower, upper)


def not_comparable(path: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> str | None:
    """Why a number of two reports must not be compared; None where it may."""
    for key in ("task", "loss"):
        if new["model"][key] != old["model"][key]:
            return f"the baseline's {key} is {old['model'][key]}, not {new['model'][key]}"
    for split in _rests_on(path):
        if not _same_samples(split, new, old):
            return f"the baseline was judged on other {split} samples; make a baseline on these data"
    if path.startswith(("layers.", "network.")):
        return _other_settings(new["settings"], old["settings"])
    return None


def unmatched(path: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> str | None:
    """Why a difference of curvature would say nothing; None where both models were fitted to the same train loss."""
    if not set(FOLLOWS_TRAIN_LOSS) & set(path.split(".")) or not path.startswith(("layers.", "network.")):
        return None
    losses = new["gap"]["train_loss"], old["gap"]["train_loss"]
    if abs(losses[0] - losses[1]) <= MATCHED * max(map(abs, losses)):
        return None
    return (
        f"this number follows the train loss, which is {losses[0]:.3g} here and {losses[1]:.3g} in the baseline: "
        "a difference would say nothing"
    )


def _higher_is_better(path: str) -> bool:
    return path.endswith(tuple(f"_{word}" for word in HIGHER_IS_BETTER))


def _rests_on(path: str) -> tuple[str, ...]:
    block, key = path.split(".")[0], path.rpartition(".")[2]
    if block == "gap" and key.startswith(("test_", "train_")):
        return (key.partition("_")[0],)
    return ("test", "train") if block in ("gap", "layers", "network") else ()


def _same_samples(split: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """By the hash of the split's own samples; by that of the whole folder in reports that do not have it."""
    hashes = [(report["outcomes"] or {}).get(split, {}).get("sha256") for report in (new, old)]
    if all(hashes):
        return bool(hashes[0] == hashes[1])
    counts = [report["data"][split]["samples"] for report in (new, old)]
    return bool(new["data"]["sha256"] == old["data"]["sha256"] and counts[0] == counts[1])


def _other_settings(new: Mapping[str, Any], old: Mapping[str, Any]) -> str | None:
    other = [name for name in CHANGE_NUMBERS if name in new and name in old and new[name] != old[name]]
    if not other:
        return None
    return f"the baseline was made with {other[0]} = {old[other[0]]}, not {new[other[0]]}; make it anew"
