"""The plan as whoever waits meets it: printed before the work, and followed by a later audit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from formats import QUICK, data_of, example_of, trained, write_onnx
from tolerances import ROUNDING

from audit.cli.app import app
from audit.errors import UsageError
from audit.measures import Report
from audit.render.page import render_html
from audit.report.conduct import EXACT

FLAGS = [part for key, value in QUICK.items() for part in (f"--{key.replace('_', '-')}", str(value))]
SAMPLED = ("--budget", "0.000001s")
Asked = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.onnx and data/."""
    path = tmp_path_factory.mktemp("plan")
    data_of("relu").save(path / "data")
    write_onnx(trained("relu"), example_of("relu"), path / "model.onnx", opset=13)
    return path


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    """What a command prints on standard output."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")

    def ask(*arguments: str) -> str:
        app(list(arguments), standalone_mode=False)
        return capsys.readouterr().out

    return ask


def audited(asked: Asked, out: str, *flags: str) -> Report:
    asked("report", "model.onnx", "data", "-o", out, "-f", "json", "-q", *FLAGS, *flags)
    return Report.from_json(Path(out, "report.json").read_text())


@pytest.mark.parametrize("command", ["report", "check"])
def test_a_dry_run_prints_the_plan_and_writes_nothing(asked: Asked, command: str) -> None:
    before = sorted(Path().iterdir())
    lines = asked(command, "model.onnx", "data", "--dry-run", *FLAGS, *SAMPLED).splitlines()
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert {"forward", "flatness", "duality", "fisher", "sensitivity", "checks"} <= set(rows)
    assert "sampled" in rows["flatness"] and "64 of 110" in rows["flatness"] and "--budget" in rows["flatness"]
    assert rows["about"].endswith("a budget of 1 s. Nothing was measured.")
    assert "  under 1 s  " in rows["fisher"]  # as many of about one second would not add up
    assert lines[-1] == "The budget cannot be kept: what is planned should take longer."
    assert sorted(Path().iterdir()) == before


def test_a_dry_run_says_what_twins_may_take_and_that_a_budget_is_kept_by_saying_nothing(asked: Asked) -> None:
    lines = asked("report", "model.onnx", "data", "--dry-run", *FLAGS, "--budget", "10m", "--twins", "2m").splitlines()
    assert lines[-2].endswith("a budget of 10 min. Nothing was measured.")
    assert lines[-1] == "Making the twins comes before that, with up to 2 min."
    with pytest.raises(UsageError, match="--twins: 'soon' is no folder of twins, nor an amount of time"):
        asked("report", "model.onnx", "data", "--dry-run", *FLAGS, "--twins", "soon")


def test_the_plan_that_a_dry_run_prints_is_the_one_that_is_followed(asked: Asked) -> None:
    plan = json.loads(asked("report", "model.onnx", "data", "--dry-run", "--json", *FLAGS, *SAMPLED))
    followed = audited(asked, "as-planned", *SAMPLED).plan
    assert [_how(stage) for stage in plan["stages"]] == [_how(asdict(stage)) for stage in followed.stages]


def _how(stage: dict[str, Any]) -> tuple[Any, ...]:
    """A stage but for its predicted time, which is of the moment."""
    return stage["name"], stage["form"], stage["samples"], stage["columns"]


def test_a_later_audit_follows_the_plan_it_is_given_or_that_of_its_baseline(asked: Asked) -> None:
    first = audited(asked, "first", *SAMPLED)
    assert not first.plan.is_exact("flatness")
    again = audited(asked, "again", "--plan", "first/report.json")
    assert (again.plan, again.layers, again.network) == (first.plan, first.layers, first.network)
    assert audited(asked, "beside", "--baseline", "first/report.json").plan == first.plan
    assert audited(asked, "own", "--baseline", "first/report.json", "--budget", "none").plan.is_exact("flatness")
    assert asked("verify", "first/report.json", "model.onnx", "data", "-q").endswith("reproduced\n")


def test_a_budget_that_is_none_is_refused_before_any_work(asked: Asked) -> None:
    with pytest.raises(
        UsageError, match="--budget: 'soon' is not an amount of time; write it like 90s, 5m, 1h or none"
    ):
        asked("report", "model.onnx", "data", "--budget", "soon")


def test_a_plan_has_its_own_budget(asked: Asked) -> None:
    audited(asked, "planned")
    with pytest.raises(UsageError, match="--plan: a plan has its own budget; leave --budget out, or --plan"):
        asked("report", "model.onnx", "data", "--plan", "planned/report.json", *SAMPLED)
    with pytest.raises(UsageError, match="--dry-run: the report is finished; give a model and data to audit anew"):
        asked("check", "planned/report.json", "--dry-run")


def test_a_baseline_that_cannot_be_compared_with_is_refused_before_anything_is_measured(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    first = audited(asked, "first")
    test = replace(first.outcomes.test, sha256="0" * 64)
    other = replace(first, data=replace(first.data, sha256="0" * 64), outcomes=replace(first.outcomes, test=test))
    Path("other.json").write_text(other.to_json())
    before, flags = sorted(Path().iterdir()), ("-f", "json", "--baseline", "other.json", *FLAGS)
    sentence = r"other\.json and model\.onnx: were judged on different test samples, so no difference between them"
    with pytest.raises(UsageError, match=sentence):
        asked("report", "model.onnx", "data", "-o", "refused", *flags)
    told = capsys.readouterr().err
    assert "forward: exact" in told and "gap: " not in told and "--resume" not in told
    assert sorted(Path().iterdir()) == before
    held = asked("check", "model.onnx", "data", "-o", "held", *flags)  # whose verdict says that it is not comparable
    assert held and Path("held/report.json").exists()


def test_two_models_are_measured_by_one_plan_and_not_paired_where_it_samples(asked: Asked) -> None:
    Path("copy.onnx").write_bytes(Path("model.onnx").read_bytes())
    flags = ("-o", "comparison", "-f", "json", "--json", *FLAGS, *SAMPLED)
    found = json.loads(asked("compare", "model.onnx", "copy.onnx", "data", *flags))
    numbers = {number["key"]: number for number in found["numbers"]}
    assert numbers["network.flatness.trace_sum"]["difference"] == 0.0
    assert not numbers["network.flatness.trace_sum"]["paired"] and numbers["gap.test_loss"]["paired"]


def test_a_quick_audit_measures_the_head_layer_and_says_what_it_left_out(asked: Asked) -> None:
    asked("report", "model.onnx", "data", "-o", "quick", "-f", "json,html,md", "-q", *FLAGS, "--quick")
    quick = Report.from_json(Path("quick/report.json").read_text())
    whole = audited(asked, "whole")
    assert (quick.gap, quick.calibration, quick.hygiene) == (whole.gap, whole.calibration, whole.hygiene)
    assert [layer.name for layer in quick.layers] == [whole.layers[-1].name]
    duality, of_all = quick.layers[0].duality, whole.layers[-1].duality
    assert replace(duality, ci95=None) == replace(of_all, ci95=None)
    for name, ends in asdict(duality.ci95).items():  # which all layers' are drawn together, in sums of another order
        assert ends == pytest.approx(getattr(of_all.ci95, name), rel=ROUNDING)
    assert quick.layers[0].flatness == whole.layers[-1].flatness
    assert [layer.why for layer in quick.passed_by] == ["Left out by --quick."] * 2
    assert quick.network.sensitivity is None and quick.network.fisher.skipped == "Left out by --quick."
    assert {"hessian-probe", "rescaling-layers", "determinism"}.isdisjoint(check.id for check in quick.checks)
    left_out = [entry.what for entry in quick.not_judged if entry.why == "Left out by --quick."]
    assert left_out[:3] == ["What small changes do", "Fisher information", "Sensitivity and volume"]
    assert not {"sensitive-inputs", "volume", "pac-bayes"} & {finding.id for finding in quick.findings}
    assert Path("quick/report.html").read_text().count("Left out by --quick.") >= 3
    compared = json.loads(asked("compare", "quick/report.json", "whole/report.json", "--json", "-f", "json"))
    reasons = {number["key"]: number["skipped"] for number in compared["numbers"]}
    assert reasons["gap.test_loss"] is None
    assert reasons["network.flatness.trace_sum"].startswith(
        "not compared: one of the two reports was made with --quick"
    )
    followed = audited(asked, "followed", "--plan", "quick/report.json")
    assert (followed.layers, followed.network) == (quick.layers, quick.network)


def test_the_page_shows_plan_and_fact(asked: Asked) -> None:
    asked("report", "model.onnx", "data", "-o", "drawn", "-f", "html,md,json", "-q", *FLAGS, *SAMPLED)
    page = " ".join(re.sub(r"<[^>]+>", " ", Path("drawn/report.html").read_text()).split())
    assert "What was measured how, and how long it took" in page
    assert re.search(r"Flatness sampled 64 of 110 [\d.]+ s [\d.]+ s All samples would take about 1 s", page)
    assert re.search(r"All of these – – [\d.]+ s [\d.]+ s –", page)
    assert page.count("Sampled on 64 of 110 train samples, from up to 512 columns of each layer's Hessian") == 1
    words = Path("drawn/report.md").read_text()
    assert "**Measured how:** " in words and "Flatness sampled on 64 of 110" in words
    report = Report.from_json(Path("drawn/report.json").read_text())
    assert "What was measured how" not in render_html(replace(report, plan=EXACT), paper=False)
