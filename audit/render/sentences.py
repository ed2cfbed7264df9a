"""The report's numbers as sentences for readers without the mathematics, and as statements for machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Literal

from audit.findings.rule import asked, explained, within
from audit.findings.rule import scores as scores
from audit.findings.rule import unit as unit
from audit.measures import LayerReport, Report
from audit.measures.gap.block import GapReport
from audit.report import Finding, SplitReport
from audit.report.blocks import Check
from audit.report.fields import Interval
from audit.report.numbers import number, percent, points

if TYPE_CHECKING:
    from audit.policy import RuleResult, Verdict

TASKS = {
    "classification": "classification",
    "binary": "binary classification with one output",
    "regression": "regression",
    "tagging": "tagging, a class for every position of a sample",
}
LOSSES = {
    "cross_entropy": "cross-entropy, in nats",
    "bce": "binary cross-entropy, in nats",
    "mse": "half the squared error, summed over the outputs",
}
HEADS = {"none": "none: the file's output is audited as it is"}
LAYOUTS = {
    "npz": "train.npz and test.npz",
    "npy": "NumPy arrays",
    "csv": "CSV tables",
    "tsv": "tab-separated tables",
    "parquet": "Parquet tables",
    "images": "one folder of images per class",
    "image-parquet": "images in Parquet files, as Hugging Face's",
    "idx": "idx files, as MNIST's",
    "cifar": "CIFAR-10 binary batches",
    "safetensors": "safetensors tensors",
    "pt": "PyTorch tensors",
    "memory": "handed over by a program",
}


def file_name(path: str) -> str:
    r"""The last part of a path written on any system.

    >>> file_name("runs/7/model.onnx"), file_name("C:\\runs\\model.onnx"), file_name("data/")
    ('model.onnx', 'model.onnx', 'data')
    """
    return PureWindowsPath(PurePosixPath(path).name).name or path


def title(report: Report) -> str:
    """What was audited on what."""
    return f"{file_name(report.model.path)} on {file_name(report.data.path)}"


def used(split: SplitReport) -> str:
    """How many samples were used, and of how many."""
    samples, total = split.samples, split.total
    return number(samples) if samples == total else f"{number(samples)} of {number(total)}"


def beyond_chance(bounds: Interval) -> str:
    """What an interval of a gap allows one to say, and no more."""
    if bounds is None:
        return "there is no interval, so chance cannot be told from a real difference"
    if bounds[0] > 0:
        return "worse on test than chance alone would explain on these samples"
    if bounds[1] < 0:
        return "better on test than on train, which strong regularisation or an easier test split can cause"
    return "the interval includes zero, so these samples cannot tell a gap from none"


def no_verdict(report: Report) -> str | None:
    """Why the gap says nothing about unseen data, whatever its interval; None where it does."""
    if report.hygiene is not None and report.hygiene.leaked.void:
        return "void, since these test samples are in the train data"
    if any(finding.id == "wrong-input" for finding in report.findings):
        return "without meaning, since the model does no better than guessing on its own train data"
    return None


def gap_sentences(report: Report) -> list[str]:
    """The observed gap: errors first where there are any, then the loss."""
    gap, data = report.gap, report.data
    void = no_verdict(report)

    def judged(bounds: Interval) -> str:
        return beyond_chance(bounds) if void is None else void

    sentences = []
    if gap.error_gap is not None:
        sentences.append(
            f"The model answers wrongly on {percent(gap.train_error)} of {_asked(report, 'train')} and on "
            f"{percent(gap.test_error)} of {_asked(report, 'test')}: a gap of {points(gap.error_gap)}"
            f"{within(gap.error_gap_ci95, 'points')}; {judged(gap.error_gap_ci95)}."
        )
    if gap.test_rmse is not None:
        sentences.append(
            f"The root mean squared error is {number(gap.train_rmse)} on {used(data.train)} train samples and "
            f"{number(gap.test_rmse)} on {used(data.test)} test samples; the model explains "
            f"{explained(gap.train_r2)} of the variance on train and {explained(gap.test_r2)} on test."
        )
    what = "" if gap.test_rmse is None else ", half the squared error,"
    sentences.append(
        f"The mean loss{what} is {number(gap.train_loss)} on train and {number(gap.test_loss)} on test: a gap of "
        f"{number(gap.loss_gap)}{within(gap.loss_gap_ci95)}; {judged(gap.loss_gap_ci95)}."
    )
    return sentences


def _asked(report: Report, split: str) -> str:
    """How many samples, of how many, or how many positions."""
    if report.model.task == "tagging":
        return asked(report, split)
    return f"{used(report.data.train if split == 'train' else report.data.test)} {split} samples"


def interval_sentence(report: Report) -> str:
    """Where the intervals of the gap come from."""
    gap = report.gap
    draws = f"{number(gap.bootstrap)} bootstrap draws over the samples"
    if gap.error_gap is None:
        return f"from {draws}"
    if gap.test_positions is not None:
        return (
            f"from {draws}, never over the positions within one, which are not independent. A sample's loss is the "
            f"mean over its labelled positions; wrong answers are counted over all labelled positions, "
            f"{number(gap.train_positions)} of train and {number(gap.test_positions)} of test"
        )
    return f"of losses from {draws}, of shares of wrong answers by Wilson's and Newcombe's formulas"


def layer_remarks(layer: LayerReport) -> str:
    """What is particular about a layer, in a few words."""
    remarks = []
    if layer.tokens > 1:
        remarks.append(f"applied to {number(layer.tokens)} vectors per sample")
    if layer.calls > 1:
        remarks.append(f"used {layer.calls} times with the same weights")
    if layer.tied_with:
        remarks.append(f"shares its weights with {', '.join(layer.tied_with)}")
    if not layer.cut_point:
        remarks.append("bypassed by another path")
    return "; ".join(remarks)


# What the report says, as statements for machines.
Group = Literal["rule", "warning", "check", "assumption", "finding"]
Standing = Literal["passed", "failed", "open"]
Loudness = Literal["error", "warning", "note", "none"]

LOUDNESS: tuple[Loudness, ...] = ("error", "warning", "note", "none")
OF_FINDING: dict[str, Loudness] = {"concern": "warning", "watch": "note"}


@dataclass(frozen=True)
class Statement:
    """A rule, a warning, a self-check, an assumption or a finding, with what became of it."""

    group: Group
    id: str
    title: str
    text: str
    standing: Standing = "passed"  # open: could not be told, or does not decide
    level: Loudness = "none"  # how loudly to say it
    advice: str = ""
    source: str = ""

    @property
    def key(self) -> str:
        """A name that is unique over the groups, such as check/determinism."""
        return f"{self.group}/{self.id}"


def statements(report: Report, verdict: Verdict | None = None) -> list[Statement]:
    """Everything the report says, rules first, in the report's order."""
    checks = [_check(check, decides=verdict is None) for check in report.checks]
    said = [*map(_warning, report.warnings), *checks, *map(_finding, report.findings)]
    if verdict is None:
        return said
    subjects = {_subject(statement): statement for statement in said}
    loud = {result.path for result in verdict.results if result.consequence != "pass"}
    rules = [_rule(result, subjects.get(result.path)) for result in verdict.results]
    return [*rules, *(replace(each, level="none") if _subject(each) in loud else each for each in said)]


