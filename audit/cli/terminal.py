"""What an audit says on the terminal: a few lines, the same facts as the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from audit.cli.say import complain, in_table, printable, say
from audit.measures.gap.block import GapReport
from audit.measures.report import Report
from audit.report import numbers
from audit.report.fields import Interval
from audit.report.plan import Plan, readable_seconds

if TYPE_CHECKING:
    from audit.compare.result import Comparison
    from audit.render.write import Written


def print_outcome(
    report: Report, folder: Path, written: Written, quiet: bool, comparison: Comparison | None = None
) -> None:
    """Warnings always; the summary, the verdict against a baseline and where the files are unless asked to be quiet."""
    for warning in report.warnings:
        complain(f"WARNING: {warning}")
    tell_missing(written)
    if quiet:
        return
    for line in [*summary(report), *_against(comparison)]:
        say(line, marked=True)
    for name in written.files:
        say(folder / name)


def print_plan(plan: Plan, samples: int) -> None:
    """Every stage with its form, its samples of the `samples` there are, and the time that it should take."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for column in ("stage", "form", "samples", "time", "memory", "why"):
        table.add_column(column, overflow="fold")
    for stage in plan.stages:
        memory = f"{stage.bytes / 2**20:,.0f} MB" if stage.bytes else ""
        table.add_row(
            in_table(stage.name), stage.form, stage.looks_at(samples), stage.about, memory, in_table(stage.why or "")
        )
    Console().print(table)
    budget = "no budget" if plan.budget is None else f"a budget of {readable_seconds(plan.budget)}"
    say(f"about {readable_seconds(plan.seconds)} in all, {plan.arithmetic}; {budget}. Nothing was measured.")


def _against(comparison: Comparison | None) -> list[str]:
    """Better, worse or cannot tell; and every sentence behind it."""
    if comparison is None:
        return []
    verdict = "void" if comparison.void else comparison.verdict
    return [f"against the baseline: {verdict}", *(f"  {line}" for line in comparison.headline)]


def tell_missing(written: Written) -> None:
    """What this machine could not write, and how to get it."""
    for missing in written.missing:
        complain(f"gen-audit: {missing}")


def summary(report: Report) -> list[str]:
    """The gap in words, and what the numbers rest on."""
    model, data = report.model, report.data
    parity = model.parity
    lines = [
        f"{model.path}: {model.task}, {_count(model.parameters, 'parameter')}, "
        f"{_layers(report)} measured, {_count(len(report.passed_by), 'layer')} passed by",
        f"{data.path}: {data.layout}, {_used(data.train.samples, data.train.total)} train and "
        f"{_used(data.test.samples, data.test.total)} test samples",
    ]
    if parity is not None:
        lines.append(
            f"agrees with {parity.against} to {parity.max_abs_diff:.1e} on {parity.samples} samples "
            f"(tolerance {parity.tolerance:.1e})"
        )
    return [*lines, *bottom_lines(report), *gap_lines(report.gap), *finding_lines(report)]


def bottom_lines(report: Report) -> list[str]:
    """The report in one sentence, its level and what to do next."""
    line = report.bottom_line
    if line is None:
        return []
    said = [f"bottom line: {line.level}. {line.sentence}", f"what to do next: {line.advice}"]
    return [printable(" ".join(each.split())) for each in said]


def _layers(report: Report) -> str:
    """Convolutions, measured on request over their patches, are counted apart."""
    convolutions = sum(layer.op == "conv" for layer in report.layers)
    counts = (len(report.layers) - convolutions, "dense layer"), (convolutions, "convolution")
    return " and ".join(_count(number, noun) for number, noun in counts if number)


def finding_lines(report: Report) -> list[str]:
    """Level and title of the findings that stand on the first page; names from the model cannot move the cursor."""
    shown = [finding for finding in report.findings if finding.first_page]
    return [f"{finding.level:<8}{printable(' '.join(finding.title.split()))}" for finding in shown]


def gap_lines(gap: GapReport) -> list[str]:
    """Loss, and error or RMSE, on both splits and their difference."""
    lines = [_line("loss", gap.train_loss, gap.test_loss, gap.loss_gap, gap.loss_gap_ci95)]
    if gap.train_error is not None and gap.test_error is not None and gap.error_gap is not None:
        lines.append(_line("error", gap.train_error, gap.test_error, gap.error_gap, gap.error_gap_ci95, percent=True))
    if gap.train_rmse is not None and gap.test_rmse is not None:
        lines[0] += "; the loss is half the squared error, summed over outputs"
        lines.append(f"RMSE   train {gap.train_rmse:.4g}, test {gap.test_rmse:.4g}")
    return lines


def _line(name: str, train: float, test: float, gap: float, ci: Interval, percent: bool = False) -> str:
    """A difference of two shares is in percentage points: 2 % after 1 % is one point more, and twice as much."""
    if percent:
        shares = f"train {numbers.percent(train)}, test {numbers.percent(test)}, gap {numbers.points(gap)}"
        return f"{name:<6} {shares}" + ("" if ci is None else f" (95 % interval {numbers.interval(ci, 'points')})")
    interval = "" if ci is None else f" (95 % interval {ci[0]:.4g} to {ci[1]:.4g})"
    return f"{name:<6} train {train:.4g}, test {test:.4g}, gap {gap:.4g}{interval}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _used(samples: int, total: int) -> str:
    return f"{samples:,}" if samples == total else f"{samples:,} of {total:,}"
