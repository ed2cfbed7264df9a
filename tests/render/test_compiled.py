"""Compiled templates are remembered between runs, and nothing depends on it."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from jinja2 import DictLoader, Environment

from audit.render import page as compiled


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def drawn(source: str) -> str:
    env = Environment(loader=DictLoader({"page": source}), bytecode_cache=compiled.compiled_templates())
    return env.get_template("page").render(name="fc1")


def test_a_template_is_compiled_once_and_anew_when_it_changes(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn("layer {{ name }}") == "layer fc1"
    kept = list(temporary.rglob("gen-audit-*.cache"))
    assert len(kept) == 1
    compile_again = Mock(wraps=Environment.compile)
    monkeypatch.setattr(Environment, "compile", lambda env, *args: compile_again(env, *args))
    assert drawn("layer {{ name }}") == "layer fc1"
    assert not compile_again.called
    assert drawn("dense layer {{ name }}") == "dense layer fc1"
    assert compile_again.called


def test_a_damaged_file_is_compiled_anew(temporary: Path) -> None:
    drawn("layer {{ name }}")
    kept = next(temporary.rglob("gen-audit-*.cache"))
    kept.write_bytes(kept.read_bytes()[:-20])
    assert drawn("layer {{ name }}") == "layer fc1"


def test_a_full_disk_stops_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jinja2.bccache.tempfile.NamedTemporaryFile", full)
    assert drawn("layer {{ name }}") == "layer fc1"
    assert not list(temporary.rglob("*.cache"))


def test_a_folder_that_leads_elsewhere_is_not_used(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (temporary / f"_jinja2-cache-{os.getuid()}").symlink_to(elsewhere)
    assert compiled.compiled_templates() is None
    assert drawn("layer {{ name }}") == "layer fc1"
    assert not list(elsewhere.iterdir())
