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

TURN = 20.0  # seconds of one reader before the next one comes
BEGIN, END = "<!-- counts: begin -->", "<!-- counts: end -->"


def main() -> int:
    """Runs the inputs and keeps count; 1 where one broke the promise."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="readers to try (default: all)")
    parser.add_argument("--inputs", type=int, default=1000, help="for each of them")
    parser.add_argument("--minutes", type=float, help="go round them for so long")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where counts and failures are kept")
    parser.add_argument("--record", type=Path, help="a page whose table of counts is written anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.record is not None and not (given.out / "done.json").exists():
        go_on_from(given.record, given.out)
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
    """Gives every reader the same time, whatever it can do in it; how many inputs broke the promise."""
    end, failures = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        for name in names:
            failures += tried(name, 10**9, out, until=min(time.monotonic() + TURN, end))
    return failures


def counts(out: Path) -> dict[str, int]:
    """How many inputs each reader has been given so far."""
    kept = out / "done.json"
    done: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    return done


def tried(name: str, inputs: int, out: Path, until: float = float("inf")) -> int:
    """Gives one reader so many more, or what it can do by then; how many of them broke the promise."""
    done, failures = counts(out), 0
    stop = done.get(name, 0) + inputs
    while done.get(name, 0) < stop and time.monotonic() < until:
        failures += batch(name, range(done.get(name, 0), min(done.get(name, 0) + BATCH, stop)), until, out)
        done = counts(out)
    print(f"{name}: {done.get(name, 0):,} inputs so far", flush=True)
    return failures


def batch(name: str, seeds: range, until: float, out: Path) -> int:
    """A child's worth of them, written down; how many broke the promise."""
    inputs, failures = broken(name, seeds, until), 0
    with (out / "broken.jsonl").open("a") as file:
        while True:
            try:
                print(json.dumps(next(inputs)), file=file, flush=True)
                failures += 1
            except StopIteration as end:
                kept = json.dumps({**counts(out), name: end.value}, indent=2)
                (out / "done.json").write_text(kept)
                return failures


def go_on_from(page: Path, out: Path) -> None:
    """Takes over the counts of a page: those who have it seldom have the folder of the runs that it tells of."""
    table = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| ([\w-]+) \| ([\d,]+) \| (\d+) \|$", table, re.MULTILINE)
    done = {name: int(count.replace(",", "")) for name, count, _ in rows if name != "all"}
    failed = [
        json.dumps({"target": name}) + "\n" for name, _, failures in rows for _ in range(int(failures)) if name != "all"
    ]
    (out / "broken.jsonl").write_text("".join(failed))
    (out / "done.json").write_text(json.dumps(done, indent=2))


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
