"""What twins cost: trained in a stack against one by one, and measured against a full audit. CPU seconds, one thread.

    python -m benchmarks.twins MODEL DATA [--count 8]

MODEL is a chain of dense layers; both ways train with the same recipe to the same train loss, from the same starts.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch
from torch import nn

from audit.network.loss import LOSS_OF_TASK
from audit.run.pipeline import files_of, run_audit
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe
from audit.twins.kinds import all_samples
from audit.twins.outcomes import measuring
from audit.twins.problem import Problem, set_problem
from audit.twins.training import Goal, Training, drawn_start

RECIPE = Recipe(rate=0.1, batch=25, start="glorot")


def main() -> None:
    """Prints both ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    problem = set_problem(files_of(given.model, given.data), Settings(), Progress())
    begin = time.process_time()
    lessons = [all_samples(problem.train, seed) for seed in range(given.count)]
    trained = Training(problem.architecture, problem.train, RECIPE, lessons).run(Goal(problem.target))
    stacked = time.process_time() - begin
    epochs = sum(one.epochs for one in trained)
    alone, taken = one_by_one(problem, seed=0)
    print(f"stacked: {stacked / given.count:.2f} s a twin, {1e3 * stacked / epochs:.1f} ms an epoch of one twin")
    print(f"one by one: {alone:.2f} s a twin, {1e3 * alone / taken:.1f} ms an epoch")
    print(f"{alone / taken / (stacked / epochs):.1f} times less CPU time by epoch")
    full, lean = measured(problem, given.model, given.data)
    print(f"measures: {lean:.2f} s a twin, a full audit {full:.2f} s: {lean / full:.2f} of it")


def one_by_one(problem: Problem, seed: int) -> tuple[float, int]:
    """CPU seconds and epochs of one network by an ordinary loop."""
    network = copy.deepcopy(problem.architecture.network).requires_grad_(True).train()
    network.load_state_dict(drawn_start(network, RECIPE, seed), strict=False)
    optimizer = torch.optim.SGD(network.parameters(), RECIPE.rate)
    x, y = problem.train.x, problem.train.y
    order = torch.Generator().manual_seed(seed)
    begin, epochs, loss = time.process_time(), 0, float("inf")
    while loss > problem.target and epochs < RECIPE.epochs:
        for rows in torch.randperm(len(x), generator=order).split(RECIPE.batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(LOSS_OF_TASK[problem.task].value(network(x).double(), y).mean())
        epochs += 1
    return time.process_time() - begin, epochs


def measured(problem: Problem, model: Path, data: Path) -> tuple[float, float]:
    """CPU seconds of a full audit, and of a twin's inner numbers; the better of two runs each."""
    lean = measuring(problem.model, problem.data, problem.task, Settings())
    full_audit = [_clock(lambda: run_audit(model, data, Settings(), "", Progress())) for _ in range(2)]
    twin = [_clock(lambda: lean.numbers(problem.model, problem.data, problem.task)) for _ in range(2)]
    return min(full_audit), min(twin)


def _clock(work: object) -> float:
    begin = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - begin


if __name__ == "__main__":
    main()
