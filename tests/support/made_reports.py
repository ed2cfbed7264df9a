"""Reports with chosen outcomes, made from the example reports."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
from places import EXAMPLE, REGRESSION

from audit.compare import Named
from audit.measures import Report
from audit.report.blocks import Outcomes, SplitOutcomes

EXAMPLES = {
    "classification": EXAMPLE,
    "regression": REGRESSION,
}


def split(losses, wrong=None, sha256="t", positions=None) -> SplitOutcomes:
    losses = np.asarray(losses, dtype=float)
    places = list(range(len(losses))) if positions is None else list(positions)
    flags = None if wrong is None else [int(each) for each in wrong]
    return SplitOutcomes(sha256=sha256, samples=len(losses), positions=places, loss=losses.tolist(), wrong=flags)


@cache
def example(task: str) -> Report:
    return Report.from_json(json.dumps({**json.loads(EXAMPLES[task].read_text(encoding="utf-8")), "outcomes": None}))


def made(name="a.json", task="classification", test=None, train=None, **changes) -> Named:
    """A report named `name` whose outcomes on test and train are these; `changes` go to its top level."""
    report = example(task)
    if test is not None:
        train = train or split(np.zeros(4), None if test.wrong is None else np.zeros(4), "train")
        report = with_gap(replace(report, outcomes=Outcomes(train=train, test=test)))
    report = replace(report, model=replace(report.model, path=f"{name}.onnx", sha256=name))
    return Named(name, replace(report, **changes))


def with_gap(report: Report) -> Report:
    """Its observed numbers made those of its outcomes."""
    assert report.outcomes is not None
    means = {}
    for part, kept in (("train", report.outcomes.train), ("test", report.outcomes.test)):
        means[f"{part}_loss"] = float(np.mean(kept.loss))
        if kept.wrong is not None:
            means[f"{part}_error"] = float(np.mean(kept.wrong))
    sizes = {
        part: replace(getattr(report.data, part), samples=len(getattr(report.outcomes, part).loss))
        for part in ("train", "test")
    }
    return replace(report, gap=replace(report.gap, **means), data=replace(report.data, **sizes))


def leaked(report: Report) -> Report:
    """The same report with a test split that is void."""
    assert report.hygiene is not None
    why = replace(report.hygiene.leaked, void=True, why="800 of 1,000 test samples are in train with the same label.")
    return replace(report, hygiene=replace(report.hygiene, leaked=why))


def answers(n: int, share: float, seed: int) -> np.ndarray:
    """Mistakes of a made-up model."""
    return (np.random.default_rng(seed).random(n) < share).astype(float)
