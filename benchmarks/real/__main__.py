"""`make bench-real`: audits networks of real size, each held against its limits and against one epoch of training."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from benchmarks.real.cases import CASES
from benchmarks.real.measure import BenchmarkError, Options, Row, libraries, measure
from benchmarks.real.table import markdown

PACKAGES = ("gen-audit", "torch", "numpy", "onnx", "onnxruntime")


def main() -> None:
    """Every case, or those that the flags name; what is known is written after each."""
    chosen = _arguments()
    options = Options(chosen.folder, chosen.threads, chosen.limit_factor, chosen.at_most)
    standing = libraries(options)
    rows: list[Row] = []
    failures: dict[str, str] = {}
    machine = _machine(chosen.threads, standing)
    for name in chosen.case:
        try:
            rows.append(measure(name, standing, options))
            print(markdown(rows[-1:]).splitlines()[-1], flush=True)
        except BenchmarkError as error:
            failures[name] = str(error)
            print(f"{name}: {error}", flush=True)
        _write(chosen.output, machine, rows, failures)
    print(f"\n{markdown(rows)}\n\n{chosen.output}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real", description=__doc__)
    parser.add_argument("--case", nargs="+", choices=tuple(CASES), default=tuple(CASES), help="which cases")
    parser.add_argument("--limit-factor", type=float, default=2.0, help="end an audit at so many times its limit")
    parser.add_argument("--at-most", type=float, help="end an audit after so many seconds, if that is sooner")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch, for audit and epoch alike")
    parser.add_argument("--folder", type=Path, default=Path("out/bench-real"), help="where models and data are kept")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/bench-real.json"))
    return parser.parse_args()


def _machine(threads: int, standing: dict[str, int]) -> dict[str, object]:
    return {
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "threads": threads,
        "libraries_bytes": standing,
        "load_before": os.getloadavg(),
        "date": time.strftime("%Y-%m-%d"),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def _write(output: Path, machine: dict[str, object], rows: list[Row], failures: dict[str, str]) -> None:
    """The rows as JSON and, beside it, as a Markdown table."""
    cases = [
        {**asdict(row), "epochs": row.epochs, "epochs_cpu": row.epochs_cpu, "verdict": row.verdict} for row in rows
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine, "cases": cases, "failures": failures, "load_after": os.getloadavg()}
    output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    output.with_suffix(".md").write_text(markdown(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
