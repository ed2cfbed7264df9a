"""Reproduce the papers: small networks over the axes of Feng & Tu, measured, and every claim judged by one rule.

Run it in the development environment: `python samples/study.py --work DIR`. What was trained and measured is kept in
DIR, so that an interrupted run goes on; the numbers go to `samples/study.json`, the page to `docs/study.md`, the
figures to `docs/study/`. About 15 minutes on one thread of a CPU. `--page` writes the page anew from the JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from papers.figures import figures
from papers.measuring import Bench, bench, measured
from papers.page import page
from papers.record import recorded
from papers.training import TARGET, Setting, teach
from train import HERE, perceptron

SEEDS = 6
DIGITS = 6  # of what is kept; rounding stays below the claims' own tolerance
RESULT = HERE / "study.json"
DOCS = HERE.parent / "docs"

BASE = Setting()
AXES: dict[str, tuple[float, ...]] = {
    "rate": (0.0125, 0.025, 0.05),
    "batch": (50, 100, 200),
    "decay": (2e-4, 1e-3, 5e-3),
    "start": (0.5, 2.0, 3.0),
    "dropout": (0.05, 0.1, 0.2),
    "part": (0.125, 0.25, 0.5),
    "wrong": (0.05, 0.1, 0.2),
    "fisher": (10.0, 50.0, 100.0),  # among those that Jia & Su tried, the largest included
}
"""What is changed, one at a time; the base is a point of every axis."""

SETTINGS: dict[str, Setting] = {
    "base": BASE,
    **{f"{axis}={value:g}": replace(BASE, **{axis: value}) for axis, values in AXES.items() for value in values},
}


def main() -> None:
    """Make what is missing, then judge everything anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for what was measured of each network")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="networks of each setting")
    parser.add_argument("--page", action="store_true", help="write the page from the JSON, and train nothing")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not asked.page:
        if asked.work is None:
            parser.error("--work DIR is needed, unless --page is given")
        torch.manual_seed(0)
        make(bench(HERE / "mnist", perceptron(), TARGET), SETTINGS, asked.seeds, asked.work)
        write(recorded(collected(SETTINGS, asked.seeds, asked.work), SETTINGS, AXES), RESULT)
    publish(json.loads(RESULT.read_text(encoding="utf-8")), DOCS)


def make(bench: Bench, settings: dict[str, Setting], seeds: int, work: Path) -> None:
    """Trains the networks of one setting after the other, all seeds at once; what is there is not made again."""
    work.mkdir(parents=True, exist_ok=True)
    for name, setting in settings.items():
        missing = [seed for seed in range(seeds) if not _file(work, name, seed).exists()]
        if not missing:
            continue
        for trained in teach(bench.architecture, bench.train, setting, missing, bench.target):
            found = {"setting": name, "seed": trained.lesson.seed, **measured(bench, trained)}
            _keep(_file(work, name, trained.lesson.seed), found)
        print(name, flush=True)


def _file(work: Path, name: str, seed: int) -> Path:
    return work / f"{name.replace(' ', '-')}-{seed}.json"


def _keep(path: Path, found: dict[str, Any]) -> None:
    """A file that is there whole or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(rounded(found, DIGITS)), encoding="utf-8")
    os.replace(unfinished, path)


def rounded(value: Any, digits: int) -> Any:
    """Plain numbers of few digits; what is none becomes null."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, (list, tuple, np.ndarray)) else value


def collected(settings: Iterable[str], seeds: int, work: Path) -> list[dict[str, Any]]:
    """Everything that was measured, setting by setting."""
    files = [_file(work, name, seed) for name in settings for seed in range(seeds)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def write(record: dict[str, Any], path: Path) -> None:
    """The record as JSON, one network and one claim a line."""

    def lines(values: Iterable[Any]) -> str:
        return ",\n".join(json.dumps(value, ensure_ascii=False) for value in values)

    parts = rounded(record, DIGITS)
    claims = ",\n".join(f"{json.dumps(paper)}: [\n{lines(each)}\n]" for paper, each in parts.pop("claims").items())
    networks, head = lines(parts.pop("networks")), json.dumps(parts, ensure_ascii=False)[1:-1]
    path.write_text(f'{{{head},\n"networks": [\n{networks}\n],\n"claims": {{\n{claims}\n}}}}\n', encoding="utf-8")


def publish(record: dict[str, Any], docs: Path) -> None:
    """The page and its figures."""
    (docs / "study").mkdir(exist_ok=True)
    (docs / "study.md").write_text(page(record), encoding="utf-8")
    for name, svg in figures(record).items():
        (docs / "study" / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
