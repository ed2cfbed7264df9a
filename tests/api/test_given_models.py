"""A model in memory gives the numbers of its file, and its owner finds everything as it was."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from formats import audited_as, trained
from in_memory import assert_same, audited, numbers, pairs, wine
from tolerances import EXACT, SINGLE
from torch import nn

from audit import Policy, Rule
from audit.errors import ModelError, UsageError
from audit.model import sha256
from audit.model.torch.given import estimator_file


@pytest.mark.parametrize("name", ["tabular", "regression", "batch_norm"])
def test_a_module_gives_the_numbers_of_its_file(name: str, tmp_path: Path) -> None:
    from_file = audited_as("state_dict", name, tmp_path)
    from_memory = audited(copy.deepcopy(trained(name)).train(), *pairs(name))
    assert_same(numbers(from_memory), numbers(from_file))
    assert from_memory.model.parity is not None and from_memory.model.format == "module"


def test_a_file_and_a_folder_give_what_the_command_gives(tmp_path: Path) -> None:
    from_command = audited_as("onnx-13", "relu", tmp_path)
    lenient = Policy((Rule("gap.test_loss", "max", 10.0),))
    from_python = audited(tmp_path / "model13.onnx", str(tmp_path / "data"), policy=lenient)
    assert_same(numbers(from_python), numbers(from_command))


class Watched(nn.Module):
    """Everything that an audit could disturb: modes, statistics, gradients and hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
        self.seen: list[int] = []
        self.layers[1].eval()
        self.layers[0].register_forward_hook(lambda *_: SEEN.append(1))
        self.layers[4].register_full_backward_hook(lambda *_: SEEN.append(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(x)
        return scores


SEEN: list[int] = []


def test_the_caller_finds_everything_as_it_was() -> None:
    torch.manual_seed(3)
    network = Watched()
    network(torch.ones(4, 13)).sum().backward()
    SEEN.clear()
    state = copy.deepcopy(network.state_dict())
    grads = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    modes = [module.training for module in network.modules()]
    hooks = [len(module._forward_hooks) + len(module._backward_hooks) for module in network.modules()]
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    report = audited(network, *pairs("relu"))
    assert SEEN == [] and report.model.notes == ["2 hooks on the module's layers were left out."]
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(torch.equal(p.grad, grad) for p, grad in zip(network.parameters(), grads, strict=True))
    assert [module.training for module in network.modules()] == modes
    assert [len(module._forward_hooks) + len(module._backward_hooks) for module in network.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()


class Trained(nn.Module):
    """What is left on a module after training: a trainer, a loss with its history, weights behind old-style hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.network = copy.deepcopy(trained("relu"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.network[0] = nn.utils.weight_norm(self.network[0])
        self._trainer = SimpleNamespace(steps=(step for step in range(3)))  # nothing can copy a generator
        self.loss = self.network(torch.ones(2, 13)).sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(x)
        return scores


class Branching(Trained):
    """No exporter makes a graph of it."""

    def __init__(self) -> None:
        super().__init__()
        self.network[2] = nn.utils.parametrizations.weight_norm(self.network[2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(x) if x.sum() < 1e9 else -self.network(x)
        return scores


@pytest.mark.parametrize("kind", [Trained, Branching])
def test_a_module_fresh_from_training_is_audited_in_silence(
    kind: type[nn.Module], capfd: pytest.CaptureFixture[str]
) -> None:
    report = audited(kind(), *pairs("relu"))
    assert report.gap.test_loss == pytest.approx(wine().gap.test_loss, rel=SINGLE)
    assert capfd.readouterr() == ("", "")


def test_a_script_module_is_audited() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(copy.deepcopy(trained("relu")), torch.ones(3, 13))
    report = audited(script, *pairs("relu"))
    assert report.model.format == "torchscript"
    assert report.gap.test_loss == pytest.approx(wine().gap.test_loss, rel=EXACT)


def test_estimators_are_audited_as_they_answer() -> None:
    from sklearn.neural_network import MLPClassifier

    (x, y), (x_test, y_test) = pairs("relu")
    names = np.array(["barbera", "barolo", "grignolino"], dtype=object)
    estimator = MLPClassifier((6,), max_iter=60, random_state=0, solver="lbfgs").fit(x, names[y])
    report = audited(estimator, (x, names[y]), (x_test, names[y_test]))
    assert report.gap.test_accuracy == estimator.score(x_test, names[y_test])
    assert report.data.class_names == estimator.classes_.tolist()
    assert (report.model.path, report.model.format) == ("MLPClassifier", "scikit-learn")
    assert report.model.parity is not None and report.model.parity.against == "onnxruntime"
    with estimator_file(estimator) as again:
        assert report.model.sha256 == sha256(again)


def test_a_forest_is_refused_by_its_own_name() -> None:
    from sklearn.ensemble import RandomForestClassifier

    train, test = pairs("relu")
    forest = RandomForestClassifier(2).fit(*train)
    with pytest.raises(ModelError, match=r"^RandomForestClassifier: the model is made of decision trees"):
        audited(forest, train, test)


def test_estimators_need_their_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(UsageError, match=r"^LogisticRegression: .* needs skl2onnx; run pip install skl2onnx\.$"):
        audited(LogisticRegression(), *pairs("relu"))
