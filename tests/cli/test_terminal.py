"""The few lines that an audit says on the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from places import SUPPORT

from audit.cli.terminal import _against, summary
from audit.compare.comparable import Named
from audit.compare.compare import compare_reports
from audit.measures.report import Report


def example(name: str) -> Report:
    path = SUPPORT / f"{name}_report.json"
    return Report.from_json(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        (["gemm", "linear"], "2 dense layers measured"),
        (["conv", "conv", "gemm", "conv1x1"], "2 dense layers and 2 convolutions measured"),
        (["conv"], "1 convolution measured"),
    ],
)
def test_convolutions_are_counted_apart_from_dense_layers(ops: list[str], words: str) -> None:
    report = example("example")
    layers = [replace(report.layers[0], op=op) for op in ops]
    assert f" parameters, {words}, " in summary(replace(report, layers=layers))[0]


def test_a_regression_says_what_its_loss_is() -> None:
    regression, classification = "\n".join(summary(example("regression"))), "\n".join(summary(example("example")))
    said = "; the loss is half the squared error, summed over outputs\nRMSE   train "
    assert said in regression and "squared" not in classification


def test_a_verdict_against_a_baseline_is_printed_with_its_reasons() -> None:
    report = example("example")
    same = compare_reports(Named("old.json", report), Named("new.json", report), "")
    first, *reasons = _against(same)
    assert first == f"against the baseline: {same.verdict}" and [line.strip() for line in reasons] == same.headline
    assert _against(None) == []


def test_a_prompt_shows_a_report_in_two_lines() -> None:
    report = example("example")
    few = replace(report, findings=[replace(report.findings[0], level=level) for level in ("concern", "watch", "good")])
    assert repr(few).splitlines() == [
        "Report(model='samples/healthy.onnx', data='samples/mnist')",
        f"loss {report.gap.train_loss:.4g} on train, {report.gap.test_loss:.4g} on test; "
        "3 findings, 1 of concern, 1 to watch",
    ]
