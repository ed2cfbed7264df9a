"""A recipe in a file: read, or refused with a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.twins import Recipe
from audit.twins.recipes import read_recipe


def test_a_recipe_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('optimizer = "adamw"\nrate = 1e-3\nbatch = 64\ndecay = 0.05\nstart = "he"\n')
    expected = Recipe(optimizer="adamw", rate=1e-3, batch=64, decay=0.05, start="he")
    assert read_recipe(path) == expected
    path.write_text("[recipe]\n" + path.read_text())
    assert read_recipe(path) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rat = 0.1", r"a recipe has no 'rat'; the nearest one is 'rate'"),
        ('optimizer = "lion"', r"optimizer is 'lion'; input should be 'sgd', 'adam' or 'adamw'"),
        ("rate = 0", r"rate = 0 is out of range"),
        ("batch = -3", r"batch = -3 is out of range"),
        ("rate = [", r"is no TOML \(.*; write lines such as rate = 0\.1"),
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_recipe(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read \(No such file or directory\); name a recipe"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "text", ["", "recipe = 1", f"rate = {'9' * 5000}", "a." * 20000 + "a = 1", "a = " + "[" * 9000]
)
def test_a_damaged_recipe_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(UsageError, match=r"r\.toml: (is|recipe is) .*; (name|write) "):
        read_recipe(tmp_path / "r.toml")
    (tmp_path / "r.toml").unlink()
    os.mkfifo(tmp_path / "r.toml")
    with pytest.raises(UsageError, match="no file"):
        read_recipe(tmp_path / "r.toml")
