from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.settings import Settings, resolve


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text("seed = 1\nsamples = 11\nbootstrap = 111\n")
    environ = {"GEN_AUDIT_SEED": "2", "GEN_AUDIT_SAMPLES": "22", "HOME": "elsewhere"}
    settings = resolve({"seed": "3", "task": None}, config, environ)
    assert (settings.seed, settings.samples, settings.bootstrap, settings.task) == (3, 22, 111, "auto")


def test_tables_only_group_and_dashes_are_underscores(tmp_path: Path) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text('[data]\nmean = [0.1, 0.2, 0.3]\nstd = 0.5\ntest-fraction = 0.2\nclasses = ["cat", "dog"]\n')
    settings = resolve({}, config, {})
    assert settings.mean == (0.1, 0.2, 0.3)
    assert settings.std == (0.5,)
    assert settings.test_fraction == 0.2
    assert settings.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sede = 1", "there is no setting 'sede'; the nearest one is 'seed'."),
        ("seed = 'many'", "'many' is not a whole number (seed of every random choice)."),
        ("task = 'guess'", "'guess' is not one of auto, classification, binary, regression."),
        ("trust_pickle = 'maybe'", "'maybe' is not true or false"),
        ("seed = ", "cannot be read as TOML"),
    ],
)
def test_nonsense_in_the_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    config = tmp_path / "gen-audit.toml"
    config.write_text(text)
    with pytest.raises(UsageError) as caught:
        resolve({}, config, {})
    assert str(caught.value).startswith(str(config))
    assert sentence in str(caught.value)


def test_nonsense_in_flags_and_environment_is_named() -> None:
    with pytest.raises(UsageError, match=r"^--seed: 'x' is not a whole number"):
        resolve({"seed": "x"}, None, {})
    with pytest.raises(
        UsageError, match=r"^GEN_AUDIT_SEEED: there is no setting 'seeed'; the nearest one is 'seed'\.$"
    ):
        resolve({}, None, {"GEN_AUDIT_SEEED": "1"})


def test_every_setting_says_what_it_means() -> None:
    assert all(knob.metadata["meaning"] for knob in fields(Settings))
