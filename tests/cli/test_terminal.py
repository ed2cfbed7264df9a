"""The few lines that an audit says on the terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT, SUPPORT

from audit.cli.terminal import _against, has_colours, in_colour, say, summary
from audit.cli.verify import _lines
from audit.compare import Named
from audit.compare.compare import compare_reports
from audit.findings.bottom_line import BELOW
from audit.measures import Report
from audit.report.numbers import Difference, Reproduction


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


def test_a_long_advice_is_said_where_no_finding_shows_it() -> None:
    report = example("example")
    assert report.bottom_line is not None and report.bottom_line.advice.endswith(BELOW)
    heavy = report.findings[0]
    said = summary(report)
    assert f"what to do next: {heavy.title}. {heavy.advice}" in said
    assert not any(BELOW in line for line in said)


def test_one_value_differs_and_two_values_differ() -> None:
    other = Difference("gap.test_loss", 1.0, 2.0, 1e-9)
    told = [_lines(Reproduction(3, 1, None, (other,) * count))[-1] for count in (0, 1, 2)]
    assert told == ["reproduced", "not reproduced: 1 value differs", "not reproduced: 2 values differ"]


def test_a_regression_says_what_its_loss_is() -> None:
    regression, classification = "\n".join(summary(example("regression"))), "\n".join(summary(example("example")))
    said = "; the loss is half the squared error, summed over outputs\nRMSE   train "
    assert said in regression and "squared" not in classification


def test_the_bottom_line_stands_before_the_numbers() -> None:
    report = example("example")
    assert report.bottom_line is not None
    lines = summary(report)
    place = lines.index(f"bottom line: watch. {report.bottom_line.sentence}")
    assert lines[place + 1].startswith(f"what to do next: {report.findings[0].title}. ")
    assert place < next(index for index, line in enumerate(lines) if line.startswith("loss "))
    assert not any("bottom line" in line for line in summary(replace(report, bottom_line=None)))


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_levels_are_coloured_only_where_a_terminal_shows_it_and_nobody_objects(
    environ: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert has_colours(Terminal(), os.environ) is coloured and not has_colours(io.StringIO(), os.environ)
    monkeypatch.setattr("sys.stdout", out := Terminal())
    say("concern A name with \x1b[2J in it", marked=True)
    shown = "\x1b[31mconcern\x1b[0m" if coloured else "concern"
    assert out.getvalue() == f"{shown} A name with \\u001b[2J in it\n"


def test_only_the_levels_words_are_coloured() -> None:
    plain = ["loss   train 0.1, test 0.2", "good-name.onnx: classification", "/out/failed/report.html"]
    assert [in_colour(line) for line in plain[:1] + plain[2:]] == plain[:1] + plain[2:]
    assert in_colour("failed: 1 of 3 rules").startswith("\x1b[31mfailed\x1b[0m:")


MISSING = {
    ("report", "no.onnx", "."): "no.onnx: there is no such file; check the path of the model.",
    ("report", "here.onnx", "nowhere"): (
        "nowhere: there is no such folder; give the folder that holds the train and test data."
    ),
    ("check", "no.onnx", "."): "no.onnx: there is no such file; check the path of the model.",
    ("compare", "no.onnx", "here.onnx", "."): "no.onnx: there is no such file; check the path of the model.",
    ("layers", "no.onnx"): "no.onnx: there is no such file; check the path of the model.",
}


@pytest.mark.parametrize("asked", MISSING, ids=" ".join)
def test_a_missing_file_is_reported_before_anything_heavy_is_woken(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "here.onnx").write_bytes(b"")
    script = (
        "import sys, time\nsys.argv[0] = 'gen-audit'\nfrom audit.cli import main\ntry:\n    main()\nfinally:\n"
        "    heavy = {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "    print(sorted(heavy), time.process_time() < 0.5)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *asked]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"gen-audit: {MISSING[asked]}\n")
    assert done.stdout == "[] True\n"
