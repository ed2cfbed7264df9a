"""Comparison of audits: two models, or two recipes with several seeds each, on the same samples. Never wakes torch.

Here is what a comparison is and which numbers it has, as plain values; its JSON is a contract, too. `comparable.py`
refuses what would mean nothing, `differences.py` pairs two models on the samples that both reports have, `compare.py`
puts two models side by side and `recipes.py` two recipes. Reports are found in a folder here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from audit.errors import UsageError
from audit.measures import Report
from audit.measures.catalogue import CATALOGUE
from audit.report.blocks import FeatureValue, Thumbnail
from audit.report.fields import Compared, Document, Interval, Kind, says
from audit.settings.limits import refuse_outside, report_text

SCHEMA = "gen-audit/compare/1"
BETTER, WORSE = "better", "worse"  # where one side is the good one: test error and test loss
LOWER, HIGHER = "lower", "higher"  # elsewhere
SAME, UNKNOWN, NO_INTERVAL, NOT_COMPARED, VOID = "the same", "cannot tell", "no interval", "not compared", "void"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One model, or one recipe with several of them."""

    name: str = says("short name for a page")
    reports: list[str] = says("where the reports or models lie")
    model_sha256: list[str]
    created: list[str]
    data: str = says("path of the data folder")
    data_sha256: str
    train_samples: int
    test_samples: int
    parameters: int
    findings: list[str] = says("titles of its findings, level first")
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number of both sides."""

    key: str = says("its path in report.json")
    name: str
    section: str = says("observed, or the key of the measure")
    kind: Kind = says("how it is shown: number, percent or share")
    old: float | None
    new: float | None
    difference: float | None = says("new minus old")
    ci95: Interval = says("95 % interval of the difference")
    samples: int | None = says("samples behind it", default=None)
    in_use: int | None = says("samples of the report that used more of them, where only some are common", default=None)
    paired: bool = says("whether the interval pairs both models on each sample", default=False)
    verdict: str = says(
        "better or worse (test error and test loss only), lower, higher, the same, cannot tell, no interval, …"
    )
    seeds_share: float | None = says("recipes: part of the variance that comes from the seeds", default=None)
    matched: bool = says("measured at one common train loss", default=False)
    skipped: str | None = says("why it was not compared", default=None)


@dataclass(frozen=True, kw_only=True)
class Matched:
    """How both models were brought to one train loss for the numbers that follow it."""

    target: float = says("the common train loss, in nats")
    scaled: str | None = says("old or new: the one whose scores were multiplied; null where both losses agreed already")
    factor: float = says("what they were multiplied by")


@dataclass(frozen=True, kw_only=True)
class ChangedSample:
    """One test sample that the two models answer differently."""

    index: int = says("position in the test split as stored")
    old_loss: float
    new_loss: float
    old_wrong: bool | None = says("null for regression", default=None)
    new_wrong: bool | None = None
    picture: Thumbnail | None = says("where one of the reports has it", default=None)
    features: list[FeatureValue] = says("of a row of a table, where a report has them", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ChangedSamples:
    """Those that changed most, to either side; a sample that becomes wrong counts before one that only costs more."""

    worse: list[ChangedSample] = field(default_factory=list)
    better: list[ChangedSample] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Comparison(Document):
    """A comparison, complete."""

    about: str = says("models: these two models on this test set; recipes: with the spread between seeds")
    old: Side
    new: Side
    void: str | None = says("why no verdict can be had from this test split")
    primary: str = says("key of the one number that the verdict rests on, declared beforehand")
    verdict: str = says("better, worse, the same, cannot tell or void: of the new side")
    headline: list[str] = says("the verdict in words")
    numbers: list[Number]
    matched: Matched | None = None
    only_old_wrong: int | None = says("test samples that only the old model gets wrong", default=None)
    only_new_wrong: int | None = None
    samples: ChangedSamples = says("test samples that changed most; empty for recipes", default_factory=ChangedSamples)
    notes: list[str] = says("what was compared, what was not, and how to read it", default_factory=list)
    appeared: list[str] = says("findings of the new side that the old one has not", default_factory=list)
    disappeared: list[str] = field(default_factory=list)


# Which numbers are compared, and what a difference in them may be called.


ON_SAMPLES = tuple(number for entry in CATALOGUE if entry.place == "report" for number in entry.compared)
"""Numbers that were counted on the samples."""
OBSERVED = tuple(number for number in ON_SAMPLES if number.section == "observed")
"""Those of them that are means of what a report keeps of each sample, so that two models can be paired on it."""
INSIDE = tuple(number for entry in CATALOGUE if entry.place == "network" for number in entry.compared)
"""Numbers that were measured inside the network; a `*` stands for each layer that both networks have."""
OF_NETWORK = tuple(number for number in INSIDE if "*" not in number.key)
PRIMARY = {
    "classification": "gap.test_error",
    "binary": "gap.test_error",
    "tagging": "gap.test_error",
    "regression": "gap.test_loss",
}
"""The one number that the verdict rests on, by task; declared here, before any data are seen."""


def of_layers(names: Sequence[str]) -> list[Compared]:
    """The numbers of single layers, one for each of these."""
    every = [number for number in INSIDE if "*" in number.key]
    return [replace(one, key=one.key.replace("*", name), name=f"{name}: {one.name}") for name in names for one in every]


def skipped(entry: Compared, why: str | None = None) -> Number:
    """A number that was not compared, or not yet."""
    return Number(
        key=entry.key,
        name=entry.name,
        section=entry.section,
        kind=entry.kind,
        old=None,
        new=None,
        difference=None,
        ci95=None,
        verdict=NOT_COMPARED,
        skipped=why,
    )


def verdict(entry: Compared, difference: float, ci95: Interval, identical: bool = False) -> str:
    """What may be said: better or worse where lower is better without doubt, else lower or higher."""
    if identical:
        return SAME
    if ci95 is None:
        return NO_INTERVAL
    if ci95[0] <= 0 <= ci95[1]:
        return UNKNOWN
    if difference > 0:
        return WORSE if entry.judged else HIGHER
    return BETTER if entry.judged else LOWER


# Reports, and where they are found.


@dataclass(frozen=True)
class Named:
    """A report and the path it is known by."""

    name: str
    report: Report


ANY_REPORT = re.compile(r"gen-audit/\d+")  # of whichever schema; one that cannot be read must not go unnoticed


def read_folder(folder: Path) -> list[Named]:
    """Every report in the folder and its subfolders, the oldest first; other JSON files are passed over."""
    found = [Named(str(path), report) for path in report_files(folder) if (report := report_in(path))]
    if not found:
        raise UsageError(f"{folder}: holds no report of gen-audit; put report.json files into it, or into its folders.")
    return sorted(found, key=lambda each: (each.report.created, each.name))


def report_files(folder: Path) -> list[Path]:
    """Every file of the folder and its subfolders that may be a report."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; name the one that holds the report.json files.")
    found = sorted(path for path in folder.rglob("*.json") if path.is_file())  # a pipe would be waited for
    for path in found:
        refuse_outside(path, folder, "folder of reports")
    return found


def report_in(path: Path) -> Report | None:
    """The report in a file, or None where the file is something else; a damaged report is an error."""
    text = report_text(path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return None
    except (ValueError, RecursionError):  # a number of thousands of digits, nested too deep
        found = ANY_REPORT.search(text)
        document = {"schema": found[0] if found else None}
    if not isinstance(document, dict) or not ANY_REPORT.fullmatch(str(document.get("schema"))):
        return None
    return Report.from_json(text, str(path))
