"""Which samples are used: the right number, of every class its share, in order, the same every time."""

from __future__ import annotations

from pathlib import Path

import folders
import numpy as np
import pytest
from folders import blobs, pictures, write_both
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.data import read_data
from audit.data.labels import apportion, apportion_to_all, sample, strata
from audit.errors import UsageError
from audit.settings import Settings

class_sizes = st.lists(st.integers(2, 40), min_size=1, max_size=6)


def shuffled(sizes: list[int], seed: int) -> np.ndarray:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels)


@settings(deadline=None)
@given(sizes=class_sizes, share=st.floats(0, 1), seed=st.integers(0, 9))
def test_every_class_gets_its_share_to_within_one(sizes: list[int], share: float, seed: int) -> None:
    labels = shuffled(sizes, seed)
    size = int(share * len(labels))
    rows = sample(labels, size, seed, "train")
    assert len(rows) == size
    assert (np.diff(rows) > 0).all()
    exact = np.array(sizes) * size / len(labels)
    taken = np.bincount(labels[rows], minlength=len(sizes))
    assert (np.abs(taken - exact) < 1).all()


@settings(deadline=None)
@given(sizes=class_sizes, size=st.integers(1, 50), seed=st.integers(0, 9))
def test_the_names_of_the_classes_do_not_matter(sizes: list[int], size: int, seed: int) -> None:
    labels = shuffled(sizes, seed)
    names = np.array(list("abcdef"))[labels]
    rows = sample(labels, size, seed, "train")
    np.testing.assert_array_equal(rows, sample(names, size, seed, "train"))
    np.testing.assert_array_equal(rows, sample(labels.astype(float), size, seed, "train"))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=20), share=st.floats(0, 1))
def test_shares_add_up(sizes: list[int], share: float) -> None:
    counts = np.array(sizes)
    size = int(share * counts.sum())
    quota = apportion(counts, size, np.arange(len(sizes)))
    assert quota.sum() == size
    assert ((quota >= 0) & (quota <= counts)).all()


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=20), share=st.floats(0, 0.99))
def test_every_class_is_kept_where_that_moves_little(sizes: list[int], share: float) -> None:
    counts, ties = np.array(sizes), np.arange(len(sizes))
    size = int(share * counts.sum())
    quota, plain = apportion_to_all(counts, size, ties), apportion(counts, size, ties)
    assert quota.sum() == size and ((quota >= 0) & (quota <= counts)).all()
    if plain.all() or 100 * (plain == 0).sum() > size:
        np.testing.assert_array_equal(quota, plain)
    elif len(sizes) * 100 <= size:
        assert quota.all()


def test_a_rare_class_is_not_lost_to_the_cap(tmp_path: Path) -> None:
    y = np.append(np.arange(3000) % 2, [2] * 3)
    write_both(tmp_path, folders.write_npz, np.random.default_rng(0).normal(size=(3103, 2)), np.append(y, y[:100]), 100)
    data = read_data(tmp_path, Settings(samples=400))
    assert sorted(np.bincount(data.train.y.astype(int)).tolist()) == [1, 199, 200]


def test_the_choice_is_the_same_on_every_machine() -> None:
    labels = np.arange(40) % 4
    assert sample(labels, 6, 0, "train").tolist() == [8, 26, 31, 34, 36, 37]
    assert sample(labels, 6, 0, "test").tolist() == [4, 10, 12, 27, 37, 38]
    assert sample(labels, 6, 1, "train").tolist() == [3, 8, 22, 31, 36, 37]
    assert sample(labels, 6, -1, "train").tolist() != [8, 26, 31, 34, 36, 37]  # any integer is a seed


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (np.linspace(0, 1, 30), "auto"),
        (np.arange(30), "auto"),
        (np.arange(30) % 2, "regression"),
        (np.ones((30, 2)), "auto"),
    ],
)
def test_quantities_are_one_stratum(labels: np.ndarray, task: str) -> None:
    codes, counts = strata(labels, task)
    assert counts.tolist() == [30]
    assert not codes.any()


def test_one_hot_rows_are_strata() -> None:
    codes, counts = strata(np.eye(3)[np.arange(30) % 3])
    assert counts.tolist() == [10, 10, 10]
    np.testing.assert_array_equal(codes, np.arange(30) % 3)


def test_both_caps_and_the_sizes_on_disk(tmp_path: Path) -> None:
    x, y = blobs(n=90)
    write_both(tmp_path, folders.write_npz, x, y, 30)
    data = read_data(tmp_path, Settings(samples=12, test_samples=6))
    assert (len(data.train), data.train.total, len(data.test), data.test.total) == (12, 60, 6, 30)
    np.testing.assert_array_equal(data.train.x, x[data.train.index])
    np.testing.assert_array_equal(data.test.x, x[60 + data.test.index])
    assert np.bincount(data.train.y.astype(int)).tolist() == [4, 4, 4]
    assert np.bincount(data.test.y.astype(int)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("cap", [None, 0, 10**9])
def test_no_cap_takes_all(tmp_path: Path, cap: int | None) -> None:
    write_both(tmp_path, folders.write_npz, *blobs(), 10)
    assert len(read_data(tmp_path, Settings(samples=cap)).train) == 20


def test_only_the_chosen_images_are_decoded(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_images, *pictures(n=60), 12)
    capped = Settings(samples=9)
    data = read_data(tmp_path, capped)
    files = sorted((tmp_path / "train").rglob("*.png"), key=lambda file: file.as_posix())
    for place in set(range(len(files))) - set(data.train.index.tolist()):
        files[place].write_bytes(b"not an image")
    again = read_data(tmp_path, capped)
    np.testing.assert_array_equal(again.train.x, data.train.x)
    assert again.sha256 == data.sha256
    assert (len(again.train), again.train.total) == (9, 48)


@pytest.mark.parametrize("write", [folders.write_npz, folders.write_csv])
def test_a_lone_split_is_divided_on_request(tmp_path: Path, write: folders.Write) -> None:
    x, y = blobs(n=60)
    write(tmp_path, "data", x, y)
    data = read_data(tmp_path, Settings(test_fraction=0.25, samples=0))
    assert data.split_is_ours
    assert any("the split is ours, so the gap is not evidence about the release" in note for note in data.notes)
    assert sorted([*data.train.index, *data.test.index]) == list(range(60))
    assert np.bincount(data.test.y.astype(int)).tolist() == [5, 5, 5]
    np.testing.assert_array_equal(data.test.x, x[data.test.index])
    np.testing.assert_array_equal(data.train.x, x[data.train.index])
    assert (data.train.total, data.test.total) == (45, 15)
    capped = read_data(tmp_path, Settings(test_fraction=0.25, samples=9))
    assert set(capped.train.index) < set(data.train.index)
    np.testing.assert_array_equal(capped.test.index, data.test.index)


def test_class_folders_alone_are_a_lone_split(tmp_path: Path) -> None:
    x, y = pictures(n=30)
    folders.write_images(tmp_path.parent, tmp_path.name, x, y)
    data = read_data(tmp_path, Settings(test_fraction=0.2))
    assert (data.layout, len(data.train), len(data.test), data.split_is_ours) == ("images", 24, 6, True)


def test_a_folder_with_both_splits_needs_no_share(tmp_path: Path) -> None:
    write_both(tmp_path, folders.write_npz, *blobs(), 10)
    with pytest.raises(UsageError) as caught:
        read_data(tmp_path, Settings(test_fraction=0.5))
    assert str(caught.value) == (
        f"--test-fraction: {tmp_path} has its own test split, which is used as it is; leave it out."
    )
