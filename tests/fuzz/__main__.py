"""`make fuzz`: goes on where the last run stopped; `FUZZ="--inputs 1000 onnx npz"` chooses how much of what."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from fuzz.rounds import BATCH, broken
from fuzz.targets import TARGETS


def main() -> int:
    """Runs the inputs and keeps count; 1 where one broke the promise."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="readers to try (default: all)")
    parser.add_argument("--inputs", type=int, default=1000, help="for each of them")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where counts and failures are kept")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "done.json"
    done: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    failures = 0
    for name in given.targets or TARGETS:
        stop = done.get(name, 0) + given.inputs
        while done.get(name, 0) < stop:
            seeds = range(done.get(name, 0), min(done.get(name, 0) + BATCH, stop))
            with (given.out / "broken.jsonl").open("a") as file:
                for failure in broken(name, seeds):
                    failures += 1
                    print(json.dumps(failure), file=file, flush=True)
            done[name] = seeds.stop
            kept.write_text(json.dumps(done, indent=2))
        print(f"{name}: {done[name]:,} inputs so far", flush=True)
    print(
        f"{sum(done.values()):,} inputs in all; {failures} of this run broke the promise, see {given.out}/broken.jsonl"
    )
    return 1 if failures else 0


raise SystemExit(main())
