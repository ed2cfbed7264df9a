"""One task on one case: is everybody right, and how long does each take?"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.cases import Case
from benchmarks.clock import Choice, in_turn, quickest, ratios
from benchmarks.ours import Array
from benchmarks.tasks import Peer, Task

BRUTE_FORCE = 64  # samples times scores that every gradient is formed for
SINGLE = 1e-3  # all that single precision promises


class WrongValueError(Exception):
    """Somebody's number is not the number: there is nothing to time."""


def present(peer: Peer) -> bool:
    """Whether the peer is installed."""
    return importlib.util.find_spec(peer.package) is not None


def check(task: Task, case: Case) -> dict[str, float]:
    """Everybody's relative error on a handful of samples, against brute force; none may be beyond what it promises."""
    few = case.cut(max(3, BRUTE_FORCE // case.classes))
    size = min(case.settings.subset_size, len(few.x) - 1)
    few = replace(few, settings=replace(case.settings, subset_size=size, subsets=min(case.settings.subsets, 10)))
    truth = task.exact(few)
    errors = {"gen-audit": _checked(task.prepare(few)(), truth, task.loose, f"gen-audit, {task.key}", few)}
    for peer in filter(present, task.peers):
        for form in peer.forms:
            value = peer.prepare(few, len(few.x), form)()
            errors[peer.name] = _checked(value, truth, peer.loose, f"{peer.name} {form}, {task.key}", few)
    return errors


def compare(task: Task, case: Case, rounds: int, patience: float) -> list[dict[str, object]]:
    """The rows of the table: one for each peer that is installed."""
    check(task, case)
    peers = {peer.name: (peer, quickest(peer, case)) for peer in task.peers if present(peer)}
    runs = {name: partial(peer.prepare, case, how.chunk, how.form) for name, (peer, how) in peers.items()}
    ours = task.prepare(case)()  # also the warm-up
    for name, (peer, _) in peers.items():
        _checked(runs[name]()(), ours, peer.loose, f"{name}, {task.key} on all samples", case)
    times = in_turn({"gen-audit": partial(task.prepare, case), **runs}, rounds, patience)
    return [_row(task, case, name, how, times["gen-audit"], times[name]) for name, (_, how) in peers.items()]


def _row(task: Task, case: Case, peer: str, how: Choice, ours: list[float], theirs: list[float]) -> dict[str, object]:
    ratio = ratios(theirs, ours)
    return {
        "case": case.name,
        "samples": len(case.x),
        "task": task.key,
        "peer": peer,
        "chunk": how.chunk,
        "form": how.form,
        "ours_seconds": ours,
        "peer_seconds": theirs,
        "ratio": ratio.median,
        "ratio_least": ratio.least,
        "ratio_most": ratio.most,
    }


def _checked(value: Array, truth: Array, loose: float, who: str, case: Case) -> float:
    error = relative_error(value, truth)
    if error > (max(loose, SINGLE) if case.settings.precision == "float32" else loose):
        raise WrongValueError(f"{who} ({case.name}): {error:.2e} away from the exact value.")
    return error


def relative_error(value: Array, truth: Array) -> float:
    """The largest relative difference; numbers a thousand times smaller than the largest count as that large."""
    if value.shape != truth.shape:
        return float("inf")
    size = np.abs(truth)
    return float((np.abs(value - truth) / np.maximum(size, 1e-3 * size.max())).max())
