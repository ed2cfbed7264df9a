"""Folders of twins to be damaged: a sound one of one twin, and what is done with a damaged one."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from audit.twins import (
    About,
    Recipe,
    Twin,
    TwinOutcomes,
    TwinSet,
    Unseen,
    read_twins,
    read_weights,
    write_twins,
)
from audit.twins.recipes import read_recipe

TWIN = Twin(
    kind="plain",
    family="given",
    seed=0,
    whole=True,
    train_samples=12,
    train_loss=0.1,
    temperature=1.0,
    matched=True,
    restarts=0,
    reached=True,
    epochs=9,
    train_error=0.0,
    test_error=0.25,
    test_loss=0.5,
    recipe=Recipe(),
    numbers={"flatness.kappa": 1.5},
)
RECIPE = b'[recipe]\noptimizer = "sgd"\nrate = 0.1\nbatch = 32\nmomentum = 0.9\nstart = "he"\ndropout = 0.5\n'


@cache
def _files() -> dict[str, bytes]:
    """The files of a folder of one twin."""
    rows, nothing = np.arange(3), np.zeros(3)
    outcomes = TwinOutcomes(np.ones(12), np.ones(12), Unseen(rows, nothing, nothing, nothing, nothing))
    about = About(architecture="0" * 64, data="0" * 64, task="classification", target=0.1, recipe=Recipe())
    made = TwinSet(
        about=about,
        recipe=Recipe(),
        recipe_given=True,
        family="given",
        families={"given": Recipe()},
        model={"flatness.kappa": 1.0},
        twins=(TWIN,),
        left_out=(("half", "not asked for"),),
        outcomes=(outcomes,),
    )
    with tempfile.TemporaryDirectory() as folder:
        write_twins(Path(folder), made)
        return {name: Path(folder, name).read_bytes() for name in ("twins.json", f"arrays/{TWIN.name}.npz")}


def index() -> bytes:
    return _files()["twins.json"]


def arrays() -> bytes:
    return _files()[f"arrays/{TWIN.name}.npz"]


def gone_on_with(found_index: bytes, found_arrays: bytes | None = None) -> None:
    """Reads a folder with this index, and writes what was read, as a run that goes on does."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "arrays").mkdir()
        Path(folder, "twins.json").write_bytes(found_index)
        Path(folder, "arrays", f"{TWIN.name}.npz").write_bytes(found_arrays or arrays())
        found = read_twins(Path(folder))
        if found.twins:
            _ = found.test_outcomes, found.test_losses
        write_twins(Path(folder), found)


def weights(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "weights").mkdir()
        Path(folder, "weights", f"{TWIN.name}.safetensors").write_bytes(content)
        read_weights(Path(folder), TWIN)


def recipe(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recipe.toml")
        path.write_bytes(content)
        read_recipe(path)
