"""TorchScript: traced or scripted, with branches or without, it becomes the same canonical network."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tolerances import CANCELS
from torch import Tensor, nn
from torch_networks import CASES, Case, check_same_network, save_script, silent

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.base import Model
from audit.settings import Settings

TRACED = ["relu", "batch_norm", "lenet", "cross_attention", "tied", "softmax"]
SCRIPTED = ["relu", "gelu_dropout", "lstm", "attention", "tokens"]
FUSED = {"attention": "aten::_native_multi_head_attention", "encoder": "aten::_transformer_encoder_layer_fwd"}
REST = [
    pytest.param(name, kind, marks=pytest.mark.slow)
    for kind, done in (("traced", TRACED), ("scripted", SCRIPTED))
    for name in CASES
    if name not in done and (name, kind) != ("tokens", "traced")
]


def loaded(case: Case, path: Path, **settings: Any) -> Model:
    model = load_model(path, Settings(**settings))
    assert model.input.shape is None
    return canonical_form(model, case.inputs(), settings=Settings(**settings))


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "traced") for name in TRACED), *((name, "scripted") for name in SCRIPTED), *REST]
)
def test_comes_back_as_itself(name: str, kind: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = loaded(case, save_script(case.network(), case.inputs(), tmp_path / "m.pt", kind))
    check_same_network(model, case)
    assert (model.format, model.reference_name, model.input.batch) == ("torchscript", "TorchScript", None)
    if (name, kind) == ("attention", "scripted"):
        assert any("recorded as it ran" in note for note in model.notes)


@pytest.mark.parametrize("name", ["attention", pytest.param("encoder", marks=pytest.mark.slow)])
def test_the_fused_fast_path_of_no_grad_is_opened(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = save_script(case.network(), case.inputs(), tmp_path / "m.pt", "traced under no_grad")
    with silent():
        assert FUSED[name] in str(torch.jit.load(path).inlined_graph)
    check_same_network(loaded(case, path), case)


def test_a_tied_weight_in_a_trace_goes_by_its_first_name(tmp_path: Path) -> None:
    case = CASES["tokens"]
    model = loaded(case, save_script(case.network(), case.inputs(), tmp_path / "m.pt", "traced"))
    assert [model.names.get(path, path) for path in model.ops] == ["fc", "emb"]


def test_frozen_weights_have_numbers_for_names(tmp_path: Path) -> None:
    case = CASES["relu"]
    with silent():
        torch.jit.freeze(torch.jit.script(case.network())).save(tmp_path / "m.pt")
    model = loaded(case, tmp_path / "m.pt")
    assert list(model.ops) == ["layer", "layer_2"]
    x = case.inputs()
    torch.testing.assert_close(model.network.double()(x.double()), case.answers(x), rtol=0, atol=CANCELS)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.fc:
            x = torch.tanh(layer(x))
        if x.dim() == 3:
            x = x.mean(1)
        rows: list[Tensor] = []
        for _ in range(2):
            rows.append(x)
        return self.out(torch.stack(rows).sum(0).view(x.size(0), 6))


def test_branches_and_loops(tmp_path: Path) -> None:
    case = Case(Branching, lambda: torch.randn(4, 6), ("fc.0", "fc.1", "out"))
    model = loaded(case, save_script(case.network(), case.inputs(), tmp_path / "m.pt", "scripted"))
    check_same_network(model, case)


def test_what_cannot_become_a_graph_is_refused(tmp_path: Path) -> None:
    class Moody(nn.Module):
        """Runs another number of layers for another batch size."""

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(x.size(0)):
                x = torch.tanh(self.fc(x))
            return x

    path = save_script(Moody(), torch.randn(4, 6), tmp_path / "m.pt", "scripted")
    with pytest.raises(
        ModelError,
        match=r"m.pt: this TorchScript cannot be turned into a differentiable graph \(.+\); audit the source model",
    ):
        canonical_form(load_model(path, Settings()), torch.randn(4, 6))


def test_training_mode_baked_into_a_trace_is_refused(tmp_path: Path) -> None:
    case = CASES["gelu_dropout"]
    path = save_script(case.network().train(), case.inputs(), tmp_path / "m.pt", "traced")
    with pytest.raises(ModelError, match=r"was exported in training mode \(dropout is on\); call model.eval\(\)"):
        loaded(case, path)


def test_nan_weights_are_named(tmp_path: Path) -> None:
    case = CASES["relu"]
    network = case.network()
    network.fc1.bias.data[0] = float("inf")
    with pytest.raises(ModelError, match=r"fc1.bias holds 1 NaN or infinite values"):
        load_model(save_script(network, case.inputs(), tmp_path / "m.pt", "traced"), Settings())


def test_code_that_writes_files_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    class Writer(nn.Module):
        def __init__(self, file: str) -> None:
            super().__init__()
            self.fc, self.file = nn.Linear(6, 3), file

        def forward(self, x: Tensor) -> Tensor:
            torch.save(x, self.file)
            return self.fc(x)

    target = tmp_path / "written"
    with silent():
        torch.jit.script(Writer(str(target))).save(tmp_path / "m.pt")
    with pytest.raises(ModelError, match="its code calls aten::save, which a network has no need of"):
        load_model(tmp_path / "m.pt", Settings())
    assert not target.exists()


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("member", ["data.pkl", "constants.pkl"])
@pytest.mark.parametrize("trusted", [False, True])
def test_no_pickle_in_the_archive_runs(member: str, trusted: bool, tmp_path: Path) -> None:
    case, it_ran = CASES["relu"], tmp_path / "it_ran"
    save_script(case.network(), case.inputs(), tmp_path / "m.pt", "scripted")
    with zipfile.ZipFile(tmp_path / "m.pt") as old, zipfile.ZipFile(tmp_path / "evil.ts", "w") as new:
        for name in old.namelist():
            evil = name.endswith(f"/{member}")
            new.writestr(name, pickle.dumps(Bomb(it_ran), 2) if evil else old.read(name))
    with pytest.raises(ModelError, match="is truncated or corrupt TorchScript"):
        load_model(tmp_path / "evil.ts", Settings(trust_pickle=trusted))
    assert not it_ran.exists()


def test_a_truncated_script_is_a_sentence(tmp_path: Path) -> None:
    path = save_script(CASES["relu"].network(), CASES["relu"].inputs(), tmp_path / "m.ts", "scripted")
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ModelError, match=r"m.ts: is truncated or corrupt"):
        load_model(path, Settings())
