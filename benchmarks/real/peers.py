"""Peers on networks of real size: `python -m benchmarks.real.peers CASE…`, once `benchmarks.real` has audited them.

A peer is asked for one number of all dense layers together, over the same train samples, in single precision: the
trace of their Hessian until its standard error is that of gen-audit, the largest eigenvalue, ten eigenpairs. gen-audit
finds all of these, and the same for each layer, in the stages that its seconds are of. Seconds are the processors'.
BackPACK does not follow residual or attention blocks, but can be asked for the last layer alone.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.real.cases import CASES
from benchmarks.real.recipes import RECIPES

TOLERANCE = 1e-3  # of an eigenvalue: as closely as gen-audit's bounds are commonly apart
PAIRS, LEAST_PROBES = 10, 3
STAGES = ("capture", "duality", "flatness")
HALF_WIDTH = 1.96  # of a 95 % interval, in standard errors


Batches = list[tuple[tuple[Tensor, ...], Tensor]]


@dataclass(frozen=True)
class Network:
    """A trained network, the weights of its dense layers, and the samples."""

    module: nn.Module
    weights: list[nn.Parameter]
    batches: Batches

    def loss(self) -> Iterator[Tensor]:
        """Mean loss over all samples, in one part for each batch."""
        total = sum(len(y) for _, y in self.batches)
        for x, y in self.batches:
            yield nn.functional.cross_entropy(self.module(*x), y, reduction="sum") / total


class OutOfTime(Exception):
    """A peer took longer than it may."""


def load(name: str, folder: Path, report: dict[str, Any]) -> Network:
    """The case's network; its dense weights are matched with the report's layers by order and shape."""
    case, recipe = CASES[name], RECIPES[CASES[name].recipe]
    module = recipe.network().eval().requires_grad_(False)
    module.load_state_dict(torch.load(folder / "weights.pt"))
    matrices = (parameter for parameter in module.parameters() if parameter.dim() == 2)
    shapes = [(layer["out_features"], layer["in_features"]) for layer in report["layers"]]
    weights = [next(each for each in matrices if tuple(each.shape) == shape) for shape in shapes]
    train, _ = recipe.samples()
    x = recipe.fed({key: stored[: case.audited] for key, stored in train.inputs.items()})
    parts = [each.split(recipe.batch) for each in (*x, torch.from_numpy(train.y[: case.audited]))]
    batches = [(tuple(inputs), y) for *inputs, y in zip(*parts, strict=True)]
    return Network(module, [weight.requires_grad_() for weight in weights], batches)


def hessian_times(network: Network, v: Sequence[Tensor]) -> list[Tensor]:
    """H v by PyHessian's own product, batch after batch."""
    from pyhessian.utils import hessian_vector_product

    found = [torch.zeros_like(weight) for weight in network.weights]
    for part in network.loss():
        gradients = torch.autograd.grad(part, network.weights, create_graph=True)
        for total, product in zip(found, hessian_vector_product(gradients, network.weights, v), strict=True):
            total += product.detach()
    return found


def pyhessian_trace(network: Network, error: float, due: Callable[[], None]) -> tuple[float, float, int]:
    """Hutchinson's estimate, its standard error and the products it took to be within `error`."""
    generator, found = torch.Generator().manual_seed(0), list[float]()
    while len(found) < LEAST_PROBES or statistics.stdev(found) / math.sqrt(len(found)) > error:
        due()
        v = [torch.randint(0, 2, w.shape, generator=generator).to(w) * 2 - 1 for w in network.weights]
        found.append(sum(float((a * b).sum()) for a, b in zip(v, hessian_times(network, v), strict=True)))
    return statistics.mean(found), statistics.stdev(found) / math.sqrt(len(found)), len(found)


def pyhessian_top(network: Network, due: Callable[[], None]) -> tuple[float, int]:
    """Power iteration until two steps differ by less than the tolerance, as PyHessian does it."""
    torch.manual_seed(0)
    v, value, steps = [torch.randn_like(weight) for weight in network.weights], math.inf, 0
    while True:
        due()
        norm = math.sqrt(sum(float(part.square().sum()) for part in v))
        v = [part / norm for part in v]
        product = hessian_times(network, v)
        before, value = value, sum(float((a * b).sum()) for a, b in zip(v, product, strict=True))
        v, steps = product, steps + 1
        if abs(value - before) <= TOLERANCE * abs(value):
            return value, steps


