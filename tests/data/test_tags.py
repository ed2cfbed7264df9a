"""Labels of models that answer at every position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.data import read_data, resolve_task
from audit.errors import DataError
from audit.settings import Settings

TAGS = np.array([[0, 1, -100], [2, -1, -100], [1, 0, 2], [0, 0, 1]])


def folder(root: Path, y: np.ndarray = TAGS) -> Path:
    for which in ("train", "test"):
        np.savez(root / which, x=np.arange(12).reshape(4, 3), y=y)
    return root


def test_negative_labels_are_none_and_classes_are_counted(tmp_path: Path) -> None:
    task, data = resolve_task(read_data(folder(tmp_path), Settings()), 9, "none", "auto", 3)
    assert task == "tagging" and data.classes == ("0", "1", "2")
    assert data.train.y.tolist() == [[0, 1, -100], [2, -100, -100], [1, 0, 2], [0, 0, 1]]
    counted = "9 of 12 positions of train and 9 of 12 of test are labelled"
    assert f"Labels are one for each position: {counted}." in data.notes


def test_rows_that_look_one_hot_stay_tags(tmp_path: Path) -> None:
    """A sentence with one name in it: all 0 but a single 1."""
    y = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    task, data = resolve_task(read_data(folder(tmp_path, y), Settings()), 6, "none", "auto", 2)
    assert task == "tagging" and data.train.y.tolist() == y.tolist()


def test_classes_are_named_in_their_order(tmp_path: Path) -> None:
    settings = Settings(classes=("O", "NAME", "PLACE"))
    _, data = resolve_task(read_data(folder(tmp_path), settings), 9, "none", "auto", 3)
    assert data.classes == ("O", "NAME", "PLACE")
    with pytest.raises(DataError, match="--classes names 3 classes but the model gives scores of 4 classes"):
        resolve_task(read_data(folder(tmp_path), settings), 12, "none", "auto", 4)


def test_a_class_without_train_positions_is_noted(tmp_path: Path) -> None:
    _, data = resolve_task(read_data(folder(tmp_path), Settings()), 12, "none", "tagging", 4)
    assert "No train position has the class 3." in data.notes


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("regression", "at each of 3 positions, which --task regression does not take; leave --task out."),
        ("classification", "at each of 3 positions, which --task classification does not take; leave --task out."),
    ],
)
def test_another_task_is_refused(task: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        resolve_task(read_data(folder(tmp_path), Settings()), 9, "none", task, 3)
    assert words in str(refused.value)


def test_tagging_needs_a_model_with_positions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--task tagging needs a model with an output \[n, positions, classes\]"):
        resolve_task(read_data(folder(tmp_path), Settings()), 3, "none", "tagging")


def test_samples_without_a_label_are_named_by_their_place_as_stored(tmp_path: Path) -> None:
    y = TAGS.copy()
    y[2:] = -100
    with pytest.raises(DataError) as refused:
        resolve_task(read_data(folder(tmp_path, y), Settings()), 9, "none", "auto", 3)
    assert "train sample 2 (counted from 0) (and 1 more) has no labelled position" in str(refused.value)
