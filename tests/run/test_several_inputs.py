"""Models whose samples have several inputs, audited whole in every format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import masked_networks
import numpy as np
import pytest
import torch
from formats import QUICK, audited, differences
from masked_networks import FORMS, Masked, Mixed, folder, losses, split, trained, written
from tolerances import EXACT
from torch import Tensor, nn
from torch.utils.data import DataLoader

from audit import audit_model
from audit.errors import DataError, UsageError
from audit.model import load_model
from audit.run.list_layers import list_layers
from audit.settings import Settings

ARCH = f"{masked_networks.__file__}:"


def report(name: str, form: str, root: Path, **settings: Any) -> Any:
    arch = {"arch": ARCH + name} if form == "state_dict" else {}
    return audited(written(name, form, root), folder(name, root / "data"), **QUICK, **arch, **settings)


def numbers(found: Any) -> dict[str, Any]:
    return {key: found[key] for key in ("gap", "calibration", "hygiene", "layers", "network")}


@pytest.mark.parametrize("name", ["masked", pytest.param("mixed", marks=pytest.mark.slow)])
def test_every_format_gives_the_numbers_of_the_naive_forward_pass(name: str, tmp_path: Path) -> None:
    first = report(name, FORMS[0], tmp_path)
    assert np.allclose(first["outcomes"]["test"]["loss"], losses(name, "test"), rtol=0, atol=1e-6)
    assert np.allclose(first["outcomes"]["train"]["loss"], losses(name, "train"), rtol=0, atol=1e-6)
    for form in FORMS[1:]:
        other = report(name, form, tmp_path)
        assert other["model"]["input"]["name"] == first["model"]["input"]["name"]
        assert [layer["name"] for layer in other["layers"]] == [layer["name"] for layer in first["layers"]]
        assert differences(_unnamed(numbers(first)), _unnamed(numbers(other))) == [], form


def _unnamed(found: Any) -> Any:
    """Without what exporters call an operator."""
    if isinstance(found, dict):
        return {key: _unnamed(value) for key, value in found.items() if key != "op"}
    return [_unnamed(value) for value in found] if isinstance(found, list) else found


def test_the_mask_has_its_effect() -> None:
    without = losses("masked", "test", attention_mask=np.ones_like(split("masked", "test")["attention_mask"]))
    assert np.abs(without - losses("masked", "test")).max() > 0.01  # or the test above could not see it


def test_tokens_are_not_differentiated_in_and_a_picture_and_a_table_are(tmp_path: Path) -> None:
    tokens, floats = (report(name, "pt2", tmp_path)["network"]["sensitivity"] for name in ("masked", "mixed"))
    assert tokens["mls"] is None
    data, network = split("mixed", "train"), trained("mixed").double()
    image, table = (torch.from_numpy(data[key]).double() for key in ("image", "table"))
    norms = []
    for k in range(len(image)):
        parts = torch.autograd.functional.jacobian(network, (image[k : k + 1], table[k : k + 1]))
        jacobian = torch.cat([part.reshape(3, -1) for part in parts], 1)
        norms.append(float(torch.linalg.matrix_norm(jacobian, 2)))
    network.float()
    assert floats["mls"] == pytest.approx(np.mean(norms), rel=1e-6)


def pairs(name: str, which: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    data = split(name, which)
    return {key: values for key, values in data.items() if key != "y"}, data["y"]


def rows(which: str) -> Iterator[tuple[np.ndarray, ...]]:
    return zip(*split("masked", which).values(), strict=True)


def test_python_takes_dicts_of_inputs_as_folders_do(tmp_path: Path) -> None:
    filed = report("masked", "state_dict", tmp_path)
    given = audit_model(trained("masked"), pairs("masked", "train"), pairs("masked", "test"), **QUICK)
    assert given.outcomes.test.loss == filed["outcomes"]["test"]["loss"]
    items = [
        [{"input_ids": i, "attention_mask": m, "labels": y} for i, m, y in rows(which)] for which in ("train", "test")
    ]
    loaded = audit_model(trained("masked"), *(DataLoader(each, 7) for each in items), **QUICK)  # type: ignore[arg-type]
    assert loaded.outcomes.test.loss == filed["outcomes"]["test"]["loss"]


class FloatMask(Masked):
    """Takes the mask as what is added to the scores of attention."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return super().forward(input_ids, 1.0 + attention_mask / 1e4)


def test_a_mask_of_floats_beside_tokens_keeps_its_numbers(tmp_path: Path) -> None:
    network = FloatMask()
    network.load_state_dict(trained("masked").state_dict())
    splits = []
    for which in ("train", "test"):
        inputs, y = pairs("masked", which)
        splits.append(({**inputs, "attention_mask": (inputs["attention_mask"] - 1) * 1e4 - 0.25}, y))
    found = audit_model(network.eval(), *splits, **QUICK)
    f = network.double()(*map(torch.from_numpy, splits[1][0].values())).detach()
    expected = nn.functional.cross_entropy(f, torch.from_numpy(splits[1][1]), reduction="none")
    assert np.allclose(found.outcomes.test.loss, expected, rtol=0, atol=EXACT)
    assert found.model.input.dtype == "int64"


