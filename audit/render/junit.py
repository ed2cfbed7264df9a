"""The report as JUnit XML, which every continuous integration shows as a list of tests.

One test case per rule, warning, self-check, assumption and finding; `statements` says which of them can fail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from audit.measures.report import Report
from audit.render.sentences import title
from audit.render.statements import Statement, statements
from audit.report.paths import value_at

if TYPE_CHECKING:  # a policy compares, which takes numpy
    from audit.policy import Verdict

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
    outcomes = [statement.outcome for statement in said]
    failed, skipped = outcomes.count("failed"), outcomes.count("open")
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
    if statement.outcome == "passed":
        SubElement(case, "system-out").text = text
    elif statement.outcome == "open":
        SubElement(case, "skipped", {"message": text, "type": statement.group})
    else:  # some readers show the message, others the body
        SubElement(case, "failure", {"message": text, "type": statement.group}).text = text
