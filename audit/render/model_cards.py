"""The report for registries of models: a CycloneDX bill of materials, a Hugging Face `model-index`."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from audit.measures import Report
from audit.render.sentences import Metric, file_name, loudest_first, metrics, statements, used
from audit.report import DataReport

if TYPE_CHECKING:  # a policy compares, which takes numpy
    from audit.policy import Verdict
import re

from audit.report.numbers import interval

# The report as a CycloneDX 1.6 bill of materials: the model with its measured performance, and its data.


SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
Block = dict[str, Any]


def render_cyclonedx(report: Report, verdict: Verdict | None = None) -> str:
    """The bill of materials; the same report gives the same bytes."""
    model, data = _model(report, verdict), _data(report.data)
    tool = {"type": "application", "name": "gen-audit", "version": report.tool.version}
    identity = json.dumps([model, data, tool], sort_keys=True)
    bill = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, identity).urn,
        "version": 1,
        "metadata": {"timestamp": report.created, "tools": {"components": [tool]}},
        "components": [model, data],
        "dependencies": [{"ref": model["bom-ref"], "dependsOn": [data["bom-ref"]]}, {"ref": data["bom-ref"]}],
    }
    return json.dumps(bill, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _model(report: Report, verdict: Verdict | None) -> Block:
    model = report.model
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{model.sha256}",
        "name": file_name(model.path),
        "hashes": [{"alg": "SHA-256", "content": model.sha256}],
        "modelCard": {
            "modelParameters": _parameters(report),
            "quantitativeAnalysis": {"performanceMetrics": [_metric(metric) for metric in metrics(report)]},
            "considerations": {"technicalLimitations": _limitations(report)},
        },
        "properties": _properties(report, verdict),
    }


def _parameters(report: Report) -> Block:
    model = report.model
    taken = f"{model.input.dtype} {model.input.shape}"
    return {
        "approach": {"type": "supervised"},
        "task": model.task,
        "datasets": [{"ref": f"data:{report.data.sha256}"}],
        "inputs": [{"format": taken}],
        "outputs": [{"format": f"{model.output} [{model.outputs}]"}],
    }


def _metric(metric: Metric) -> Block:
    """CycloneDX writes numbers as text."""
    words = {"test": "test split", "train": "train split", "gap": "test split minus train split"}
    block: Block = {"type": metric.name, "value": repr(metric.value), "slice": words.get(metric.slice, metric.slice)}
    if metric.interval is not None:
        low, high = metric.interval
        block["confidenceInterval"] = {"lowerBound": repr(low), "upperBound": repr(high)}
    return block


def _limitations(report: Report) -> list[str]:
    """What speaks against relying on the model, whatever a policy makes of it."""
    said = [f"{each.title}: {each.text}" for each in loudest_first(statements(report))]
    unknown = [f"Not judged: {each.what} {each.why}" for each in report.not_judged]
    shared = "Intervals cover the chance in drawing these samples; data from elsewhere or from later can differ."
    return [*said, *unknown, shared]


def _properties(report: Report, verdict: Verdict | None) -> list[dict[str, str]]:
    model, checks = report.model, [check.status for check in report.checks if check.kind == "check"]
    named = {
        "report-schema": report.schema,
        "model.format": model.format,
        "model.parameters": str(model.parameters),
        "model.opset": str(model.opset) if model.opset is not None else None,
        "model.loss": model.loss,
        "interval-level": "0.95",
        "self-checks.passed": str(checks.count("passed")),
        "self-checks.failed": str(checks.count("failed")),
        "verdict": None if verdict is None else "passed" if verdict.passed else "failed",
    }
    return [{"name": f"gen-audit:{name}", "value": value} for name, value in named.items() if value is not None]


def _data(data: DataReport) -> Block:
    held = f"{used(data.train)} train and {used(data.test)} test samples"
    content = {"type": "dataset", "name": file_name(data.path), "description": held}
    return {
        "type": "data",
        "bom-ref": f"data:{data.sha256}",
        "name": file_name(data.path),
        "hashes": [{"alg": "SHA-256", "content": data.sha256}],
        "data": [content],
    }


# The results as the `model-index` of a Hugging Face model card: YAML for the head of its README.md.


KINDS = {"r2": "r_squared"}  # the hub's word, where it differs
UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Beyond what JSON escapes: characters that YAML folds or cannot hold."""


def render_model_index(report: Report) -> str:
    """The YAML; the same report gives the same bytes."""
    data = report.data
    lines = [
        "model-index:",
        f"- name: {quoted(file_name(report.model.path))}",
        "  results:",
        "  - task:",
        f"      type: {quoted(_task(report))}",
        "    dataset:",
        f"      name: {quoted(file_name(data.path))}",
        f"      type: {quoted(_slug(file_name(data.path)))}",
        "      split: test",
        "    metrics:",
    ]
    for metric in metrics(report):
        if metric.slice == "test":
            lines += _metric_lines(metric)
    return "\n".join([*lines, ""])


def quoted(text: str) -> str:
    r"""A double-quoted scalar that reads back as the same text, whatever is in it.

    >>> print(quoted('no: "x"\n- #y\x85'))
    "no: \"x\"\n- #y\u0085"
    """
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def number(value: float) -> str:
    """A float that YAML 1.1 reads as one: it wants a point before the exponent.

    >>> number(0.072), number(1e-07), number(3.0)
    ('0.072', '1.0e-07', '3.0')
    """
    mantissa, e, exponent = repr(float(value)).partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}{e}{exponent}"


def _metric_lines(metric: Metric) -> list[str]:
    name = f"test {metric.name}"
    if metric.interval is not None:
        name += f", 95 % interval {interval(metric.interval)}"
    return [
        f"    - type: {KINDS.get(metric.kind, metric.kind)}",
        f"      name: {quoted(name)}",
        f"      value: {number(metric.value)}",
    ]


def _task(report: Report) -> str:
    """The hub's word for the task, where the layout of the data says what kind of data it is."""
    if report.model.task == "tagging":
        return "token-classification"
    task = "regression" if report.model.task == "regression" else "classification"
    if report.data.layout in ("images", "image-parquet", "idx", "cifar") and task == "classification":
        return "image-classification"
    return f"tabular-{task}" if report.data.layout in ("csv", "tsv", "parquet") else task


def _slug(name: str) -> str:
    """A name as the hub's data sets have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "data"
