"""Two models compared at one train loss: a model and itself with louder scores are the same model."""

from __future__ import annotations

import copy

import pytest
import torch
from formats import QUICK, data_of, example_of, trained, write_onnx
from tolerances import SINGLE

from audit.compare import Comparison
from audit.run.compare_models import compare_models
from audit.run.progress import Progress
from audit.settings import Settings


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A small ReLU network, and the same with its last layer three times as large."""
    folder = tmp_path_factory.mktemp("pair")
    data, example = data_of("relu").save(folder / "data"), example_of("relu")
    quiet = trained("relu")
    loud = copy.deepcopy(quiet)
    with torch.no_grad():
        last = [module for module in loud.modules() if isinstance(module, torch.nn.Linear)][-1]
        last.weight *= 3
        last.bias *= 3
    old, new = (
        write_onnx(quiet, example, folder / "quiet.onnx", 17),
        write_onnx(loud, example, folder / "loud.onnx", 17),
    )
    return compare_models(old, new, data, Settings(**QUICK), "", Progress())


def of(comparison: Comparison, key: str):
    return next(number for number in comparison.numbers if number.key == key)


def test_the_louder_one_is_softened_back(comparison):
    assert comparison.matched is not None and comparison.matched.scaled == "new"
    assert comparison.matched.factor == pytest.approx(1 / 3, rel=SINGLE)
    assert comparison.verdict == "the same"
    assert "at one train loss" in " ".join(comparison.notes)


@pytest.mark.parametrize("name", ["kappa_tau_sum", "kappa_sum", "rho_sum"])
def test_flatness_that_rescaling_cannot_change_is_unchanged(comparison, name):
    found = of(comparison, f"network.flatness.{name}")
    assert found.matched and found.paired
    assert found.new == pytest.approx(found.old, rel=SINGLE)
    assert max(map(abs, found.ci95)) <= SINGLE * found.old


def test_what_depends_on_the_scale_of_weights_is_told_apart(comparison):
    """The softened copy is the same function with a larger last layer: its trace is smaller there."""
    assert of(comparison, "network.flatness.trace_sum").verdict == "lower"
    assert of(comparison, "network.sensitivity.mls").new == pytest.approx(
        of(comparison, "network.sensitivity.mls").old, rel=SINGLE
    )
