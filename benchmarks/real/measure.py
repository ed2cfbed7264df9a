"""One case from beginning to end: made, listed, timed over one epoch, audited; each in a process of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real.cases import CASES, Case
from benchmarks.real.watch import ROOT, Run, watch

SMALLEST = """
import sys, torch
torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), sys.argv[1])
"""
BUILD_LIMIT, EPOCH_LIMIT, SHORT_LIMIT = 900.0, 300.0, 180.0


class BenchmarkError(Exception):
    """A part of the benchmark itself failed: there is nothing to hold an audit against."""


@dataclass(frozen=True)
class Options:
    """How everything is run."""

    folder: Path  # where models, data and reports lie
    threads: int
    limit_factor: float  # an audit is ended at this many times its limit …
    at_most: float | None = None  # … or after so many seconds, if that is sooner


@dataclass(frozen=True)
class Row:
    """What one case took, beside what it may take."""

    case: str
    parameters: int
    model: str
    layers: str  # what `gen-audit layers` says of the file, or why it cannot
    outcome: str  # "done", or how the audit failed
    code: int | None  # None: it was ended, and what it took is the least that it would have taken
    wall: float
    cpu: float
    peak_above: int  # bytes above libraries, model file and data files
    peak: int
    epoch: float
    epoch_cpu: float  # seconds of all threads
    epoch_timed: int  # train samples that the epoch's time is taken from
    predicted: float | None  # seconds that the plan foretold
    seconds_limit: float
    bytes_limit: float | None
    epochs_limit: float | None

    @property
    def epochs(self) -> float:
        """Audit ÷ one epoch, by the clock."""
        return self.wall / self.epoch

    @property
    def epochs_cpu(self) -> float:
        """The same of processor seconds, which other work on the machine hardly changes."""
        return self.cpu / self.epoch_cpu

    @property
    def misses(self) -> tuple[str, ...]:
        """The limits that are exceeded, be it by an audit that was ended; or why there is no report."""
        if self.code not in (0, None):
            return (self.outcome,)
        limits = (
            ("time", self.wall, self.seconds_limit),
            ("epochs", self.epochs, self.epochs_limit),
            ("memory", self.peak_above, self.bytes_limit),
        )
        return tuple(what for what, value, limit in limits if limit is not None and value > limit)

    @property
    def verdict(self) -> str:
        """Pass, miss, or open: an audit ended before any of its limits has neither passed nor missed."""
        ended = self.outcome if self.code is None else ""
        if self.misses:
            return "; ".join(filter(None, (f"miss: {', '.join(self.misses)}", ended)))
        return f"open: {ended}" if ended else "pass"


def libraries(options: Options) -> dict[str, int]:
    """Bytes that Python, the libraries and gen-audit take once they have read a tiny file of either kind."""
    smallest = (options.folder / "smallest.pt2").resolve()
    _words(watch(("-c", SMALLEST, str(smallest)), options.folder / "smallest", SHORT_LIMIT, options.threads))
    found = {}
    for model in (smallest, ROOT / "samples" / "healthy.onnx"):
        run = _gen_audit(("layers", str(model)), options.folder / "libraries", SHORT_LIMIT, options)
        _words(run)
        found[model.suffix] = run.peak
    return found


def measure(name: str, standing: Mapping[str, int], options: Options) -> Row:
    """Make the case unless it is there, time an epoch, audit; `standing` is what the libraries take for each suffix."""
    case = CASES[name]
    folder = (options.folder / case.recipe).resolve()
    made = _made(case, folder, options)
    model = folder / made["model"]
    layers = _layers(model, folder, options)
    epoch = _epoch(case, folder, options)
    report = ("report", str(model), str(folder / "data"), *case.flags)
    foretold = _dry_run(report, folder / f"{name}-plan", options)
    run, document = _audit(report, folder / name, case, options)
    return Row(
        case=name,
        parameters=made["parameters"],
        model=model.suffix,
        layers=layers,
        outcome="done" if run.finished else run.complaint,
        code=run.code,
        wall=run.wall,
        cpu=run.cpu,
        peak_above=max(0, run.peak - standing[model.suffix] - made["model_bytes"] - made["data_bytes"]),
        peak=run.peak,
        epoch=epoch["seconds"],
        epoch_cpu=epoch["cpu"],
        epoch_timed=epoch["timed"],
        predicted=foretold if foretold is not None else _predicted(document),
        seconds_limit=case.seconds,
        bytes_limit=None if case.gigabytes is None else case.gigabytes * 1e9,
        epochs_limit=case.epochs,
    )


def _made(case: Case, folder: Path, options: Options) -> dict[str, Any]:
    arguments = ("-m", "benchmarks.real.build", case.recipe, str(folder))
    _words(watch(arguments, folder / "build", BUILD_LIMIT, options.threads))
    made: dict[str, Any] = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    return made


def _epoch(case: Case, folder: Path, options: Options) -> dict[str, Any]:
    arguments = ("-m", "benchmarks.real.epoch", case.recipe, str(folder), str(case.audited))
    found: dict[str, Any] = json.loads(_words(watch(arguments, folder / "epoch", EPOCH_LIMIT, options.threads)))
    return found


def _layers(model: Path, folder: Path, options: Options) -> str:
    """How many layers would be measured and passed by, or why the file cannot be read."""
    run = _gen_audit(("layers", str(model), "--json"), folder / "layers", SHORT_LIMIT, options)
    if not run.finished:
        return run.complaint
    found = json.loads(run.out.read_text(encoding="utf-8"))
    return f"{len(found['layers'])} measured, {len(found['passed_by'])} passed by"


def _audit(report: tuple[str, ...], out: Path, case: Case, options: Options) -> tuple[Run, dict[str, Any]]:
    """The audit itself, ended at its limit; and what it wrote, if anything."""
    limit = min(options.limit_factor * case.seconds, options.at_most or float("inf"))
    shutil.rmtree(out, ignore_errors=True)
    run = _gen_audit((*report, "-f", "json", "-o", str(out)), out.with_name(f"{out.name}-report"), limit, options)
    written = out / "report.json"
    return run, json.loads(written.read_text(encoding="utf-8")) if run.finished else {}


def _dry_run(report: tuple[str, ...], log: Path, options: Options) -> float | None:
    """Seconds that `--dry-run` foretells; None where gen-audit has no such flag, or says nothing of them."""
    run = _gen_audit((*report, "--dry-run", "--json"), log, SHORT_LIMIT, options)
    if not run.finished:
        return None
    try:
        return _predicted(json.loads(run.out.read_text(encoding="utf-8")))
    except json.JSONDecodeError:
        return None


def _predicted(document: Mapping[str, Any]) -> float | None:
    """Seconds that a plan foretells for all its stages: of a report, or the plan alone."""
    stages = document.get("plan", document).get("stages", [])
    return sum(stage["seconds"] for stage in stages) if stages else None


def _gen_audit(arguments: tuple[str, ...], log: Path, limit: float, options: Options) -> Run:
    return watch(("-m", "audit", *arguments), log, limit, options.threads)


def _words(run: Run) -> str:
    """What the run printed; the benchmark cannot go on where it failed."""
    if not run.finished:
        raise BenchmarkError(f"{run.err}: {run.complaint}")
    return run.out.read_text(encoding="utf-8")
