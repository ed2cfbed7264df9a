"""What is timed: each number with gen-audit's way, the peers' ways and the exact value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from audit.measures.fisher.measure import draw_subsets
from benchmarks import exact, ours, peers
from benchmarks.cases import Case
from benchmarks.ours import Array, Run

EIGENPAIRS = 10


@dataclass(frozen=True)
class Peer:
    """Somebody else's way to a number."""

    name: str
    package: str  # what must be importable
    prepare: Callable[[Case, int, str], Run]  # of the case, of how many samples at once, and of its form
    loose: float = 1e-6  # how far from the exact value it may be, relative
    chunked: bool = True  # whether it matters how many samples go at once
    forms: tuple[str, ...] = ("",)  # where it has several ways to do it


@dataclass(frozen=True)
class Task:
    """One number, or a few, and all the ways to it."""

    key: str
    title: str
    prepare: Callable[[Case], Run]
    exact: Callable[[Case], Array]
    peers: tuple[Peer, ...]
    loose: float = 1e-9


def _exact_log_determinant(case: Case) -> Array:
    chosen = case.settings
    return exact.log_determinant(case, draw_subsets(len(case.x), chosen.subset_size, chosen.subsets, chosen.seed))


TASKS = (
    Task(
        "trace",
        "exact trace of each dense layer's Hessian",
        ours.traces,
        exact.traces,
        (Peer("BackPACK DiagGGNExact", "backpack", peers.backpack_traces),),
    ),
    Task(
        "sharpness",
        "S(θ) over all parameters",
        ours.sharpness,
        exact.sharpness,
        (Peer("BackPACK DiagGGNExact", "backpack", peers.backpack_sharpness),),
    ),
    Task(
        "top-1",
        "largest eigenvalue of each dense layer's Hessian",
        partial(ours.top_eigenvalues, k=1, tolerance=1e-7, values_only=True),
        partial(exact.top_eigenvalues, k=1),
        (Peer("PyHessian", "pyhessian", partial(peers.pyhessian_top, tolerance=1e-5), loose=1e-2, chunked=False),),
        loose=1e-6,
    ),
    Task(
        "top-10",
        "ten largest eigenpairs of each dense layer's Hessian",
        partial(ours.top_eigenvalues, k=EIGENPAIRS, tolerance=1e-6, values_only=False),
        partial(exact.top_eigenvalues, k=EIGENPAIRS),
        (
            Peer(
                "curvlinops + SciPy eigsh",
                "curvlinops",
                partial(peers.curvlinops_top, k=EIGENPAIRS, tolerance=1e-5),
                loose=1e-4,
                forms=("GGN", "Hessian"),
            ),
        ),
        loose=1e-6,
    ),
    Task(
        "gamma",
        "Fisher determinant γ̂ over 100 subsets of 100 samples",
        ours.log_determinant,
        _exact_log_determinant,
        (
            Peer("torch.func vmap(grad)", "torch", peers.vmap_log_determinant, chunked=False),
            Peer("BackPACK BatchGrad", "backpack", peers.backpack_log_determinant, chunked=False),
        ),
    ),
    Task(
        "mls",
        "maximum local sensitivity and log-volume of the input map",
        ours.input_map,
        exact.input_map,
        (Peer("torch.func vmap(jacrev)", "torch", peers.jacrev_input_map),),
        loose=1e-8,
    ),
)

FLOOR = Peer("one forward + C backwards", "torch", peers.floor, forms=("side by side", "one by one"))
