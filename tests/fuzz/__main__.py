"""`make fuzz`: goes on where the last run stopped; `FUZZ="--inputs 1000 onnx npz"` chooses how much of what."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import torch

from fuzz.rounds import BATCH, broken
from fuzz.targets import TARGETS

TURN, STEP = 20.0, 200  # seconds of one reader before the next one comes, inputs after which the clock is read
BEGIN, END = "<!-- counts: begin -->", "<!-- counts: end -->"


def main() -> int:
    """Runs the inputs and keeps count; 1 where one broke the promise."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="readers to try (default: all)")
    parser.add_argument("--inputs", type=int, default=1000, help="for each of them")
    parser.add_argument("--minutes", type=float, help="go round them for so long, one child's worth at a time")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where counts and failures are kept")
    parser.add_argument("--record", type=Path, help="a page whose table of counts is written anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"  # a disk takes longer to make and clear a folder than a reader to read it
    names = given.targets or list(TARGETS)
    if given.minutes is None:
        failures = sum(tried(name, given.inputs, given.out) for name in names)
    else:
        failures = round_and_round(names, given.minutes, given.out)
    done = counts(given.out)
    said = f"{failures} of this run broke the promise, see {given.out}/broken.jsonl"
    print(f"{sum(done.values()):,} inputs in all; {said}")
    if given.record is not None:
        record(given.record, given.out)
    return 1 if failures else 0


def round_and_round(names: list[str], minutes: float, out: Path) -> int:
    """Gives every reader the same time, at least, whatever it can do in it; how many inputs broke the promise."""
    end, failures = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        for name in names:
            begin = time.monotonic()
            while time.monotonic() < min(begin + TURN, end):
                failures += tried(name, STEP, out)
    return failures


def counts(out: Path) -> dict[str, int]:
    """How many inputs each reader has been given so far."""
    kept = out / "done.json"
    done: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    return done


def tried(name: str, inputs: int, out: Path) -> int:
    """Gives one reader so many more; how many of them broke the promise."""
    done, failures = counts(out), 0
    stop = done.get(name, 0) + inputs
    while done.get(name, 0) < stop:
        seeds = range(done.get(name, 0), min(done.get(name, 0) + BATCH, stop))
        with (out / "broken.jsonl").open("a") as file:
            for failure in broken(name, seeds):
                failures += 1
                print(json.dumps(failure), file=file, flush=True)
        done[name] = seeds.stop
        (out / "done.json").write_text(json.dumps(done, indent=2))
    print(f"{name}: {done[name]:,} inputs so far", flush=True)
    return failures


def record(page: Path, out: Path) -> None:
    """Writes the counts of all runs into a page, between its two marks."""
    done = counts(out)
    failed = [json.loads(line)["target"] for line in (out / "broken.jsonl").read_text().splitlines()]
    rows = [f"| {name} | {count:,} | {failed.count(name)} |" for name, count in sorted(done.items())]
    total = f"| all | {sum(done.values()):,} | {len(failed)} |"
    table = "\n".join([BEGIN, "| reader | inputs | broke the promise |", "|---|---|---|", *rows, total, END])
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, text, flags=re.DOTALL), encoding="utf-8")


raise SystemExit(main())