def curvlinops_pairs(network: Network, due: Callable[[], None]) -> tuple[list[float], int]:
    """SciPy's `eigsh` on the Gauss–Newton operator of curvlinops."""
    from curvlinops import GGNLinearOperator
    from scipy.sparse.linalg import LinearOperator, eigsh

    fed = [((x[0] if len(x) == 1 else x), y) for x, y in network.batches]
    module = network.module if len(network.batches[0][0]) == 1 else _Several(network.module)
    loss = nn.CrossEntropyLoss()
    operator = GGNLinearOperator(module, loss, network.weights, fed, check_deterministic=False).to_scipy()
    steps = 0

    def times(v: Any) -> Any:
        nonlocal steps
        due()
        steps += 1
        return operator @ v

    counted = LinearOperator(operator.shape, matvec=times, dtype=np.float32)
    start = np.random.default_rng(0).standard_normal(operator.shape[0]).astype(np.float32)
    values, _ = eigsh(counted, PAIRS, which="LA", tol=TOLERANCE, v0=start)
    return sorted(map(float, values), reverse=True), steps


def backpack_head(network: nn.Module, batches: Batches, due: Callable[[], None]) -> float:
    """Tr H of the last dense layer by BackPACK's exact diagonal: it does not follow the layers before it."""
    from backpack import backpack, extend, extensions

    network.requires_grad_(False)
    head = extend(next(module for module in reversed(list(network.modules())) if isinstance(module, nn.Linear)))
    loss_of, total, seen = extend(nn.CrossEntropyLoss(reduction="sum")), 0.0, list[Tensor]()
    handle = head.register_forward_pre_hook(lambda _module, given: seen.append(given[0].detach()))
    for x, _ in batches:
        due()
        network(*x)
    handle.remove()
    head.weight.requires_grad_()
    for given, (_, y) in zip(seen, batches, strict=True):
        with backpack(extensions.DiagGGNExact()):
            loss_of(head(given), y).backward()
        total += float(head.weight.diag_ggn_exact.sum())
    return total / sum(len(y) for _, y in batches)


class _Several(nn.Module):
    """A network of several inputs that takes them as one value."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: tuple[Tensor, ...]) -> Tensor:
        """Scores."""
        answer: Tensor = self.network(*x)
        return answer


def ours(report: dict[str, Any]) -> tuple[float, float, float]:
    """Σ Tr H of the Gauss–Newton part and its standard error, over the layers; the seconds of its stages."""
    layers = [layer["flatness"] for layer in report["layers"] if layer["flatness"]["trace"] is not None]
    ends = [layer["trace_ci95"] or (layer["trace"], layer["trace"]) for layer in layers]
    error = sum((high - low) / 2 / HALF_WIDTH for low, high in ends)  # layers share their signs: added, not squared
    times = {**report["timings"], **report["timings"]["measures"]}
    return sum(layer["trace"] for layer in layers), error, sum(times.get(stage, 0.0) for stage in STAGES)


def main() -> None:
    """A line for each case and task."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.peers", description=__doc__)
    parser.add_argument("case", nargs="+", choices=tuple(CASES))
    parser.add_argument("--folder", type=Path, default=Path("out/bench-real"))
    parser.add_argument("--at-most", type=float, default=600.0, help="processor seconds of one task")
    parser.add_argument("--least-error", type=float, default=0.01, help="of a trace that gen-audit has exactly")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers', about hooks and graphs that they keep
    torch.backends.mha.set_fastpath_enabled(False)  # which knows no forward derivatives
    for name in chosen.case:
        _compare(name, chosen.folder / CASES[name].recipe, chosen.at_most, chosen.least_error)


def _compare(name: str, folder: Path, most: float, least_error: float) -> None:
    report = json.loads((folder / name / "report.json").read_text(encoding="utf-8"))
    trace, error, seconds = ours(report)
    network = load(name, folder, report)
    print(f"{name} | gen-audit | trace {trace:.4g} ± {error:.2g} and all else | {seconds:.1f} s by the clock")
    error = max(error, least_error * trace)
    _tell(name, "PyHessian trace", most, lambda due: pyhessian_trace(network, error, due))
    _tell(name, "PyHessian largest eigenvalue", most, lambda due: pyhessian_top(network, due))
    _tell(name, f"curvlinops {PAIRS} eigenpairs", most, lambda due: curvlinops_pairs(network, due))
    head = report["layers"][-1]["flatness"]["trace"]
    print(f"{name} | gen-audit | trace of the last layer {head:.6g}")
    _tell(name, "BackPACK trace of the last layer", most, partial(backpack_head, network.module, network.batches))


def _tell(name: str, task: str, most: float, work: Callable[[Callable[[], None]], object]) -> None:
    """The answer of a task and its processor seconds, or that it took too long."""
    begin = time.process_time()

    def due() -> None:
        if time.process_time() - begin > most:
            raise OutOfTime

    try:
        with sdpa_kernel(SDPBackend.MATH):  # torch's quick attention has no second derivative
            found: object = work(due)
    except OutOfTime:
        found = "ended"
    print(f"{name} | {task} | {found} | {time.process_time() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
