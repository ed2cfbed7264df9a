"""What a twin costs on one core, by the size of the network: writes the units of the table in docs/twins.md.

    python -m benchmarks.twin_units [25k 100k 1m 10m lenet5]

Seconds are processor time of one thread, so that a busy machine measures nearly the same as an idle one.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from audit.run.in_memory import sources_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe
from audit.twins.kinds import all_samples
from audit.twins.make import at_once
from audit.twins.outcomes import measuring
from audit.twins.problem import set_problem
from audit.twins.training import Goal, Training

MNIST = Path(__file__).parents[1] / "samples" / "mnist"
UNITS = Path(__file__).with_name("twin_units.json")
RECIPE = Recipe(rate=0.1, batch=32)
LOSS = 0.01  # train loss that twins are trained to


def dense(*hidden: int) -> nn.Sequential:
    """784 inputs, 10 scores."""
    sizes = (784, *hidden)
    layers = [layer for i, o in zip(sizes, hidden, strict=False) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 10))


def lenet5() -> nn.Sequential:
    """LeCun's, with ReLU, on 28 × 28 pixels."""
    convolutions = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU())
    tail = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *convolutions, nn.MaxPool2d(2), nn.Flatten(), *tail)


NETWORKS = {
    "25k": ("784-32-10", lambda: dense(32)),
    "100k": ("784-120-40-10", lambda: dense(120, 40)),
    "1m": ("784-700-600-10", lambda: dense(700, 600)),
    "10m": ("784-3000-2500-10", lambda: dense(3000, 2500)),
    "lenet5": ("LeNet-5", lenet5),
}


def unit(name: str) -> dict[str, str | int | float]:
    """The seconds of one plain twin among as many as one task trains."""
    torch.manual_seed(0)
    title, make = NETWORKS[name]
    network = make().eval()
    with ExitStack() as stack:
        problem = set_problem(sources_of(network, str(MNIST), None, stack), Settings(), Progress())
    count = at_once(problem.architecture)
    lessons = [all_samples(problem.train, seed) for seed in range(count)]
    begin = time.process_time()
    one, *_ = Training(problem.architecture, problem.train, RECIPE, lessons).run(Goal(LOSS))
    taught = time.process_time()
    measure = measuring(problem.model, problem.data, problem.task, problem.settings)
    planned = time.process_time()
    measure.numbers(problem.twin(one, 1.0), problem.data, problem.task)
    return {
        "network": title,
        "parameters": sum(value.numel() for value in network.parameters()),
        "at_once": count,
        "epochs": one.epochs,
        "training": round((taught - begin) / count, 2),
        "measuring": round(time.process_time() - planned, 2),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = json.loads(UNITS.read_text(encoding="utf-8")) if UNITS.exists() else {}
    for name in sys.argv[1:] or NETWORKS:
        found[name] = unit(name)
        print(name, found[name], flush=True)
        ordered = {name: found[name] for name in NETWORKS if name in found}
        UNITS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
