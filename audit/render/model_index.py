"""The results as the `model-index` of a Hugging Face model card: YAML for the head of its README.md."""

from __future__ import annotations

import json
import re

from audit.measures.report import Report
from audit.render.sentences import file_name
from audit.render.statements import Metric, metrics
from audit.report.numbers import interval

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
            lines += _metric(metric)
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


def _metric(metric: Metric) -> list[str]:
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
