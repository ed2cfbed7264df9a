"""A folder of twins from a stranger: nothing outside it is read or written, and what does not fit is a sentence."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_index import example

from audit.errors import AuditError, BudgetError
from audit.twins import Twin, read_twins, read_weights, write_twins, write_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound folder of twins beside a file of its owner's."""
    (tmp_path / "mine.txt").write_text("mine")
    write_twins(tmp_path / "twins", example())
    return tmp_path / "twins"


def refused(folder: Path, sentence: str) -> None:
    with pytest.raises(AuditError, match=sentence) as caught:
        read_twins(folder)
    assert len(str(caught.value).splitlines()) == 1 and "\x1b" not in str(caught.value)
    assert (folder.parent / "mine.txt").read_text() == "mine"


def index(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads((folder / "twins.json").read_text())
    change(values)
    (folder / "twins.json").write_text(json.dumps(values))


@pytest.mark.parametrize("name", ["../../mine", "/etc/passwd", "a/b", "", "x\x1b[2J", "x" * 300, ".hidden", "a\0b"])
@pytest.mark.parametrize("part", ["kind", "family"])
def test_a_twin_is_called_by_a_plain_word(folder: Path, name: str, part: str) -> None:
    index(folder, lambda values: values["twins"][0].update({part: name, "seed": 0}))
    if name == "" and part == "kind":
        index(folder, lambda values: values["twins"][0].update(family=""))
    refused(folder, r"twins\.json: names a twin .*, which is no name for its files; make the twins anew")


CHANGES: list[Callable[[dict[str, Any]], Any]] = [
    lambda values: values["twins"][0].update(seed=10**30),
    lambda values: values["twins"][0].update(seed=-1),
    lambda values: values["twins"].append(values["twins"][0]),
    lambda values: values["twins"][0].update(train_loss=float("nan")),
    lambda values: values["model"].update({"flatness.kappa": float("inf")}),
    lambda values: values["twins"][0].update(numbers={"layers.other.flatness.kappa": 1.0}),
    lambda values: values["recipe"].update(rate=-1),
    lambda values: values["families"]["sgd"].update(batch=0),
    lambda values: values["families"]["sgd"].update(dropout=1.5),
]


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_that_cannot_be_gone_on_with(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    index(folder, change)
    refused(folder, r"twins\.json: ")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": ' + "9" * 5000 + "}", "\ufffe", "null"])
def test_a_text_that_is_no_index(folder: Path, text: str) -> None:
    (folder / "twins.json").write_text(text)
    refused(folder, r"twins\.json: is no index of twins, or damaged")


@pytest.mark.parametrize("name", ["twins.json", "arrays/sgd-plain-0.npz"])
def test_links_and_pipes_are_not_opened(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")
    refused(folder, "is a link to .*, outside the folder of twins, and is not followed")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, "no ordinary file")


def test_what_lies_in_wait_where_files_are_written(folder: Path) -> None:
    twins = read_twins(folder)
    for name in (".twins.json", "arrays/.sgd-plain-0.npz", "weights/.sgd-plain-0.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(folder.parent / "mine.txt")
    (folder / "arrays" / "sgd-plain-0.npz").unlink()
    write_twins(folder, twins)
    write_weights(folder, twins.twins[0], {"w": np.eye(2)})
    assert (folder.parent / "mine.txt").read_text() == "mine"
    assert read_twins(folder).twins == twins.twins


@pytest.mark.parametrize("name", ["arrays", "weights"])
def test_no_file_is_written_through_a_linked_folder(folder: Path, name: str) -> None:
    twins = read_twins(folder)
    (folder.parent / "home").mkdir()
    if name == "arrays":
        (folder / name).rename(folder.parent / "arrays")
    (folder / name).symlink_to(folder.parent / "home")
    with pytest.raises(AuditError, match=f"{name}: is a link, where twins are kept"):
        write_twins(folder, twins)
        write_weights(folder, twins.twins[0], {"w": np.eye(2)})
    assert not list((folder.parent / "home").iterdir())


def arrays(folder: Path, **changes: np.ndarray) -> None:
    path = folder / "arrays" / "sgd-plain-0.npz"
    with np.load(path) as found:
        values = dict(found)
    np.savez(path, **{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test": np.zeros(9)}, "not of one length"),
        ({"losses": np.zeros(3)}, "not of one length"),
        ({"tests": np.arange(4)}, "not of one length"),
        ({"answers": np.full(4, -1.0)}, "answer with what is no class"),
        ({"test": np.zeros(9), "test_losses": np.zeros(9)}, "different numbers of test samples"),
        ({"test": np.array(["a"] * 5)}, "not the numbers that belong there"),
        ({"test_losses": np.zeros((5, 2))}, "not the numbers that belong there"),
        ({"rows": np.arange(4) - 2}, "no number of a sample"),
        ({"rows": np.arange(4) + 0.5}, "not the numbers that belong there"),
        ({"test": np.full(5, np.nan)}, "no number of a sample"),
        ({"test": np.array([{}] * 5)}, r"sgd-plain-0\.npz: is damaged"),
    ],
)
def test_arrays_that_do_not_fit(folder: Path, changes: dict[str, np.ndarray], sentence: str) -> None:
    arrays(folder, **changes)
    refused(folder, sentence)


def test_an_archive_that_unpacks_to_gigabytes(folder: Path) -> None:
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1073741824,), }".ljust(
        118
    )
    with zipfile.ZipFile(folder / "arrays" / "sgd-plain-0.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("test.npy", "w", force_zip64=True) as member:
            member.write(header)
            for _ in range(2):
                member.write(bytes(1 << 24))
        info = archive.getinfo("test.npy")
        info.file_size = 1 << 40
    with pytest.raises(BudgetError, match="more than the memory budget"):
        read_twins(folder)


def test_a_member_that_is_no_array(folder: Path) -> None:
    path = folder / "arrays" / "sgd-plain-0.npz"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[1:] if name == "losses.npy" else content)
    refused(folder, "array 'losses' is no array")


def test_damaged_weights_are_a_sentence(folder: Path) -> None:
    twin: Twin = example().twins[0]
    with pytest.raises(AuditError, match=r"sgd-plain-0\.safetensors: is missing, or no ordinary file"):
        read_weights(folder, twin)
    write_weights(folder, twin, {"w": np.eye(2)})
    path = folder / "weights" / "sgd-plain-0.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(AuditError, match=r"sgd-plain-0\.safetensors: is damaged"):
        read_weights(folder, twin)