class Optional(Mixed):
    def forward(self, image: Tensor, table: Tensor | None = None) -> Tensor:
        return super().forward(image, torch.zeros(len(image), 4, dtype=image.dtype) if table is None else table)


def test_an_argument_with_a_default_may_be_left_out() -> None:
    network = Optional().eval()
    alone = [(x["image"], y) for x, y in (pairs("mixed", which) for which in ("train", "test"))]
    found = audit_model(network, *alone, **QUICK)
    assert found.model.input.name == "image" and found.model.input.shape == [3, 2, 2]
    both = audit_model(network, pairs("mixed", "train"), pairs("mixed", "test"), **QUICK)
    assert both.model.input.name == "image, table"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"attention_mask": None},
            "holds input_ids, but {model} also takes attention_mask [n, 6] int64; store it beside them under "
            "that name.",
        ),
        (
            {"token_type_ids": np.zeros((48, 6), np.int64)},
            "holds 'token_type_ids', which the model does not take; its inputs are input_ids, attention_mask: rename "
            "or remove it.",
        ),
        (
            {"x": np.zeros((48, 6)), "input_ids": None, "attention_mask": None},
            "holds one array of samples, but {model} takes several inputs, input_ids [n, 6] int64, attention_mask "
            "[n, 6] int64; store each under its name beside the labels: as arrays of an npz, as columns of a table.",
        ),
    ],
)
def test_both_sides_are_named_where_they_differ(
    changed: dict[str, np.ndarray | None], sentence: str, tmp_path: Path
) -> None:
    model = written("masked", "onnx", tmp_path)
    data = folder("masked", tmp_path / "data")
    for which, n in (("train", 48), ("test", 24)):
        arrays = {**split("masked", which), **{k: None if v is None else v[:n] for k, v in changed.items()}}
        np.savez(data / which, **{key: values for key, values in arrays.items() if values is not None})
    with pytest.raises(DataError) as caught:
        audited(model, data, **QUICK)
    assert str(caught.value).endswith(sentence.format(model=model))
    assert "fix-input" not in str(caught.value)


def test_a_mask_can_still_be_held_by_who_says_so(tmp_path: Path) -> None:
    model, data = written("masked", "onnx", tmp_path), folder("masked", tmp_path / "data", attention_mask=None)
    found = audited(model, data, **QUICK, fix_input=("attention_mask=1",))
    ones = np.ones_like(split("masked", "test")["attention_mask"])
    assert np.allclose(found["outcomes"]["test"]["loss"], losses("masked", "test", attention_mask=ones), atol=1e-6)


@pytest.mark.parametrize("flags", [{"scale": 0.5}, {"mean": (0.5,)}, {"reshape": "flatten"}])
def test_flags_for_one_input_are_refused(flags: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="samples have several inputs; store"):
        report("mixed", "pt2", tmp_path, **flags)


@pytest.mark.parametrize("form", FORMS)
def test_layers_are_listed_without_data(form: str, tmp_path: Path) -> None:
    arch = ARCH + "masked" if form == "state_dict" else None
    shape = (6,) if form in ("state_dict", "torchscript") else None
    model, layers = list_layers(written("masked", form, tmp_path), Settings(arch=arch, input_shape=shape))
    assert [layer.name for layer in layers.dense] == ["query", "key", "value", "out", "classifier"]
    assert math.prod(model.input.shape or ()) == 12 and not load_model(model.path, Settings(arch=arch)).input.parts


class Branching(Mixed):
    """Python code that no exporter follows."""

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        return super().forward(image, table if float(table.detach().sum()) < 1e9 else -table)


def test_a_module_that_cannot_be_exported_runs_as_it_is() -> None:
    network = Branching()
    network.load_state_dict(trained("mixed").state_dict())
    found = audit_model(network.eval(), pairs("mixed", "train"), pairs("mixed", "test"), **QUICK)
    assert np.allclose(found.outcomes.test.loss, losses("mixed", "test"), rtol=0, atol=1e-10)
    assert [(layer.name, layer.op) for layer in found.layers] == [(name, "linear") for name in ("see", "read", "head")]


def test_samples_are_copies_only_where_all_their_inputs_are(tmp_path: Path) -> None:
    (inputs, y), test = pairs("masked", "train"), split("masked", "test")
    other_mask = {key: values[:24].copy() for key, values in inputs.items()}
    other_mask["attention_mask"] = np.roll(inputs["attention_mask"], 1, axis=1)[:24]
    changed = (other_mask["attention_mask"] != inputs["attention_mask"][:24]).any(1)
    found = audit_model(trained("masked"), (inputs, y), (other_mask, y[:24]), **QUICK)
    assert changed.sum() > 5 and found.hygiene.duplicates_across_splits == int((~changed).sum())
    copied = {key: np.concatenate([test[key][:-2], inputs[key][:2]]) for key in inputs}
    labels = np.concatenate([test["y"][:-2], y[:2]])
    assert audit_model(trained("masked"), (inputs, y), (copied, labels), **QUICK).hygiene.leaked.copies == 2
