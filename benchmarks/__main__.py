"""`make bench`: checks every peer's numbers, times everybody, prints the ratios and writes them to a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch

from audit.settings import Settings
from benchmarks.cases import RECIPES, Case, make_case
from benchmarks.clock import Spread
from benchmarks.compare import compare, present
from benchmarks.footprint import peak_memory, start_up
from benchmarks.suite import time_suite
from benchmarks.tasks import TASKS

PARTS = ("peers", "suite", "memory", "start-up")
PACKAGES = ("torch", "numpy", "scipy", "backpack-for-pytorch", "pyhessian", "curvlinops-for-pytorch")
Say = Callable[[str], None]


def main() -> None:
    """Everything, or what the flags name."""
    chosen = _arguments()
    torch.set_num_threads(chosen.threads)
    results: dict[str, object] = {"machine": _machine(chosen)}
    settings = Settings(precision=chosen.precision)
    if {"peers", "suite", "memory"} & set(chosen.only):
        cases = [make_case(name, settings, chosen.samples) for name in chosen.case]
        for peer in (peer for task in TASKS for peer in task.peers if not present(peer)):
            print(f"{peer.name}: not installed, left out (pip install '.[bench]')")
        if "peers" in chosen.only:
            results["peers"] = [row for case in cases for row in _peers(case, chosen)]
        if "suite" in chosen.only:
            results["suite"] = [_suite(case, chosen) for case in cases]
        if "memory" in chosen.only:
            results["memory"] = [row for case in cases for row in _memory(case)]
    if "start-up" in chosen.only:
        results["start_up"] = _start_up()
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    results["load_after"] = os.getloadavg()
    chosen.output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"\n{chosen.output}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which parts to run")
    parser.add_argument("--case", nargs="+", choices=tuple(RECIPES), default=tuple(RECIPES), help="which networks")
    parser.add_argument("--task", nargs="+", choices=[task.key for task in TASKS], default=[task.key for task in TASKS])
    parser.add_argument("--samples", type=int, help="train samples, in place of each case's own number")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each (fewer where a round takes long)")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds after which three rounds are enough")
    parser.add_argument("--precision", choices=("float64", "float32"), default="float64")
    parser.add_argument("--threads", type=int, default=1, help="of torch; seconds are those of all threads together")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/bench.json"))
    return parser.parse_args()


def _machine(chosen: argparse.Namespace) -> dict[str, object]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return {
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "threads": chosen.threads,
        "precision": chosen.precision,
        "load_before": os.getloadavg(),
        "date": time.strftime("%Y-%m-%d"),
        "packages": found,
    }


def _peers(case: Case, chosen: argparse.Namespace) -> list[dict[str, object]]:
    print(f"\n{case.name}, {len(case.x)} samples, {chosen.precision}: peer ÷ gen-audit, median (least–most)")
    rows = []
    for task in TASKS:
        if task.key in chosen.task:
            for row in compare(task, case, chosen.rounds, chosen.patience):
                ours, theirs = (Spread.of(row[key]).median for key in ("ours_seconds", "peer_seconds"))
                ratio = Spread(row["ratio"], row["ratio_least"], row["ratio_most"])
                print(f"  {task.key:10} {row['peer']:26} {ratio!s:22} {theirs:8.3f} s ÷ {ours:.3f} s", flush=True)
                rows.append(row)
    return rows


def _suite(case: Case, chosen: argparse.Namespace) -> dict[str, object]:
    found = time_suite(case, chosen.rounds, chosen.patience)
    suite, checks = Spread(*found["suite"].values()), Spread(*found["checks"].values())
    floor = Spread.of(found["floor_seconds"]).median
    least = Spread(*found["least"].values())
    print(f"\n{case.name}, {len(case.x)} samples: suite {suite} × floor, checks {checks} × floor ({floor:.3f} s)")
    print(f"  floor with the least that directions add: {least} × floor")
    for stage, share in found["stages"].items():
        print(f"  {stage:22} {share:6.2f} × floor", flush=True)
    return found


def _memory(case: Case) -> list[dict[str, object]]:
    rows = peak_memory(case)
    print(f"\n{case.name}: peak memory above Python and torch, with --memory {rows[0]['budget']}")
    for row in rows:
        suite, checks = row["suite_mb"], row["checks_mb"]
        print(f"  {row['samples']:6} samples: suite {suite:.0f} MB, with checks {checks:.0f} MB", flush=True)
    return rows


def _start_up() -> dict[str, dict[str, float]]:
    found = start_up()
    print("\nStart-up")
    for name, each in found.items():
        print(f"  {name:22} {each['wall']:.2f} s ({each['cpu']:.2f} s of processor time)")
    return found


if __name__ == "__main__":
    main()
