"""The time of one epoch, to hold an audit against: `python -m benchmarks.real.epoch RECIPE FOLDER SAMPLES`.

Forward and backward with the gradient of every parameter, float32, no optimizer step. Where an epoch takes long, only
its first batches are timed and the rest is taken to be like them; where it takes no time, it is run again and again.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.real.recipes import RECIPES

LEAST, PATIENCE = 3.0, 20.0  # seconds that the timing takes, epochs together


def time_epoch(name: str, folder: Path, samples: int) -> dict[str, float]:
    """Median seconds of forward and backward over `samples` train samples, by the clock and of the processors.

    Beside them how many samples were timed how many times.
    """
    recipe = RECIPES[name]
    network = recipe.network().eval()
    network.load_state_dict(torch.load(folder / "weights.pt"))
    train, _ = recipe.samples()
    x = recipe.fed({key: stored[:samples] for key, stored in train.inputs.items()})
    y = torch.from_numpy(train.y[:samples])

    def step(rows: slice) -> None:
        network.zero_grad()
        F.cross_entropy(network(*(each[rows] for each in x)), y[rows]).backward()

    batches = [slice(first, first + recipe.batch) for first in range(0, len(y), recipe.batch)]
    step(batches[0])  # warm-up
    epochs: list[float] = []
    worked: list[float] = []
    while sum(epochs) < LEAST:
        begin, used, timed = time.perf_counter(), time.process_time(), 0
        for rows in batches:
            step(rows)
            timed = min(rows.stop, len(y))
            if time.perf_counter() - begin > PATIENCE:
                break
        epochs.append((time.perf_counter() - begin) * len(y) / timed)
        worked.append((time.process_time() - used) * len(y) / timed)
    seconds, cpu = statistics.median(epochs), statistics.median(worked)
    return {"seconds": seconds, "cpu": cpu, "timed": timed, "epochs": len(epochs)}


if __name__ == "__main__":
    print(json.dumps(time_epoch(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
