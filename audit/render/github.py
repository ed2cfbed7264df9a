"""What GitHub Actions shows of an audit: the summary of the step, and annotations on the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audit.compare.result import Comparison
from audit.measures.report import Report
from audit.policy.rules import Verdict, verdict_line
from audit.render.page import cell, render_markdown
from audit.render.statements import Statement, loudest_first, statements

SUMMARY = "GITHUB_STEP_SUMMARY"
COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
MOST = 10  # annotations of each kind that GitHub keeps of a step


def tell_github(
    report: Report,
    environ: Mapping[str, str],
    verdict: Verdict | None = None,
    comparison: Comparison | None = None,
) -> list[str]:
    """Appends the Markdown to the step's summary, where there is one, and gives the annotations to print."""
    if not environ.get(SUMMARY):
        return []
    report = report.as_read()
    failed = _appended(step_summary(report, verdict, comparison), environ)
    return failed or workflow_commands(report, verdict)


def tell_github_of(comparison: Comparison, environ: Mapping[str, str]) -> list[str]:
    """Appends a comparison's own sentences to the step's summary, where there is one; a warning where it cannot be."""
    title = f"### {cell(comparison.old.name)} → {cell(comparison.new.name)}"
    told = f"{title}\n\n{compared(comparison, 'Verdict on the new side')}"
    return _appended(told, environ) if environ.get(SUMMARY) else []


def _appended(text: str, environ: Mapping[str, str]) -> list[str]:
    try:
        with Path(environ[SUMMARY]).open("a", encoding="utf-8", errors="replace", newline="\n") as summary:
            summary.write(f"{text}\n")
    except OSError as error:
        return [f"::warning::{_message(f'{SUMMARY}: cannot be written to ({error.strerror}).')}"]
    return []


def compared(comparison: Comparison, about: str) -> str:
    """The verdict of a comparison and the sentences behind it."""
    verdict = "void" if comparison.void else comparison.verdict
    return f"**{about}: {cell(verdict)}.** {' '.join(map(cell, comparison.headline))}"


def step_summary(report: Report, verdict: Verdict | None = None, comparison: Comparison | None = None) -> str:
    """The policy's verdict and the comparison's own sentences, if there are any, above the Markdown of the report."""
    against = [] if comparison is None else [compared(comparison, "Against the baseline"), ""]
    if verdict is None:
        return "\n".join([*against, render_markdown(report)])
    loud = [result for result in verdict.results if result.consequence != "pass"]
    said = [f"- {cell(result.id)} **{result.status}**: {cell(result.sentence)}" for result in loud]
    return "\n".join([f"**Policy {cell(verdict_line(verdict))}**", "", *said, "", *against, render_markdown(report)])


def workflow_commands(report: Report, verdict: Verdict | None = None) -> list[str]:
    """Workflow commands, loudest first and no more than GitHub keeps."""
    loud = loudest_first(statements(report, verdict))
    kept = [statement for kind in COMMANDS for statement in [each for each in loud if each.level == kind][:MOST]]
    return [_command(statement, report.model.path) for statement in kept]


def _command(statement: Statement, file: str) -> str:
    text = " ".join(filter(None, (statement.text, statement.advice)))
    return f"::{COMMANDS[statement.level]} file={_escaped(file)},title={_escaped(statement.title)}::{_message(text)}"


def _message(text: str) -> str:
    r"""Text of a workflow command: one line, and no command within it.

    >>> _message("90 %\n::error::x")
    '90 %25%0A::error::x'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped(text: str) -> str:
    """A property of a workflow command, in which colons and commas mean something too."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
