"""Where a setting comes from: flag, variable, gen-audit.toml, pyproject.toml, default."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from audit.config import config_files, read_document
from audit.errors import UsageError
from audit.settings import Settings, from_report, read_config, resolve_with_origins


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a project, a configuration and a data folder that has one of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.gen-audit]\nseed = 1\nsubsets = 1\nsamples = 1\nbootstrap = 11\n")
    (tmp_path / "gen-audit.toml").write_text("seed = 2\nsubsets = 2\nsamples = 2\n")
    (tmp_path / "data" / "gen-audit.toml").write_text(
        "[data]\nseed = 3\nsubsets = 3\n[policy.gap.test_error]\nmax = 1\n"
    )
    return tmp_path


def test_the_strongest_place_that_names_a_setting_wins(project: Path) -> None:
    files = config_files(data=Path("data"))
    settings, origins = resolve_with_origins({"seed": "4", "task": None}, files, {"GEN_AUDIT_SUBSETS": "44"})
    names = ("seed", "subsets", "samples", "bootstrap", "task")
    assert {name: (getattr(settings, name), origins[name]) for name in names} == {
        "seed": (4, "--seed"),
        "subsets": (44, "GEN_AUDIT_SUBSETS"),
        "samples": (2, "gen-audit.toml"),
        "bootstrap": (11, "pyproject.toml"),
        "task": ("auto", "default"),
    }
    settings, origins = resolve_with_origins({}, files, {})
    assert (settings.seed, origins["seed"]) == (3, "data/gen-audit.toml")


def test_a_named_file_replaces_those_found_but_for_the_project(project: Path) -> None:
    named = project / "mine.toml"
    named.write_text("seed = 5\n")
    assert config_files(named, Path("data")) == (named, Path("pyproject.toml"))
    assert config_files() == (Path("gen-audit.toml"), Path("pyproject.toml"))


def test_the_policy_is_no_setting_and_other_tables_of_the_project_are_none_of_ours(project: Path) -> None:
    assert read_config(Path("data/gen-audit.toml")) == {"seed": 3, "subsets": 3}
    Path("pyproject.toml").write_text('[project]\nname = "x"\n[tool.ruff]\nline-length = 3\n')
    assert read_document(Path("pyproject.toml")) == {}
    Path("pyproject.toml").write_text("[tool]\ngen-audit = 3\n")
    with pytest.raises(
        UsageError, match=r"^pyproject.toml: tool.gen-audit is 3, not a table; write \[tool.gen-audit\]\.$"
    ):
        read_config(Path("pyproject.toml"))
    Path("pyproject.toml").write_text("tool = 3\n")
    with pytest.raises(UsageError, match=r"^pyproject.toml: tool is 3, not a table; write \[tool.gen-audit\]\.$"):
        read_config(Path("pyproject.toml"))
    Path("gen-audit.toml").write_text(f"seed = {'9' * 5000}\n")
    with pytest.raises(UsageError, match=r"^gen-audit.toml: cannot be read as TOML"):
        read_document(Path("gen-audit.toml"))


def test_settings_come_back_from_a_report() -> None:
    settings = Settings(mean=(0.5, 0.1), classes=("a", "b"), seed=3, samples=0)
    as_read = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(settings).items()}
    assert from_report(as_read, "report.json") == settings
    as_read.pop("mean")
    assert from_report(as_read, "report.json") == replace(settings, mean=None)
    with pytest.raises(UsageError, match=r"^report.json: there is no setting 'sede'; the nearest one is 'seed'\.$"):
        from_report({"sede": 3}, "report.json")


def test_every_setting_has_an_origin() -> None:
    assert set(resolve_with_origins({}, None, {})[1]) == {knob.name for knob in fields(Settings)}
