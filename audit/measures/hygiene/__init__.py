"""Are the data fit to judge a model on? Copies, wrong labels, balance."""

from __future__ import annotations

from audit.maths.blocks import HELD
from audit.measures.workload import Demand, Workload
from audit.report.conduct import PlannedStage
from audit.settings import Settings

VOTERS = 10_000  # train samples, at most, that are left out of their own vote
SPACES = 2  # that neighbours are looked for in
SIFTED = 700.0  # operations of looking at one distance
ASKED = 750  # different inputs of a split, at most, that are told from those of the other
NUMBERS = 4096  # of such an input, at most: of more, so many drawn at random
DIVISIONS = 999  # random ones, beside which that is judged


def operations(work: Workload, _settings: Settings) -> float:
    """Of the distances between samples."""
    distances = work.samples * (min(work.samples, VOTERS) + work.tests)
    told = 2 * min(ASKED, work.samples, work.tests)
    telling = told**2 * (2 * SPACES * min(work.input_numbers, NUMBERS) + 2 * told + 2 * DIVISIONS)
    return distances * (2 * SPACES * work.input_numbers + SPACES * SIFTED) + telling


def held(_stage: PlannedStage, work: Workload, _settings: Settings, _size: int) -> float:
    """Bytes of the samples in single precision, and of one block of distances or some tables of those told apart."""
    told = 2 * min(ASKED, work.samples, work.tests)
    return max(8 * HELD, 48 * told * max(told, DIVISIONS)) + 4 * (work.samples + work.tests) * work.input_numbers


DEMAND = Demand(operations, runs_network=False, bytes=held)
