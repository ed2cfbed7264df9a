"""The audit from Python: the command line's numbers, and a caller who finds everything as it was."""

from __future__ import annotations

import copy
import json
import os
import random
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from twins import EXACT, QUICK, SINGLE, audited_as, data_of, trained

from audit import AuditError, Policy, PolicyFailed, Report, Rule, audit_model
from audit.data.given import given_data
from audit.errors import DataError, ModelError, UsageError
from audit.model.detect import sha256
from audit.model.given import estimator_file
from audit.render.notebook import render_notebook
from audit.settings import Settings

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "tests" / "render" / "example_report.json"
OF_THE_FILE = ("created", "timings", "command", "settings", "data", "model", "tool")


def pairs(name: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    data = data_of(name)
    return (data.x_train, data.y_train), (data.x_test, data.y_test)


def tensors(name: str) -> list[TensorDataset]:
    return [TensorDataset(*map(torch.from_numpy, pair)) for pair in pairs(name)]


def audited(model: Any, train: Any, test: Any = None, **settings: Any) -> Report:
    return audit_model(model, train, test, **(QUICK | settings))


def numbers(report: Report | dict[str, Any]) -> dict[str, Any]:
    values = json.loads(report.to_json()) if isinstance(report, Report) else report
    return {key: value for key, value in values.items() if key not in OF_THE_FILE}


def assert_same(a: Any, b: Any, path: str = "") -> None:
    """Every word alike, and every number to EXACT."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for index, each in enumerate(zip(a, b, strict=True)):
            assert_same(*each, f"{path}.{index}")
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=EXACT, abs=EXACT), path
    else:
        assert a == b, path


@pytest.fixture(scope="module")
def wine() -> Report:
    return audited(trained("relu"), *pairs("relu"))


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


def test_however_the_samples_are_handed_over_the_numbers_are_the_same(wine: Report) -> None:
    train, test = tensors("relu")
    torch.manual_seed(5)
    shuffled = DataLoader(OneHot(train), batch_size=7, shuffle=True, drop_last=True)
    one_hot = (data_of("relu").x_test.tolist(), np.eye(3)[data_of("relu").y_test])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        report = audited(nn.DataParallel(trained("relu")), shuffled, one_hot)
    assert "The train loader was read in the order of its data set, every sample once." in report.data.notes
    assert_same(numbers(report)["gap"], numbers(wine)["gap"])
    stream = audited(trained("relu"), Stream(train), test)
    assert_same(numbers(stream), numbers(wine))
    assert stream.data.sha256 == wine.data.sha256 and stream.model.sha256 == wine.model.sha256


class OneHot(Dataset):  # type: ignore[type-arg]
    def __init__(self, inner: TensorDataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.inner[index]
        return x, nn.functional.one_hot(y, 3)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, inner: TensorDataset) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return (self.inner[index] for index in range(len(self.inner)))


def test_a_sampler_of_a_subset_makes_the_split() -> None:
    train, test = tensors("relu")
    rows = [40, 3, 100, *range(50, 90)]
    split = given_data(DataLoader(train, 8, sampler=SubsetRandomSampler(rows)), test, Settings()).train
    x, y = pairs("relu")[0]
    assert (split.x == x[sorted(rows)]).all() and (split.y == y[sorted(rows)]).all()


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7, "shuffle": True, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 8, "sampler": WeightedRandomSampler([1.0] * 110, 30)},
        {"batch_size": 8, "sampler": DistributedSampler(range(110), num_replicas=2, rank=0)},  # type: ignore[arg-type]
        {"batch_sampler": BatchSampler(RandomSampler(range(110)), 9, drop_last=False)},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_sample_is_read_once_and_in_order(options: dict[str, Any]) -> None:
    train, test = tensors("relu")
    split = given_data(DataLoader(train, **options), test, Settings()).train
    assert (split.x == data_of("relu").x_train).all() and (split.y == data_of("relu").y_train).all()


class Jittered(Dataset):  # type: ignore[type-arg]
    """Random augmentation."""

    def __len__(self) -> int:
        return 110

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = data_of("relu").x_train[index], data_of("relu").y_train[index]
        return torch.from_numpy(x) + 0.01 * torch.randn(13), int(y)


def test_samples_that_change_from_reading_to_reading_are_named() -> None:
    notes = given_data(Jittered(), pairs("relu")[1], Settings()).notes
    assert any("The train samples change from reading to reading" in note for note in notes)


def test_a_share_can_be_held_out() -> None:
    data = given_data(pairs("relu")[0], None, Settings(test_fraction=0.3))
    assert (len(data.train), len(data.test), data.split_is_ours) == (77, 33, True)


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
    kind: type[nn.Module], wine: Report, capfd: pytest.CaptureFixture[str]
) -> None:
    report = audited(kind(), *pairs("relu"))
    assert report.gap.test_loss == pytest.approx(wine.gap.test_loss, rel=SINGLE)
    assert capfd.readouterr() == ("", "")


def test_a_script_module_is_audited(wine: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(copy.deepcopy(trained("relu")), torch.ones(3, 13))
    report = audited(script, *pairs("relu"))
    assert report.model.format == "torchscript"
    assert report.gap.test_loss == pytest.approx(wine.gap.test_loss, rel=EXACT)


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo: object) -> nn.Module:
        raise TypeError("cannot pickle '_thread.lock' object")


NO_PAIR = r"give a pair \(x, y\), or a torch Dataset or DataLoader that yields such pairs\.$"


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"model": 3}, UsageError, r"^audit_model: a int is no model; give an nn\.Module, a scikit-learn"),
        ({"model": Uncopyable(13, 3)}, ModelError, r"^Uncopyable: cannot be copied \(cannot pickle '_thread\.lock'"),
        (
            {"model": nn.LazyLinear(3)},
            ModelError,
            r"^LazyLinear: a lazy layer has no weights yet; train it, or run one",
        ),
        ({"train": np.ones((4, 13))}, DataError, rf"^train: a ndarray holds no labelled samples; {NO_PAIR}"),
        ({"test": DataLoader([{"x": 1, "y": 2}] * 4)}, DataError, rf"^test: holds a dict where samples .*; {NO_PAIR}"),
        ({"train": DataLoader([(1, 2, 3)] * 4)}, DataError, rf"^train: holds 3 parts where samples .*; {NO_PAIR}"),
        ({"train": DataLoader([])}, DataError, rf"^train: yields no samples; {NO_PAIR}"),
        (
            {"train": ([[1, 2], [3]], [0, 1])},
            DataError,
            r"^train: x: its rows differ in shape; give them all one shape",
        ),
        ({"train": (np.ones((4, 13)), [0, 1])}, DataError, r"^train: x holds 4 samples but y holds 2 labels"),
        ({"train": (np.ones((4, 13)), [{}] * 4)}, DataError, r"^train: y: a list is no array of numbers; give NumPy"),
        (
            {"test": (np.ones((4, 13)), np.eye(4))},
            DataError,
            r"^data in memory: train has one label per sample and test 4",
        ),
        ({"train": "folder"}, UsageError, r"^audit_model: train is a folder, which holds its own test split"),
        ({"sample": 3}, UsageError, r"^audit_model: there is no setting 'sample'; the nearest one is 'samples'\.$"),
    ],
)
def test_errors_are_sentences(changes: dict[str, Any], kind: type[AuditError], sentence: str) -> None:
    train, test = pairs("relu")
    with pytest.raises(kind, match=sentence):
        audit_model(**{"model": trained("relu"), "train": train, "test": test, **changes})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"policy": {"finding.nosuch": {}}}, "policy: [policy.finding.nosuch]: there is no finding 'nosuch'; "),
        ({"policy": 3}, "policy: 3 is none; give a Policy, a file, or rules in a dictionary."),
        ({"policy": {"gap.test_error": {"max": 1}}, "baseline": "report.json"}, "baseline: 'report.json' is no Report"),
        ({"baseline": Report.from_json(EXAMPLE.read_text(encoding="utf-8"))}, "baseline: only a policy compares"),
    ],
)
def test_a_gate_that_cannot_be_is_refused_before_the_model_is_looked_at(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        audit_model("no such model", "no such data", **given)
    assert str(caught.value).startswith(sentence)


def test_a_failed_policy_raises_with_report_and_verdict() -> None:
    train, test = pairs("relu")
    strict = {"gap.test_loss": {"max": 0.0}, "check.determinism": {}}
    with pytest.raises(PolicyFailed, match=r"^Sequential: fails 1 of 2 rules: gap\.test_loss\.max: ") as failure:
        audited(trained("relu"), train, test, policy=strict)
    assert failure.value.exit_code == 1
    assert not failure.value.verdict.passed and failure.value.report.gap.test_loss > 0


def test_a_report_checks_itself(wine: Report, tmp_path: Path) -> None:
    file = tmp_path / "gen-audit.toml"
    file.write_text("[policy.gap.test_loss]\nmax = 0.0\n", encoding="utf-8")
    assert not wine.check(file).passed
    by_default = wine.check(baseline=wine)
    assert by_default.passed and by_default.baseline == "Sequential"


def test_a_report_saves_itself(wine: Report, tmp_path: Path) -> None:
    paths = wine.save(tmp_path / "out", "json, md,hf")
    assert [path.name for path in paths] == ["report.json", "report.md", "report.model-index.yml"]
    assert_same(numbers(Report.from_json(paths[0].read_text(encoding="utf-8"))), numbers(wine))
    with pytest.raises(UsageError, match=r"^formats: 'docx' is no format that exists; choose among html, pdf,"):
        wine.save(tmp_path / "out", ["docx"])


def test_a_notebook_shows_text_as_text(wine: Report) -> None:
    values = json.loads(wine.to_json())
    values["model"]["path"] = values["findings"][0]["title"] = "<script>alert(1)"
    values["warnings"] = ["<b>void</b>"]
    shown = render_notebook(values)
    assert "<script>" not in shown and "&lt;b&gt;void" in shown
    assert shown.count("&lt;script&gt;") == 2
    assert shown.count("<details") == len(values["findings"])
    assert "3.33 %" in wine._repr_html_()


def test_importing_the_package_wakes_nothing_heavy() -> None:
    code = "import audit, sys; woken = set(sys.modules); audit.Policy, audit.Report\n"
    code += "print({'numpy', 'pydantic'} & woken or {'torch', 'onnx'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_public_name_is_there() -> None:
    import audit

    assert all(getattr(audit, name) is not None for name in audit.__all__)
    with pytest.raises(AttributeError, match="module 'audit' has no attribute 'audit_models'"):
        audit.audit_models  # noqa: B018


@pytest.mark.parametrize("sample", sorted((ROOT / "samples" / "api").glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_run(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(sample), run_name="__main__")
    last = {
        "pytorch": "gen-audit-report/report.json",
        "lightning_style": "still training: True",
        "scikit_learn": "passed",
    }
    assert capsys.readouterr().out.strip().endswith(last[sample.stem])
