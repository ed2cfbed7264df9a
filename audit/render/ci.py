"""What continuous integration shows of an audit: JUnit XML, SARIF, summary and annotations of GitHub Actions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from audit.compare import Comparison
from audit.measures import Report
from audit.policy import Verdict, verdict_line
from audit.render.page import cell, render_markdown
from audit.render.sentences import Statement, file_name, loudest_first, statements, title
from audit.report.paths import value_at

# The report as JUnit XML, which every continuous integration shows as a list of tests.
#
# One test case per rule, warning, self-check, assumption and finding; `statements` says which of them can fail.


SUITES = {
    "rule": "policy",
    "warning": "warnings",
    "check": "self-checks",
    "assumption": "assumptions",
    "finding": "findings",
}
UNSAYABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped: control characters, halves of surrogate pairs."""


def render_junit(report: Report, verdict: Verdict | None = None) -> str:
    """The XML; the same report gives the same bytes."""
    said = statements(report, verdict)
    root = Element("testsuites", {"name": sayable(f"gen-audit: {title(report)}"), **_counts(said)})
    del root.attrib["skipped"]  # the schema allows it in a suite only
    for group, name in SUITES.items():
        if cases := [statement for statement in said if statement.group == group]:
            suite = SubElement(root, "testsuite", {"name": name, **_counts(cases), "timestamp": report.created})
            _add_properties(suite, report)
            for statement in cases:
                _add_case(suite, name, statement)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def sayable(text: str) -> str:
    r"""Text that XML can hold; what it cannot is shown by its code.

    >>> sayable("fc\x00\ud800"), sayable("fc — 1\n")
    ('fc\\x00\\ud800', 'fc — 1\n')
    """
    return UNSAYABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def _counts(said: list[Statement]) -> dict[str, str]:
    standings = [statement.standing for statement in said]
    failed, skipped = standings.count("failed"), standings.count("open")
    return {"tests": str(len(said)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}


def _add_properties(suite: Element, report: Report) -> None:
    properties = SubElement(suite, "properties")
    for name in ("model.path", "model.sha256", "data.path", "data.sha256"):
        SubElement(properties, "property", {"name": name, "value": sayable(value_at(name, report))})
    SubElement(properties, "property", {"name": "gen-audit", "value": sayable(report.tool.version)})


def _add_case(suite: Element, name: str, statement: Statement) -> None:
    label = statement.id if statement.group == "rule" else f"{statement.id}: {statement.title}"
    case = SubElement(suite, "testcase", {"name": sayable(label), "classname": f"gen-audit.{name}"})
    text = sayable(" ".join(filter(None, (statement.text, statement.advice))))
    if statement.standing == "passed":
        SubElement(case, "system-out").text = text
    elif statement.standing == "open":
        SubElement(case, "skipped", {"message": text, "type": statement.group})
    else:  # some readers show the message, others the body
        SubElement(case, "failure", {"message": text, "type": statement.group}).text = text


# The report as SARIF 2.1.0, which code hosts show as alerts on the model file.
#
# Only what calls for attention becomes a result; everything that was looked at is listed as a rule.


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "statementAndModel/v1"


def render_sarif(report: Report, verdict: Verdict | None = None) -> str:
    """The SARIF log; the same report gives the same bytes."""
    said = statements(report, verdict)
    rules = {statement.key: _rule(statement) for statement in reversed(said)}
    order = list(dict.fromkeys(statement.key for statement in said))
    model = uri(report.model.path)
    run = {
        "tool": {"driver": _driver(report, [rules[key] for key in order])},
        "automationDetails": {"id": f"gen-audit/{file_name(report.model.path)}/"},
        "invocations": [{"executionSuccessful": True, "commandLine": report.command, "endTimeUtc": report.created}],
        "artifacts": [
            {
                "location": {"uri": model},
                "roles": ["analysisTarget"],
                "hashes": {"sha-256": report.model.sha256},
            }
        ],
        "results": _results(said, order, model),
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def uri(path: str) -> str:
    r"""A path written on any system, as a URI reference.

    >>> uri("runs/my model.onnx"), uri("/srv/a.onnx"), uri("C:\\a.onnx"), uri("a:b.onnx")
    ('runs/my%20model.onnx', 'file:///srv/a.onnx', 'file:///C:/a.onnx', 'a%3Ab.onnx')
    """
    if re.match(r"[A-Za-z]:[\\/]", path):
        return f"file:///{path[0]}:{quote(path[2:].replace(chr(92), '/'))}"
    return f"{'file://' if path.startswith('/') else ''}{quote(path, errors='replace')}"


def _driver(report: Report, rules: list[dict[str, Any]]) -> dict[str, Any]:
    version = report.tool.version
    return {"name": "gen-audit", "version": version, "semanticVersion": version, "rules": rules}


def _rule(statement: Statement) -> dict[str, Any]:
    """What is looked at, in words that do not depend on what was found where there are such words."""
    name = "".join(word.capitalize() for word in re.split(r"[^A-Za-z0-9]+", f"{statement.group} {statement.id}"))
    help_text = " ".join(filter(None, (statement.text, statement.advice, _source(statement))))
    return {
        "id": statement.key,
        "name": name,
        "shortDescription": {"text": statement.title},
        "fullDescription": {"text": statement.text},
        "help": {"text": help_text},
        "properties": {"tags": ["generalization", statement.group]},
    }


def _source(statement: Statement) -> str:
    return f"Source: {statement.source}" if statement.source else ""


def _results(said: list[Statement], order: list[str], model: str) -> list[dict[str, Any]]:
    """The alerts, loudest first; of several that share rule and title, each is told by its place among them."""
    loud = loudest_first(said)
    names = [(statement.key, statement.title) for statement in loud]
    places = [names[:index].count(name) for index, name in enumerate(names)]
    keys = [order.index(statement.key) for statement in loud]
    return [_result(*each, model) for each in zip(loud, keys, places, strict=True)]


def _result(statement: Statement, index: int, place: int, model: str) -> dict[str, Any]:
    """An alert. Its fingerprint leaves the numbers out, so that the next version of the model continues it."""
    identity = f"{statement.key}\0{statement.title}\0{place}\0{model}"
    message = f"{statement.title}: {statement.text}" if statement.group != "rule" else statement.text
    where = {"artifactLocation": {"uri": model, "index": 0}, "region": {"startLine": 1}}  # hosts want a line
    return {
        "ruleId": statement.key,
        "ruleIndex": index,
        "level": statement.level,
        "message": {"text": " ".join(filter(None, (message, statement.advice)))},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {FINGERPRINT: hashlib.sha256(identity.encode(errors="replace")).hexdigest()},
    }


# What GitHub Actions shows of an audit: the summary of the step, and annotations on the run.


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
