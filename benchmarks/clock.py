"""Timing that other load on the machine cannot tilt: everybody runs in turn, and ratios are taken within a turn."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from benchmarks.cases import Case
from benchmarks.ours import Run
from benchmarks.tasks import Peer

TRIED_CHUNKS = (1000, 250, 64)
TRIED_SAMPLES = 1000
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Choice:
    """How a peer runs quickest."""

    chunk: int
    form: str


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        """Of all rounds."""
        return Spread(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}–{self.most:.3g})"


def seconds(run: Callable[[], object]) -> float:
    """Processor time of one run: with one thread, what it takes on a machine that does nothing else."""
    gc.collect()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def quickest(peer: Peer, case: Case) -> Choice:
    """The peer's best way, tried on at most a thousand samples."""
    tried = case.cut(TRIED_SAMPLES)
    chunks = sorted({min(chunk, len(tried.x)) for chunk in TRIED_CHUNKS}) if peer.chunked else [len(case.x)]
    choices = [Choice(chunk, form) for chunk, form in product(chunks, peer.forms)]
    if len(choices) == 1:
        return choices[0]
    runs = [peer.prepare(tried, choice.chunk, choice.form) for choice in choices]
    runs[0]()  # the first of all pays for what every later one finds warm
    times = [min(seconds(run), seconds(run)) for run in runs]
    return choices[times.index(min(times))]


def in_turn(prepare: Mapping[str, Callable[[], Run]], rounds: int, patience: float) -> dict[str, list[float]]:
    """Seconds of every round of everybody; fewer rounds, but at least three, where `patience` seconds run out.

    Set-up happens anew before each run and is not counted. The order turns round from one round to the next.
    """
    times: dict[str, list[float]] = {name: [] for name in prepare}
    begin = time.perf_counter()
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - begin > patience:
            break
        for name in list(prepare)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(seconds(prepare[name]()))
    return times


def ratios(above: list[float], below: list[float]) -> Spread:
    """Of each round."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])
