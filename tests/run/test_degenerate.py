"""Degenerate cases, from file to JSON: each ends in a report with a sentence, or in a refusal; never in NaN."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from degenerate import RECIPES, Recipe, audited_arrays
from formats import Splits
from hypothesis import HealthCheck, example, given, settings
from tolerances import ROUNDING
from torch import nn

from audit.errors import AuditError, ModelError
from audit.run.assemble import OVERFLOW

HONEST = {"single-precision"}  # float32 really cannot hold what float64 can


def audit_of(recipe: Recipe) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = audited_arrays(recipe.network(), recipe.data(), Path(folder), task=recipe.task)
        except AuditError as refusal:
            assert str(refusal).endswith(".") and "\n" not in str(refusal)
            assert OVERFLOW not in str(refusal) or max(recipe.weights, recipe.size, recipe.targets) > 1e3
            return
    failed = {check["id"] for check in report["checks"] if check["kind"] == "check" and check["status"] == "failed"}
    assert failed <= HONEST


LARGE_SCORES = Recipe(
    **{"seed": 2283, "inputs": 2, "hidden": 1, "outputs": 4, "depth": 0, "activation": "none", "bias": False},
    **{"task": "classification", "weights": 1.0, "size": 1e3, "targets": 1.0, "rows": "plain", "train": 3, "test": 2},
)  # type: ignore[arg-type]
LARGE_SQUARES = Recipe(
    **{"seed": 1, "inputs": 1, "hidden": 1, "outputs": 2, "depth": 1, "activation": "gelu", "bias": False},
    **{"task": "regression", "weights": 1e30, "size": 1e30, "targets": 1.0, "rows": "constant", "train": 3, "test": 2},
)  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(RECIPES)
@example(LARGE_SCORES)
def test_no_network_and_no_data_lead_to_nan(recipe: Recipe) -> None:
    audit_of(recipe)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECIPES)
def test_no_network_and_no_data_lead_to_nan_in_many_tries(recipe: Recipe) -> None:
    audit_of(recipe)


@pytest.mark.parametrize(
    "recipe", [LARGE_SQUARES, replace(LARGE_SQUARES, size=1e8, rows="plain")], ids=["flatness", "duality"]
)
def test_squares_that_overflow_are_a_sentence(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"^A number of the audit is too large to be held \(overflow .*\): with inputs"
    ):
        audited_arrays(recipe.network(), recipe.data(), tmp_path, task=recipe.task)


def random_data(inputs: int = 3, classes: int = 3, train: int = 24, test: int = 12) -> Splits:
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(train, inputs)), rng.normal(size=(test, inputs))
    return Splits(x, np.arange(train) % classes, x_test, np.arange(test) % classes)


def mlp(inputs: int = 3, hidden: int = 4, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)).requires_grad_(False)


def test_a_layer_that_is_fed_only_zeros(tmp_path: Path) -> None:
    network = mlp()
    network[0].bias.fill_(-100.0)
    report = audited_arrays(network, random_data(), tmp_path)
    layer = report["layers"][1]
    assert "reaches this layer as the zero vector" in layer["duality"]["skipped"]
    assert layer["sensitivity"]["degenerate_inputs"] == 24
    assert layer["flatness"]["trace"] == 0


def test_a_class_that_train_lacks_has_no_partners(tmp_path: Path) -> None:
    data = random_data()
    data.y_train[:] = data.y_train % 2
    report = audited_arrays(mlp(), data, tmp_path)
    assert [layer["duality"]["unpaired"] for layer in report["layers"]] == [4, 4]
    assert report["gap"]["per_class"][2]["skipped"] == "no train samples of this class"
    assert report["hygiene"]["class_balance"]["missing_in_train"] == ["2"]


def test_no_test_sample_has_a_partner(tmp_path: Path) -> None:
    data = random_data(classes=4)
    report = audited_arrays(
        mlp(outputs=4), Splits(data.x_train, data.y_train % 2, data.x_test, 2 + data.y_test % 2), tmp_path
    )
    assert "there are no pairs to compare" in report["layers"][0]["duality"]["skipped"]
    assert "there are no pairs to compare" in report["network"]["duality"]["skipped"]


def test_a_class_that_test_lacks(tmp_path: Path) -> None:
    data = random_data()
    data.y_test[:] = data.y_test % 2
    report = audited_arrays(mlp(), data, tmp_path)
    assert report["gap"]["per_class"][2]["skipped"] == "no test samples of this class"
    assert report["hygiene"]["class_balance"]["missing_in_test"] == ["2"]


def test_a_loss_of_exactly_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    network = nn.Linear(3, 2, bias=False).double().requires_grad_(False)
    network.weight.copy_(torch.tensor([[1, 2, -1], [0, 1, 3]]))
    x, x_test = (rng.integers(-5, 5, (n, 3)).astype(float) for n in (24, 12))
    y, y_test = (values @ network.weight.numpy().T for values in (x, x_test))
    report = audited_arrays(nn.Sequential(network), Splits(x, y, x_test, y_test), tmp_path, task="regression")
    assert report["gap"]["train_loss"] == report["gap"]["loss_gap"] == 0
    duality = report["layers"][0]["duality"]
    assert "not positive" in duality["share_skipped"]
    assert all("train loss is exactly zero" in width["skipped"] for width in duality["widths"])


def test_gradients_of_exactly_zero(tmp_path: Path) -> None:
    data = random_data(classes=2)
    signs = [np.where(y == 1, 1.0, -1.0)[:, None] for y in (data.y_train, data.y_test)]
    network = nn.Linear(1, 2, bias=False).double().requires_grad_(False)
    network.weight.copy_(torch.tensor([[-1000.0], [1000.0]]))
    report = audited_arrays(nn.Sequential(network), Splits(signs[0], data.y_train, signs[1], data.y_test), tmp_path)
    fisher = report["network"]["fisher"]
    assert fisher["gamma"] is None and fisher["singular_subsets"] == fisher["subsets"]
    assert "Fewer parameters" in fisher["skipped"] or "exactly zero" in fisher["skipped"]
    assert report["layers"][0]["flatness"]["notes"] == [
        "the Hessian is zero on these samples: the loss is not curved in these weights at all"
    ]


def test_repeated_samples_make_the_gram_matrix_singular(tmp_path: Path) -> None:
    data = random_data()
    x, y = (np.tile(part[:3], (8, 1) if part.ndim > 1 else 8) for part in (data.x_train, data.y_train))
    fisher = audited_arrays(mlp(), Splits(x, y, data.x_test, data.y_test), tmp_path)["network"]["fisher"]
    assert fisher["gamma"] is None and "linearly dependent" in fisher["skipped"]


def test_fewer_parameters_than_samples(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(1, 2)).requires_grad_(False)
    report = audited_arrays(network, random_data(inputs=1, classes=2), tmp_path, subset_size=20)
    assert report["network"]["fisher"]["skipped"].startswith("Fewer parameters (4) than samples in a subset (20)")


def test_one_score(tmp_path: Path) -> None:
    sensitivity = audited_arrays(mlp(outputs=1), random_data(classes=2), tmp_path)["network"]["sensitivity"]
    assert sensitivity["mean_log_volume_centred"] is None
    assert "this model has only one output" in sensitivity["skipped"]


def test_more_scores_than_inputs(tmp_path: Path) -> None:
    report = audited_arrays(mlp(inputs=2, outputs=5), random_data(inputs=2, classes=5), tmp_path)
    sensitivity = report["network"]["sensitivity"]
    assert sensitivity["mean_log_volume"] is None and sensitivity["rank_deficient_samples"] == 24
    assert "every volume is zero" in sensitivity["skipped"]


def test_a_negative_gap_has_no_shares(tmp_path: Path) -> None:
    data = random_data()
    network = mlp()
    answers = network.double()(torch.from_numpy(data.x_test)).argmax(1).numpy()
    report = audited_arrays(network, Splits(data.x_train, data.y_train, data.x_test, answers), tmp_path)
    assert report["gap"]["loss_gap"] < 0
    duality = report["layers"][1]["duality"]
    assert duality["sharp"]["share"] is None and "not positive" in duality["share_skipped"]


def test_a_linear_model(tmp_path: Path) -> None:
    report = audited_arrays(nn.Sequential(nn.Linear(3, 3)), random_data(), tmp_path)
    skipped = {check["id"]: check["explanation"] for check in report["checks"] if check["status"] == "skipped"}
    assert "a single dense layer" in skipped["rescaling-layers"]
    assert report["layers"][0]["tail"] == "piecewise-linear"


def test_a_layer_with_one_weight(tmp_path: Path) -> None:
    data = random_data(inputs=1)
    y, y_test = (values[:, 0] ** 2 for values in (data.x_train, data.x_test))
    network = nn.Sequential(nn.Linear(1, 1))
    report = audited_arrays(network, Splits(data.x_train, y, data.x_test, y_test), tmp_path, task="regression")
    layer = report["layers"][0]
    assert layer["duality"]["directions"] == 1
    assert layer["flatness"]["lambda_max"] == pytest.approx(layer["flatness"]["trace"], rel=ROUNDING)


def test_pairs_that_differ_in_their_targets_alone_are_a_term_of_their_own(tmp_path: Path) -> None:
    data = random_data()
    y = data.x_train[:, :1]
    report = audited_arrays(
        mlp(outputs=1), Splits(data.x_train, y, data.x_train[:12], y[:12] + 1), tmp_path, task="regression"
    )
    for layer in report["layers"]:
        duality = layer["duality"]
        assert duality["target_term"] == pytest.approx(duality["gap"], rel=ROUNDING)
        assert duality["contribution"] == [0.0] * len(duality["contribution"])
    assert [check["status"] for check in report["checks"] if check["id"] == "decomposition-closes"] == ["passed"]
