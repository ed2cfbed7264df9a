"""What an audit says on the terminal: a few lines, the same facts as the report.

Names of layers, classes, columns and files come from strangers, so nothing goes to a terminal but through `say`. The
modules of reports are imported where they are needed: every command, and `--help`, wakes this file.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from audit.compare import Comparison
    from audit.measures import Report
    from audit.measures.gap.block import GapReport
    from audit.render.write import Written
    from audit.report.conduct import Plan
    from audit.report.fields import Interval

KEPT = "\n\t"
RED, GREEN, YELLOW, BLUE = 31, 32, 33, 34
COLOURS = {
    **dict.fromkeys(("concern", "failed", "worse"), RED),
    **dict.fromkeys(("good", "passed", "better"), GREEN),
    **dict.fromkeys(("watch", "inconclusive", "not measurable"), YELLOW),
    "note": BLUE,
}
VERDICTS = ("better", "worse")
MARKS = re.compile(
    rf"^(?:{'|'.join(word for word in COLOURS if word not in VERDICTS)})\b|(?<=: )(?:{'|'.join(VERDICTS)})\b",
    re.MULTILINE,
)


def printable(text: str) -> str:
    r"""`text` without what moves a cursor, changes colours or turns the direction of writing; JSON stays JSON.

    >>> printable("fc1\x1b[2J\x9b1m")
    'fc1\\u001b[2J\\u009b1m'
    """
    return "".join(letter if _is_plain(letter) else _escaped(letter) for letter in text)


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or letter in KEPT or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x10000:
        return f"\\u{number:04x}"
    return f"\\u{0xD800 + (number - 0x10000 >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def in_table(text: str) -> str:
    """Text from a file, in which Rich and the terminal find nothing to obey."""
    from rich.markup import escape

    return escape(in_one_line(text))


def in_one_line(text: object) -> str:
    r"""As printable, and a name from a file begins no line of its own, which a log may take for the tool's word.

    >>> in_one_line("fc1\n::error::x")
    'fc1\\n::error::x'
    """
    return printable(str(text)).replace("\n", "\\n")


def say(*lines: object, marked: bool = False) -> None:
    """Writes lines to standard output; `marked`: words of good and bad news in colour, where a terminal shows some."""
    for line in lines:
        plain = in_one_line(line)
        print(in_colour(plain) if marked and has_colours(sys.stdout, os.environ) else plain)


def say_whole(document: str) -> None:
    """Writes a text in which no name can break a line: JSON, or our own words."""
    print(printable(document.rstrip("\n")))


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours are shown there and wanted; https://no-color.org."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def in_colour(text: str) -> str:
    r"""The first word of each line where it is a level or a status, and the verdict behind a colon.

    >>> in_colour("watch   Too sure"), in_colour("loss   train 1"), in_colour("against the baseline: worse")
    ('\x1b[33mwatch\x1b[0m   Too sure', 'loss   train 1', 'against the baseline: \x1b[31mworse\x1b[0m')
    """
    return MARKS.sub(lambda found: f"\x1b[{COLOURS[found[0]]}m{found[0]}\x1b[0m", text)


def complain(text: str) -> None:
    """Writes to standard error, one line for each sentence; where that is closed, nobody wants to hear it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(in_one_line(text), file=sys.stderr, flush=True)


def any_alphabet(*streams: TextIO | None) -> None:
    """Lets a terminal that knows few letters show the others as numbers, instead of failing."""
    for stream in streams:
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


# What is said of an audit and of a plan.


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


def print_plan(plan: Plan, samples: int, twins: float | None = None) -> None:
    """Every stage with its form, its samples of the `samples` there are, and the time that it should take.

    `twins`: seconds in which twins would be made beside it, infinite without a limit; None where none would be.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from audit.report.conduct import about_seconds, readable_seconds

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
    say(f"{about_seconds(plan.seconds)} in all, {plan.arithmetic}; {budget}. Nothing was measured.")
    if plan.budget is not None and plan.seconds > plan.budget:
        say("The budget cannot be kept: what is planned should take longer.")
    if twins is not None:
        limit = "no limit of time" if math.isinf(twins) else f"up to {readable_seconds(twins)}"
        say(f"Making the twins comes before that, with {limit}.")


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
    said = [f"bottom line: {line.level}. {line.sentence}", f"what to do next: {_in_full(line.advice, report)}"]
    return [printable(" ".join(each.split())) for each in said]


def _in_full(advice: str, report: Report) -> str:
    """On the page a long advice stands with its finding; here no advice does, so it is said at once."""
    from audit.findings.bottom_line import BELOW
    from audit.findings.rule import sentence

    for finding in report.findings:
        if advice == f"{sentence(finding.title)} {BELOW}":
            return f"{sentence(finding.title)} {finding.advice}"
    return advice


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
        from audit.report import numbers

        shares = f"train {numbers.percent(train)}, test {numbers.percent(test)}, gap {numbers.points(gap)}"
        return f"{name:<6} {shares}" + ("" if ci is None else f" (95 % interval {numbers.interval(ci, 'points')})")
    interval = "" if ci is None else f" (95 % interval {ci[0]:.4g} to {ci[1]:.4g})"
    return f"{name:<6} train {train:.4g}, test {test:.4g}, gap {gap:.4g}{interval}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _used(samples: int, total: int) -> str:
    return f"{samples:,}" if samples == total else f"{samples:,} of {total:,}"
