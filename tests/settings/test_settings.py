"""Every setting has one type and one name, and comes from flag, variable, gen-audit.toml, pyproject.toml, default."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.errors import UsageError
from audit.settings import KINDS, Settings, from_report
from audit.settings.config import ConfigFile, config_files, read_config, read_document, resolve, resolve_with_origins


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text("seed = 1\nsamples = 11\nbootstrap = 111\n")
    environ = {"GEN_AUDIT_SEED": "2", "GEN_AUDIT_SAMPLES": "22", "HOME": "elsewhere"}
    settings = resolve({"seed": "3", "task": None}, [ConfigFile(config)], environ)
    assert (settings.seed, settings.samples, settings.bootstrap, settings.task) == (3, 22, 111, "auto")


def test_tables_only_group_and_dashes_are_underscores(tmp_path: Path) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text('[data]\nmean = [0.1, 0.2, 0.3]\nstd = 0.5\ntest-fraction = 0.2\nclasses = ["cat", "dog"]\n')
    settings = resolve({}, [ConfigFile(config)], {})
    assert settings.mean == (0.1, 0.2, 0.3)
    assert settings.std == (0.5,)
    assert settings.test_fraction == 0.2
    assert settings.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sede = 1", "there is no setting 'sede'; the nearest one is 'seed'."),
        ("seed = 'many'", "'many' is not a whole number (seed of every random choice)."),
        ("task = 'guess'", "'guess' is not one of auto, classification, binary, regression, tagging."),
        ("seed = true", "True is not a whole number (seed of every random choice)."),
        ("mean = [true, 0.5]", "[True, 0.5] is not a number, or several separated by commas"),
        ("label = false", "False is not text"),
        ("policy = 'mine.toml'", "there is no setting 'policy'"),
        ("trust_pickle = 'maybe'", "'maybe' is not true or false"),
        ("seed = ", "cannot be read as TOML"),
    ],
)
def test_nonsense_in_the_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text(text)
    with pytest.raises(UsageError) as caught:
        resolve({}, [ConfigFile(config)], {})
    assert str(caught.value).startswith(str(config))
    assert sentence in str(caught.value)


def test_nonsense_in_flags_and_environment_is_named() -> None:
    with pytest.raises(UsageError, match=r"^--seed: 'x' is not a whole number"):
        resolve({"seed": "x"}, (), {})
    with pytest.raises(
        UsageError, match=r"^GEN_AUDIT_SEEED: there is no setting 'seeed'; the nearest one is 'seed'\.$"
    ):
        resolve({}, (), {"GEN_AUDIT_SEEED": "1"})


def test_every_setting_says_what_it_means() -> None:
    assert all(setting.metadata["meaning"] for setting in fields(Settings))


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("seed", "3", 3),
        ("seed", 3.0, 3),
        ("samples", np.int64(3), 3),
        ("samples", None, None),
        ("conv", "Yes", True),
        ("conv", "0", False),
        ("label", 3, "3"),
        ("classes", [1, 2], ("1", "2")),
        ("classes", "cat, dog", ("cat", "dog")),
        ("mean", np.array([0.5, 0.25]), (0.5, 0.25)),
        ("std", 0.5, (0.5,)),
        ("input-shape", "3,32,32", (3, 32, 32)),
        ("delta", "1e-3", 0.001),
    ],
)
def test_a_value_takes_the_type_of_its_setting(name: str, value: Any, taken: Any) -> None:
    found = getattr(from_report({name: value}, "here"), name.replace("-", "_"))
    assert (type(found), found) == (type(taken), taken)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("seed", None, "None is not a whole number (seed of every random choice)."),
        ("seed", 2.5, "2.5 is not a whole number (seed of every random choice)."),
        ("seed", -1, "-1 is out of range; seed goes from 0 to 2.14748e+09."),
        ("delta", "nan", "'nan' is out of range; delta goes from 1e-12 to 1."),
        ("test-fraction", "1", "'1' is out of range; test_fraction goes from 0.01 to 0.99."),
        (
            "std",
            "1;2",
            "'1;2' is not a number, or several separated by commas (divide by this after subtracting the mean).",
        ),
        (
            "resize",
            [1.5],
            "[1.5] is not a whole number, or several separated by commas (height and width that images are "
            "resized to).",
        ),
        ("output", True, "True is not text (name of the output to audit, where the model has several)."),
        (
            "conv",
            3,
            "3 is not true or false (decompose convolutions too, approximately (least-squares dual over patches)).",
        ),
        ("device", "tpu", "'tpu' is not one of auto, cpu, cuda."),
    ],
)
def test_a_value_of_another_type_or_size_is_named(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_report({name: value}, "here")
    assert str(caught.value) == f"here: {sentence}"


def test_every_default_is_of_its_own_type() -> None:
    assert from_report(asdict(Settings()), "here") == Settings()
    assert {kind.plain for kind in KINDS.values()} == {bool, int, float, str}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a project, a configuration and a data folder that has one of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.gen-audit]\nseed = 1\nsubsets = 1\nsamples = 1\nbootstrap = 11\n")
    (tmp_path / "gen-audit.toml").write_text("seed = 2\nsubsets = 2\nsamples = 2\n")
    (tmp_path / "data" / "gen-audit.toml").write_text("[data]\nseed = 3\n[policy.gap.test_error]\nmax = 1\n")
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
    project_file = ConfigFile(Path("pyproject.toml"), "working")
    assert config_files(named, Path("data")) == (ConfigFile(named), project_file)
    assert config_files() == (ConfigFile(Path("gen-audit.toml"), "working"), project_file)


def test_the_policy_is_no_setting_and_other_tables_of_the_project_are_none_of_ours(project: Path) -> None:
    assert read_config(ConfigFile(Path("data/gen-audit.toml"), "data")) == {"seed": 3}
    Path("pyproject.toml").write_text('[project]\nname = "x"\n[tool.ruff]\nline-length = 3\n')
    assert read_document(Path("pyproject.toml")) == {}
    Path("pyproject.toml").write_text("[tool]\ngen-audit = 3\n")
    with pytest.raises(
        UsageError, match=r"^pyproject.toml: tool.gen-audit is 3, not a table; write \[tool.gen-audit\]\.$"
    ):
        read_config(ConfigFile(Path("pyproject.toml"), "working"))
    Path("pyproject.toml").write_text("tool = 3\n")
    with pytest.raises(UsageError, match=r"^pyproject.toml: tool is 3, not a table; write \[tool.gen-audit\]\.$"):
        read_config(ConfigFile(Path("pyproject.toml"), "working"))
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
    assert set(resolve_with_origins({}, (), {})[1]) == {setting.name for setting in fields(Settings)}


def test_a_key_of_endless_parts_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "gen-audit.toml").write_text(".".join(["a"] * 50_000) + " = 1\n")
    with pytest.raises(UsageError, match=r"gen-audit\.toml: has a key of more than 100 parts; correct or remove it"):
        resolve({}, [ConfigFile(tmp_path / "gen-audit.toml")], {})
    (tmp_path / "gen-audit.toml").write_text(f"mean = [{', '.join(['0.5'] * 1000)}]\n")
    assert len(resolve({}, [ConfigFile(tmp_path / "gen-audit.toml")], {}).mean or ()) == 1000
