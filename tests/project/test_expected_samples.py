"""The bundled networks give the numbers that are written down for them."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from places import SAMPLES
from tolerances import ROUNDING

from audit.measures import Report
from audit.report.numbers import reproduction

spec = importlib.util.spec_from_file_location("expect", SAMPLES / "expect.py")
expect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(expect)
CASES = pytest.mark.parametrize("name", expect.CASES)


def expected(name: str) -> dict[str, Any]:
    return json.loads((SAMPLES / "expected" / f"{name}.json").read_text(encoding="utf-8"))


def judged(report: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(finding["id"], finding["level"], finding["first_page"]) for finding in report["findings"]]


@pytest.mark.slow
@CASES
def test_audit_gives_what_is_expected(name):
    now = expect.trimmed(expect.audited(name))
    found = reproduction(expected(name), now)
    assert found.compared > 1000
    assert [f"{one.path}: {one.before} became {one.now}" for one in found.differences] == []
    assert judged(now) == judged(expected(name))


@CASES
def test_expected_values_are_those_of_the_files_here(name):
    import hashlib

    values = expected(name)
    assert values["model"]["sha256"] == hashlib.sha256((SAMPLES / f"{name}.onnx").read_bytes()).hexdigest()
    assert values["data"]["train"]["samples"] == 4000 and values["data"]["test"]["samples"] == 1000
    gap = values["gap"]
    assert gap["loss_gap"] == pytest.approx(gap["test_loss"] - gap["train_loss"], rel=ROUNDING)
    assert set(values) <= set(Report.__dataclass_fields__)


def test_every_network_has_its_expected_values_and_nothing_else_does():
    files = {path.stem for path in (SAMPLES / "expected").glob("*.json")}
    assert files == set(expect.CASES) == {path.stem for path in SAMPLES.glob("*.onnx")}


def test_wrong_labels_are_the_first_finding_where_there_are_some_and_only_there():
    first = {name: judged(expected(name))[0][0] for name in expect.CASES}
    assert first["mislabelled"] == "mislabelled"
    assert all("mislabelled" not in {id for id, _, _ in judged(expected(name))} for name in ("healthy", "large-batch"))
