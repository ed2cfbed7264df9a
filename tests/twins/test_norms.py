"""Batch normalisation from an ONNX file: the same answers in use, statistics of its own in training."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from twin_cases import blobs, small_folder

from audit.model import load_model
from audit.run.pipeline import files_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe, read_weights
from audit.twins.kinds import chosen_kinds
from audit.twins.make import Wish, make_folder
from audit.twins.problem import set_problem, with_live_norms
from audit.twins.stack import AnyStack


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network, (x, y) = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3)), blobs()
    optimizer = torch.optim.SGD(network.parameters(), 0.2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    path, names = tmp_path_factory.mktemp("bn") / "bn.onnx", {"x": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.onnx.export(network.eval(), (x[:2],), buffer, input_names=["x"], dynamic_axes=names, dynamo=False)
    path.write_bytes(buffer.getvalue())
    return path


def test_it_answers_as_before(file: Path) -> None:
    network, (x, _) = load_model(file, Settings()).network, blobs()
    alive = with_live_norms(copy.deepcopy(network)).eval()
    torch.testing.assert_close(alive(x), network(x), rtol=1e-5, atol=1e-6)
    assert "2.running_mean" in alive.state_dict()


def test_its_twins_learn_their_own_statistics(file: Path, tmp_path: Path) -> None:
    problem = set_problem(files_of(file, small_folder(tmp_path / "data")), Settings(), Progress())
    wish = Wish(kinds=chosen_kinds(["plain"]), count=2, recipe=Recipe(rate=0.2, batch=20))
    made = make_folder(problem, tmp_path / "twins", wish)
    first, second = (read_weights(tmp_path / "twins", twin)["2.running_mean"] for twin in made.twins)
    assert all(twin.reached and twin.numbers for twin in made.twins)
    assert abs(first - second).max() > 1e-3


class NoVmap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float(x.abs().max() > 0)  # a number out of a tensor: vmap refuses


def test_what_vmap_does_not_know_is_run_one_by_one() -> None:
    network, (x, _) = NoVmap().eval().requires_grad_(False), blobs()
    stack = AnyStack(network, {name: torch.stack([value, 2 * value]) for name, value in network.named_parameters()})
    found = stack.scores(x.expand(2, *x.shape))
    torch.testing.assert_close(found[1], 2 * network(x), rtol=1e-5, atol=1e-6)
