"""Weights with --arch, pickled modules with --trust-pickle; without the flag no pickle runs, whatever its name."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_networks
from safetensors.torch import save_file, save_model
from tolerances import CANCELS
from torch import nn
from torch_networks import CASES, check_same_network, check_second_derivative, mlp

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.base import Model
from audit.settings import Settings

WEIGHTS = ["relu", "lenet", "lstm", "tied", "softmax"]
REST = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in WEIGHTS]


@pytest.fixture
def arch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`arch(name)`: a --arch that builds the case, untrained."""

    def make(name: str) -> str:
        monkeypatch.setattr(torch_networks, "build", CASES[name].build, raising=False)
        return "torch_networks:build"

    return make


def loaded(name: str, path: Path, **settings: Any) -> Model:
    model = load_model(path, Settings(**settings))
    assert model.input.shape is None
    return canonical_form(model, CASES[name].inputs(), settings=Settings(**settings))


@pytest.mark.parametrize("name", [*WEIGHTS, *REST])
def test_a_state_dict_comes_back_as_itself(name: str, tmp_path: Path, arch: Any) -> None:
    torch.save(CASES[name].network().state_dict(), tmp_path / "m.pth")
    model = loaded(name, tmp_path / "m.pth", arch=arch(name))
    check_same_network(model, CASES[name])
    assert (model.format, model.reference_name, model.input.batch) == ("state_dict", "PyTorch", None)
    x = CASES[name].inputs()
    if x.is_floating_point():
        check_second_derivative(copy.deepcopy(model.network).double(), x.double())


@pytest.mark.parametrize("name", ["relu", "tokens"])
def test_safetensors_come_back_as_themselves(name: str, tmp_path: Path, arch: Any) -> None:
    save_model(CASES[name].network(), str(tmp_path / "m.safetensors"))
    model = loaded(name, tmp_path / "m.safetensors", arch=arch(name))
    check_same_network(model, CASES[name])
    assert model.format == "safetensors"


@pytest.mark.parametrize("new_format", [True, False])
def test_a_pickled_module_needs_trust(new_format: bool, tmp_path: Path) -> None:
    torch.save(CASES["residual"].network(), tmp_path / "m.pt", _use_new_zipfile_serialization=new_format)
    with pytest.raises(ModelError) as refused:
        load_model(tmp_path / "m.pt", Settings())
    for words in (
        "m.pt: holds pickled Python objects",
        "unpickling runs code",
        "state_dict",
        "--arch",
        ".pt2",
        "--trust-pickle",
    ):
        assert words in str(refused.value)
    model = loaded("residual", tmp_path / "m.pt", trust_pickle=True)
    check_same_network(model, CASES["residual"])
    assert model.format == "pickle"
    assert "The file was unpickled, as --trust-pickle allows." in model.notes


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_training_checkpoint_is_unwrapped(key: str, tmp_path: Path, arch: Any) -> None:
    torch.save({key: CASES["relu"].network().state_dict(), "epoch": 7, "optimizer": {"state": {}}}, tmp_path / "m.pt")
    model = loaded("relu", tmp_path / "m.pt", arch=arch("relu"))
    check_same_network(model, CASES["relu"])
    assert f"The weights were taken from the entry {key!r} of a training checkpoint." in model.notes


