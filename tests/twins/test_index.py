"""A folder of twins gives back what was put into it, and says what is wrong with one that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from audit.errors import UsageError
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
    write_weights,
)


def example(count: int = 3, tests: int = 5) -> TwinSet:
    draw = np.random.default_rng(0)
    twins = tuple(
        Twin(
            kind="half" if seed else "plain",
            family="sgd",
            seed=seed,
            whole=True,
            train_samples=8,
            train_loss=0.009,
            temperature=0.98,
            matched=True,
            restarts=0,
            reached=True,
            epochs=12,
            train_error=0.0,
            test_error=0.2,
            test_loss=0.7,
            numbers={"layers.fc1.flatness.kappa_tau": 1.5 + seed},
        )
        for seed in range(count)
    )
    about = About(architecture="a", data="d", task="classification", target=0.01)
    return TwinSet(
        about=about,
        recipe=Recipe(rate=0.3),
        recipe_given=False,
        family="sgd",
        families={"sgd": Recipe(rate=0.3), "adam": Recipe(optimizer="adam")},
        model={"layers.fc1.flatness.kappa_tau": 1.0},
        twins=twins,
        left_out=(("dropout", "no time was left"),),
        notes=("A note.",),
        outcomes=tuple(
            TwinOutcomes(draw.integers(0, 2, tests) * 1.0, draw.random(tests), _unseen(draw)) for _ in twins
        ),
    )


def _unseen(draw: np.random.Generator) -> Unseen:
    rows = np.arange(0, 8, 2)
    return Unseen(rows, draw.random(4), draw.random(4), draw.integers(0, 3, 4) * 1.0, draw.random(4))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    twins = example()
    write_twins(tmp_path, twins)
    write_weights(tmp_path, twins.twins[0], {"0.weight": np.eye(3, dtype=np.float32)})
    found = read_twins(tmp_path)
    assert replace(found, outcomes=()) == replace(twins, outcomes=())
    assert np.array_equal(found.test_outcomes, twins.test_outcomes)
    assert np.array_equal(found.outcomes[1].unseen.rows, twins.outcomes[1].unseen.rows)
    assert np.array_equal(read_weights(tmp_path, twins.twins[0])["0.weight"], np.eye(3))
    assert [twin.seed for twin in found.of("half")] == [1, 2]
    assert not [path for path in tmp_path.rglob(".*")]


def test_the_key_follows_what_the_twins_are_of() -> None:
    about = example().about
    keys = {
        about.key,
        replace(about, target=0.02).key,
        replace(about, data="e").key,
        replace(about, recipe=Recipe()).key,
    }
    assert len(keys) == 4
    assert about.key == replace(about).key


def test_a_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"No such file or directory\); make twins with `gen-audit twins MODEL DATA -o"
    ):
        read_twins(tmp_path / "none")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "gen-audit/twins/1"}'])
def test_a_damaged_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "twins.json").write_text(text)
    with pytest.raises(UsageError, match=r"twins\.json: is no index of twins, or damaged; make them anew"):
        read_twins(tmp_path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    write_twins(tmp_path, example())
    path = tmp_path / "twins.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": "gen-audit/twins/9"}))
    with pytest.raises(
        UsageError, match=r"is of schema 'gen-audit/twins/9', not gen-audit/twins/1; make the twins anew"
    ):
        read_twins(tmp_path)


def test_lost_arrays_are_named(tmp_path: Path) -> None:
    twins = example()
    write_twins(tmp_path, twins)
    (tmp_path / "arrays" / "sgd-half-1.npz").write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"sgd-half-1\.npz: is damaged, or holds what cannot be read"):
        read_twins(tmp_path)
