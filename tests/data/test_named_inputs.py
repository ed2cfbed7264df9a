"""Data whose samples have several inputs by name, in every layout that has names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from masked_networks import split
from safetensors.numpy import save_file

from audit.data import data_sha256, read_data
from audit.errors import DataError
from audit.settings import Settings

INPUTS = ("input_ids", "attention_mask")


def write(layout: str, root: Path, name: str = "masked") -> None:
    for which in ("train", "test"):
        data = split(name, which)
        if layout == "npz":
            np.savez(root / which, **data)
        elif layout == "npy":
            for key, values in data.items():
                np.save(root / f"{which}_{key}.npy", values)
        elif layout == "safetensors":
            save_file(data, root / f"{which}.safetensors")
        elif layout == "pt":
            torch.save({key: torch.from_numpy(values) for key, values in data.items()}, root / f"{which}.pt")
        elif layout == "parquet":
            columns = {key: list(values) for key, values in data.items()}
            pq.write_table(pa.table(columns), root / f"{which}.parquet")
        else:
            columns = {"y": data["y"]}
            for key in data:
                columns |= {f"{key}_{place}": column for place, column in enumerate(data[key].T) if key != "y"}
            lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            (root / f"{which}.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("layout", ["npz", "npy", "safetensors", "pt", "parquet", "csv"])
def test_inputs_are_found_by_their_names(layout: str, tmp_path: Path) -> None:
    write(layout, tmp_path)
    data = read_data(tmp_path, Settings(), INPUTS)
    assert set(data.train.inputs) == set(INPUTS) and data.layout == layout
    for name in INPUTS:
        np.testing.assert_array_equal(data.test.input(name), split("masked", "test")[name])
        assert data.test.input(name).dtype.kind == "i"
    np.testing.assert_array_equal(data.train.y, split("masked", "train")["y"])
    assert data_sha256(tmp_path, Settings(), INPUTS) == data.sha256


@pytest.mark.parametrize("layout", ["npz", "npy"])
def test_a_name_that_could_be_the_samples_is_an_input_where_the_model_has_several(layout: str, tmp_path: Path) -> None:
    write(layout, tmp_path, "mixed")
    assert set(read_data(tmp_path, Settings(), ("image", "table")).train.inputs) == {"image", "table"}
    assert read_data(tmp_path, Settings(), ("x",)).train.x.shape == (48, 3, 2, 2)


def test_the_input_of_a_model_that_has_one_may_lie_under_its_name(tmp_path: Path) -> None:
    for which in ("train", "test"):
        data = split("masked", which)
        np.savez(tmp_path / which, input_ids=data["input_ids"], y=data["y"])
    assert read_data(tmp_path, Settings(), ("input_ids",)).train.inputs == ("input_ids",)
    with pytest.raises(DataError, match=r"holds input_ids, y, but needs an x \(or images, data\) and a y"):
        read_data(tmp_path, Settings(), ("other",))


@pytest.mark.parametrize("layout", ["npz", "csv"])
def test_an_input_that_may_be_left_out_changes_nothing_for_who_has_one(layout: str, tmp_path: Path) -> None:
    for which in ("train", "test"):
        np.savez(tmp_path / which, x=np.ones((4, 2)), y=np.arange(4), names=np.arange(4)) if layout == "npz" else None
        (tmp_path / f"{which}.csv").write_text("x,z,y\n1,2,0\n3,4,1\n", encoding="utf-8") if layout == "csv" else None
    assert read_data(tmp_path, Settings(), ("x", "mask")).train.x.shape[1:] == (2,)


def test_capped_samples_keep_their_inputs_together(tmp_path: Path) -> None:
    write("npz", tmp_path)
    data = read_data(tmp_path, Settings(samples=10), INPUTS)
    for name in INPUTS:
        np.testing.assert_array_equal(data.train.input(name), split("masked", "train")[name][data.train.index])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"attention_mask": np.ones((47, 6))}, r"attention_mask holds 47 samples but train.npz:y holds 48 labels"),
        ({"attention_mask": np.full((48, 6), np.nan)}, r"train sample 0 \(counted from 0\) of attention_mask is NaN"),
        ({"attention_mask": np.full((48, 6), "a")}, r"samples of attention_mask of type <U1 are not numbers"),
        ({"attention_mask": np.ones((48, 7))}, r"train samples of attention_mask have shape \(7,\) but test samples"),
        ({"extra": np.ones(48)}, r"holds 'extra', which the model does not take; its inputs are input_ids, attention_"),
        ({"y": None}, r"the train split has input_ids, attention_mask but no y; add it beside it"),
    ],
)
def test_what_does_not_fit_together(changed: dict[str, np.ndarray | None], sentence: str, tmp_path: Path) -> None:
    write("npz", tmp_path)
    arrays = {**split("masked", "train"), **changed}
    np.savez(tmp_path / "train", **{key: values for key, values in arrays.items() if values is not None})
    with pytest.raises(DataError, match=sentence):
        read_data(tmp_path, Settings(), INPUTS)


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    table = pa.table({"input_ids": [[1, 2], [3]], "y": [0, 1]})
    for which in ("train", "test"):
        pq.write_table(table, tmp_path / f"{which}.parquet")
    with pytest.raises(DataError, match=r"column 'input_ids' has lists of 1 to 2 numbers; pad them to one length"):
        read_data(tmp_path, Settings(), INPUTS)