def loudest_first(said: list[Statement]) -> list[Statement]:
    """Those that call for attention, errors before warnings before notes."""
    loud = [statement for statement in said if statement.level != "none"]
    return sorted(loud, key=lambda statement: LOUDNESS.index(statement.level))


def _subject(statement: Statement) -> str:
    """What a policy calls a check or a finding; where a rule speaks up about it, the rule alone does."""
    return f"{'finding' if statement.group == 'finding' else 'check'}.{statement.id}"


def _rule(result: RuleResult, about: Statement | None) -> Statement:
    loud: dict[str, tuple[Standing, Loudness]] = {"fail": ("failed", "error"), "warn": ("open", "warning")}
    standing, level = loud.get(result.consequence, ("passed" if result.status == "passed" else "open", "none"))
    text = f"{result.id} {result.status}: {result.sentence}."
    title = f"Policy: {result.id}"
    if about is None or standing == "passed":
        return Statement("rule", result.id, title, text, standing, level)
    return Statement("rule", result.id, title, f"{text} {about.text}", standing, level, about.advice, about.source)


def _warning(sentence: str) -> Statement:
    return Statement("warning", "before-any-number", "To know before any number", sentence, "open", "warning")


def _check(check: Check, decides: bool) -> Statement:
    standing: Standing = "passed" if check.status == "passed" else "open"
    level: Loudness = "none"
    group: Group = "check" if check.kind == "check" else "assumption"
    if check.status == "failed":
        standing = "failed" if group == "check" and decides else "open"
        level = "note" if group == "assumption" else "error" if decides else "warning"
    return Statement(group, check.id, check.title, _measured(check), standing, level)


def _measured(check: Check) -> str:
    """What was done, and the number it gave."""
    opening = {"failed": "This does not hold here. "}.get(check.status, "")
    if check.value is None or check.tolerance is None:
        return f"{opening}{check.explanation}"
    return f"{opening}{check.explanation} Measured {check.value:.3g}, allowed {check.tolerance:.3g}."


def _finding(finding: Finding) -> Statement:
    return Statement(
        group="finding",
        id=finding.id,
        title=finding.title,
        text=finding.explanation,
        level=OF_FINDING.get(finding.level, "none"),
        advice=finding.advice,
        source=finding.source,
    )


# How well the model does on each split, as the rows that model cards and bills of materials have for it.


LOSS_NAMES = {
    "cross_entropy": "mean cross-entropy",
    "bce": "mean binary cross-entropy",
    "mse": "mean half squared error",
}


@dataclass(frozen=True)
class Metric:
    """One number with its 95 % interval, where it has one."""

    kind: str  # loss, error, accuracy, rmse, r2
    name: str
    slice: str  # train, test, gap, or the class
    value: float
    interval: Interval = None


def metrics(report: Report) -> list[Metric]:
    """Every number of the gap that the task has, test before train, then the classes."""
    gap, loss = report.gap, LOSS_NAMES[report.model.loss]
    kinds = {"loss": loss, "error": "error", "accuracy": "accuracy", "rmse": "root mean squared error", "r2": "R²"}
    found = [
        Metric(kind, name, split, getattr(gap, f"{split}_{kind}"), _interval(gap, split, kind))
        for split in ("test", "train")
        for kind, name in kinds.items()
        if getattr(gap, f"{split}_{kind}") is not None
    ]
    gaps = (("loss", gap.loss_gap, gap.loss_gap_ci95), ("error", gap.error_gap, gap.error_gap_ci95))
    found += [
        Metric(kind, f"{kinds[kind]}, test minus train", "gap", value, interval)
        for kind, value, interval in gaps
        if value is not None
    ]
    return found + [
        Metric("error", "error", f"test, class {each.name}", each.test_error)
        for each in gap.per_class
        if each.test_error is not None
    ]


def _interval(gap: GapReport, split: str, kind: str) -> Interval:
    """The accuracy is one minus the error, and so is its interval."""
    if kind == "accuracy":
        error: Interval = getattr(gap, f"{split}_error_ci95")
        return None if error is None else (1 - error[1], 1 - error[0])
    interval: Interval = getattr(gap, f"{split}_{kind}_ci95")
    return interval
