"""canonical_form: modules become canonical graphs, and what cannot be exported still runs as it is."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerances import CANCELS
from torch import Tensor, nn
from torch_networks import CASES, Case, check_same_network, mlp, save_pt2

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.base import InputSpec, Model, accepts
from audit.settings import Settings


def as_loaded(network: nn.Module, path: Path) -> Model:
    path.touch()
    spec = InputSpec("x", None)
    return Model(network=network.eval(), path=path, format="pickle", sha256="", input=spec, output="")


class Unexportable(nn.Module):
    """Its number of layers depends on a value, which no graph can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(6, 6), nn.Linear(6, 3), nn.Softmax(-1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.fc1(x)
        if float(h.detach().sum()) > -1e9:
            h = torch.relu(h)
        return {"probabilities": self.head(self.fc2(h)), "label": h.argmax(-1)}


def test_what_cannot_be_exported_runs_as_it_is(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, x = Unexportable().eval(), torch.randn(4, 6)
    model = canonical_form(as_loaded(network, tmp_path / "m"), x)
    assert (model.head, model.output, model.input.batch) == ("softmax", "probabilities", None)
    assert {path: model.names[path] for path in model.ops} == {"network.fc1": "fc1", "network.fc2": "fc2"}
    assert model.notes[0].startswith("The network could not be exported as a graph (")
    expected = copy.deepcopy(network).double()(x.double())["probabilities"]
    torch.testing.assert_close(
        copy.deepcopy(model.network).double()(x.double()).softmax(-1), expected, rtol=0, atol=CANCELS
    )
    assert model.reference is not None
    np.testing.assert_allclose(model.reference(x.numpy()), expected.detach(), atol=1e-6)
    assert isinstance(network.head, nn.Softmax)  # the user's own module is left alone


def test_a_canonical_model_is_returned_unchanged(tmp_path: Path) -> None:
    model = load_model(save_pt2(mlp(nn.ReLU).eval(), torch.randn(4, 6), tmp_path / "m.pt2"), Settings())
    assert canonical_form(model, torch.randn(4, 6)) is model


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_any_number_of_examples_will_do(rows: int, tmp_path: Path) -> None:
    case = CASES["lenet"]
    model = canonical_form(as_loaded(case.network(), tmp_path / "m"), torch.randn(rows, 1, 10, 10))
    check_same_network(model, case)


def test_tokens_stored_as_floats_are_fed_as_integers(tmp_path: Path) -> None:
    case = CASES["tokens"]
    model = canonical_form(as_loaded(case.network(), tmp_path / "m"), case.inputs().float())
    assert model.input.dtype == torch.int64
    check_same_network(model, case)


class Regions(nn.Module):
    """Parts under no_grad and with a stopped gradient are part of the function all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.fc = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = torch.tanh(self.trunk(x))
        return self.fc(h) + self.fc(h.detach() * 0.5)


def test_no_grad_regions_are_written_out(tmp_path: Path) -> None:
    case = Case(Regions, lambda: torch.randn(4, 6), ("trunk", "fc"))
    model = canonical_form(as_loaded(case.network(), tmp_path / "m"), case.inputs())
    check_same_network(model, case)
    x = case.inputs().requires_grad_()
    (gradient,) = torch.autograd.grad(model.network(x).sum(), x)
    assert gradient.abs().min() > 0


class Baked(nn.Module):
    """Float types written into the forward: constants, masks and casts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        ramp = torch.arange(6, device=x.device) / 3
        mask = torch.full((6,), 0.1, dtype=x.dtype) + torch.zeros(6) + (x > 0).to(x.dtype).mean(0, keepdim=True) * 0
        return self.fc((x + self.shift) * mask + ramp.to(x.dtype) * 0 + torch.ones_like(x))


def test_float_types_follow_the_weights(tmp_path: Path) -> None:
    case = Case(Baked, lambda: torch.randn(4, 6), ("fc",))
    model = canonical_form(as_loaded(case.network(), tmp_path / "m"), case.inputs())
    check_same_network(model, case)
    assert model.network(case.inputs()).dtype == torch.float32


def test_weight_norm_is_a_dense_layer(tmp_path: Path) -> None:
    case = Case(
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))), lambda: torch.randn(4, 6), ("0",)
    )
    model = canonical_form(as_loaded(case.network(), tmp_path / "m"), case.inputs())
    assert list(model.ops) == ["0"]
    x = case.inputs()
    torch.testing.assert_close(model.network(x), case.network()(x), rtol=1e-5, atol=1e-6)
    assert [name for name, _ in model.network.named_parameters()] == ["0.weight", "0.bias"]


def test_an_elementwise_head_is_found_beneath_a_change_of_shape(tmp_path: Path) -> None:
    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.fc(x)).squeeze(-1)

    model = canonical_form(as_loaded(Squeezed(), tmp_path / "m"), torch.randn(4, 6))
    assert model.head == "sigmoid"
    assert model.network(torch.randn(5, 6)).shape == (5, 1)


def test_a_softmax_over_another_axis_or_inside_stays(tmp_path: Path) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x).softmax(-1) * 2

    model = canonical_form(as_loaded(Inside(), tmp_path / "m"), torch.randn(4, 6))
    assert model.head == "none"


def test_a_wrong_shape_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not run on samples of shape \[5\] \(.+\); check the shape of the data"):
        canonical_form(as_loaded(mlp(nn.ReLU), tmp_path / "m"), torch.randn(4, 5))


def test_accepts(tmp_path: Path) -> None:
    plain = as_loaded(CASES["lenet"].network(), tmp_path / "m")
    assert accepts(plain, (1, 10, 10)) and not accepts(plain, (100,)) and not accepts(plain, (3, 10, 10))
    assert accepts(as_loaded(CASES["tokens"].network(), tmp_path / "m"), (9,))
    known = load_model(save_pt2(mlp(nn.ReLU).eval(), torch.randn(4, 6), tmp_path / "m.pt2"), Settings())
    assert accepts(known, (6,)) and not accepts(known, (5,)) and not accepts(known, (1, 6))


class Capped(nn.Module):
    """A softmax whose answer is written to afterwards, in code that cannot be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        p = self.fc(x).softmax(-1)
        if float(p.detach().sum()) > 0:
            p[:, 0] = 0.5 * p[:, 0]
        return p


def test_what_is_written_to_is_no_final_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = canonical_form(as_loaded(Capped(), tmp_path / "m"), torch.randn(4, 6))
    assert model.head == "none"
    assert model.notes[0].startswith("The network could not be exported as a graph (")


def test_the_row_of_a_lone_sample(tmp_path: Path) -> None:
    class Lone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x).reshape(3)

    model = load_model(save_pt2(Lone().eval(), torch.randn(1, 6), tmp_path / "m.pt2", dynamic=False), Settings())
    assert model.input.batch == 1 and model.network(torch.randn(1, 6)).shape == (1, 3)
