from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from made_audits import as_model
from torch import nn
from zoo import ZOO, build

from audit.errors import ModelError
from audit.model.base import InputSpec, Model
from audit.run.list_layers import example_input, list_layers
from audit.settings import Settings


def unsaid(network: nn.Module) -> Model:
    """A model whose file does not say what it takes."""
    model = as_model(network.float(), ())
    return Model(**{**model.__dict__, "input": InputSpec("x", None)})


@pytest.mark.parametrize("name", [name for name in ZOO if name not in ("lenet", "tokens-second-axis")])
def test_a_shape_is_found_that_the_network_accepts(name: str) -> None:
    network, _, _ = build(name)
    model = unsaid(network)
    with torch.no_grad():
        assert len(model.network(example_input(model))) >= 2


def test_open_sizes_of_a_declared_shape_are_filled_in() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))
    model = as_model(network, ())
    free = Model(**{**model.__dict__, "input": InputSpec("x", (1, None, None))})
    assert example_input(free).shape[1] == 1


def test_where_none_fits_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        example_input(unsaid(nn.Sequential(nn.Unflatten(1, (3, 7)), nn.Flatten(), nn.Linear(21, 2), nn.Linear(5, 2))))
    assert str(caught.value) == (
        "model: the file does not say what input shape it takes and none could be guessed; say it with --input-shape, "
        "such as --input-shape 3,32,32."
    )


def test_a_shape_that_is_said_is_taken_or_refused() -> None:
    model = unsaid(nn.Sequential(nn.Unflatten(1, (3, 7)), nn.Flatten(), nn.Linear(21, 2)))
    assert example_input(model, (21,)).shape[1:] == (21,)
    with pytest.raises(ModelError, match="does not run on samples of --input-shape 3,7; give the shape it takes"):
        example_input(model, (3, 7))


def test_torchscript_layers_are_listed_without_data(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        torch.jit.trace(network, torch.randn(2, 6)).save(str(tmp_path / "model.ts"))
    _, layers = list_layers(tmp_path / "model.ts", Settings())
    assert [(layer.in_features, layer.out_features) for layer in layers.dense] == [(6, 7), (7, 3)]