@pytest.mark.parametrize("prefixes", [("module.",), ("_orig_mod.",), ("module.", "_orig_mod."), ("model.",)])
def test_prefixes_of_wrappers_are_taken_off(prefixes: tuple[str, ...], tmp_path: Path, arch: Any) -> None:
    state = CASES["relu"].network().state_dict()
    torch.save({"".join(prefixes) + name: value for name, value in state.items()}, tmp_path / "m.pt")
    model = load_model(tmp_path / "m.pt", Settings(arch=arch("relu")))
    assert [note for note in model.notes if "prefix" in note] == [
        f"The prefix {prefix!r} was taken off the names of the weights." for prefix in prefixes
    ]
    assert torch.equal(model.network.state_dict()["fc1.weight"], state["fc1.weight"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_float_types(dtype: torch.dtype, tmp_path: Path, arch: Any) -> None:
    network = CASES["relu"].network().to(dtype)
    torch.save(network.state_dict(), tmp_path / "m.pt")
    model = loaded("relu", tmp_path / "m.pt", arch=arch("relu"))
    x = CASES["relu"].inputs().double()
    expected = network.double()(x).detach()
    torch.testing.assert_close(copy.deepcopy(model.network).double()(x), expected, rtol=0, atol=CANCELS)
    assert model.input.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert model.reference is not None
    np.testing.assert_allclose(model.reference(x.numpy()), expected, atol=CANCELS if dtype == torch.float64 else 1e-5)


def test_weights_without_arch(tmp_path: Path) -> None:
    torch.save(mlp(nn.ReLU).state_dict(), tmp_path / "m.pt")
    with pytest.raises(
        ModelError,
        match=r"m.pt: holds weights only \(4 tensors, such as fc1.weight\); name the code .* --arch package",
    ):
        load_model(tmp_path / "m.pt", Settings())


def test_keys_that_do_not_fit_are_counted_and_named(tmp_path: Path, arch: Any) -> None:
    state = mlp(nn.ReLU).state_dict()
    state["fc9.weight"] = state.pop("fc1.weight")
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(
        ModelError,
        match=r"does not fit --arch torch_networks:build: of its weights, 1 missing from the file \(fc1.weight\) "
        r"and 1 unknown to the network \(fc9.weight\); pass the code that built this file",
    ):
        load_model(tmp_path / "m.pt", Settings(arch=arch("relu")))


def test_shapes_that_do_not_fit_are_shown(tmp_path: Path, arch: Any) -> None:
    state = mlp(nn.ReLU).state_dict()
    state["fc1.weight"] = torch.zeros(8, 5)
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(
        ModelError,
        match=r"fc1.weight is \[8, 5\] in the file and \[8, 6\] in the network; pass the code that built this file",
    ):
        load_model(tmp_path / "m.pt", Settings(arch=arch("relu")))


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        (torch.zeros(3, 4), r"one tensor of shape \[3, 4\]"),
        ([torch.zeros(3)], "an object of type builtins.list"),
        ({"epoch": 3, "loss": 0.5}, "a dictionary with 'epoch', 'loss'"),
        ({}, "an empty dictionary"),
    ],
)
def test_tensors_that_are_no_state_dict(contents: object, what: str, tmp_path: Path) -> None:
    torch.save(contents, tmp_path / "m.pt")
    with pytest.raises(ModelError, match=rf"m.pt: holds {what}, not a state_dict"):
        load_model(tmp_path / "m.pt", Settings())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_nan_is_named(suffix: str, tmp_path: Path, arch: Any) -> None:
    state = mlp(nn.ReLU).state_dict()
    state["fc2.bias"][1] = float("nan")
    torch.save(state, tmp_path / "m.pt")
    save_file(state, tmp_path / "m.safetensors")
    with pytest.raises(ModelError, match=r"fc2.bias holds 1 NaN or infinite values"):
        load_model(tmp_path / f"m{suffix}", Settings(arch=arch("relu")))


@pytest.mark.parametrize("name", ["m.pt", "old.pt", "m.safetensors"])
@pytest.mark.parametrize("share", [0.3, 0.95])
def test_truncated_files_are_a_sentence(name: str, share: float, tmp_path: Path) -> None:
    state = mlp(nn.ReLU).state_dict()
    torch.save(state, tmp_path / "m.pt")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    save_file(state, tmp_path / "m.safetensors")
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelError, match=rf"{name}: is truncated"):
        load_model(tmp_path / name, Settings())


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


SAVERS = {
    "torch.save": lambda value, path: torch.save(value, path),
    "the old torch.save": lambda value, path: torch.save(value, path, _use_new_zipfile_serialization=False),
    **{f"pickle {n}": lambda value, path, n=n: path.write_bytes(pickle.dumps(value, n)) for n in range(6)},
}


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.pt2", "m.ts", "m.onnx", "m.safetensors", "m.bin", "m.csv", "m"])
def test_no_pickle_runs_whatever_its_name(name: str, saver: str, tmp_path: Path, arch: Any) -> None:
    it_ran = tmp_path / "it_ran"
    SAVERS[saver](
        {"weight": torch.zeros(2), "bomb": Bomb(it_ran)} if "torch" in saver else Bomb(it_ran), tmp_path / name
    )
    with pytest.raises(ModelError, match=rf"{name}: "):
        load_model(tmp_path / name, Settings(arch=arch("relu")))
    assert not it_ran.exists()


def test_the_bombs_are_real(tmp_path: Path) -> None:
    it_ran = tmp_path / "it_ran"
    torch.save({"weight": torch.zeros(2), "bomb": Bomb(it_ran)}, tmp_path / "m.pt")
    with pytest.raises(ModelError):
        load_model(tmp_path / "m.pt", Settings(trust_pickle=True))
    assert it_ran.exists()


def test_a_trusted_pickle_that_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(ModelError, match=r"m.pkl: .*"):
        load_model(tmp_path / "m.pkl", Settings(trust_pickle=True))
