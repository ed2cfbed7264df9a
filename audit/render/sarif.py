"""The report as SARIF 2.1.0, which code hosts show as alerts on the model file.

Only what calls for attention becomes a result; everything that was looked at is listed as a rule.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from audit.measures.report import Report
from audit.render.sentences import file_name
from audit.render.statements import Statement, loudest_first, statements

if TYPE_CHECKING:  # a policy compares, which takes numpy
    from audit.policy import Verdict

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
