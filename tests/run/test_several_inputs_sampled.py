"""Models of several inputs where the budget leaves nothing but samples: every stage in its sampled form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from formats import QUICK
from masked_networks import Arrays, Masked, Mixed, Tagged, scenes, sentences
from torch import nn

from audit import Report, audit_model

TRAIN, TEST = 80, 40
SAMPLED = ("flatness", "duality", "fisher", "sensitivity", "checks", "consequences")
Pair = tuple[dict[str, np.ndarray], np.ndarray]


def both(n: int, seed: int) -> Arrays:
    return {**sentences(n, seed), "table": scenes(n, seed)["table"]}


def pair(inputs: tuple[str, ...], n: int, seed: int, classes: int = 3) -> Pair:
    found = {**scenes(n, seed), **both(n, seed)}
    return {name: found[name] for name in inputs}, np.arange(n) % classes


def sampled(network: nn.Module, train: Pair, test: Pair, **settings: Any) -> Report:
    return audit_model(network.eval(), train, test, **{**QUICK, "budget": "0.000001s", **settings})


@pytest.mark.parametrize("build", [Masked, Mixed, Tagged])
def test_every_sampled_form_takes_several_inputs(build: type[nn.Module]) -> None:
    torch.manual_seed(0)
    names = {Masked: ("input_ids", "attention_mask"), Mixed: ("image", "table")}
    inputs = names.get(build, ("input_ids", "attention_mask", "table"))
    found = sampled(build(), pair(inputs, TRAIN, 0), pair(inputs, TEST, 1))
    assert {stage.name for stage in found.plan.stages if stage.form == "sampled"} == set(SAMPLED)
    assert found.model.input.name == ", ".join(inputs)
    assert [check.id for check in found.checks if check.kind == "check" and check.status == "failed"] == []
    assert all(layer.flatness is not None and layer.duality is not None for layer in found.layers)


def normalized(network: nn.Module, inputs: dict[str, np.ndarray]) -> list[float]:
    """‖table‖² ‖∂f/∂table‖₂² of each sample: tokens and the mask are constants without a size."""
    ids, mask, tables = (torch.from_numpy(values) for values in inputs.values())
    found = []
    for k, table in enumerate(tables.double()):
        J = torch.autograd.functional.jacobian(
            lambda row, k=k: network(ids[k : k + 1], mask[k : k + 1], row[None])[0], table
        )
        found.append(float(table.square().sum() * torch.linalg.matrix_norm(J, 2) ** 2))
    return found


@pytest.mark.parametrize("classes", [3, 40])
def test_only_what_is_continuous_has_a_size(classes: int) -> None:
    """Also by iteration, which takes the place of singular values where there are many scores."""
    torch.manual_seed(0)
    network, inputs = Tagged(classes), ("input_ids", "attention_mask", "table")
    train, test = pair(inputs, TRAIN, 0, classes), pair(inputs, TEST, 1, classes)
    exact, some = (sampled(network, train, test, budget=budget).network.sensitivity for budget in ("none", "0.000001s"))
    expected = normalized(network.double(), train[0])
    assert exact is not None and exact.normalized_mls == pytest.approx(np.mean(expected), rel=1e-6)
    assert some is not None and some.form == "sampled" and some.normalized_mls is not None
    assert min(expected) < some.normalized_mls < max(expected)
    assert some.mls == pytest.approx(exact.mls, rel=0.3)


def test_a_layer_that_something_leads_round_is_not_taken_for_a_dual_one() -> None:
    """Scores that hardly differ between samples hide what another path carries."""
    torch.manual_seed(0)
    network, inputs = Tagged(), ("input_ids", "attention_mask", "table")
    with torch.no_grad():
        network.head.weight.mul_(1e-6)
        network.head.bias.zero_()
    found = sampled(network, pair(inputs, TRAIN, 0), pair(inputs, TEST, 1))
    why = {layer.name: layer.duality.skipped for layer in found.layers if layer.duality is not None}
    assert why.pop("head") is None
    assert len(why) == 3 and all("another path leads round this layer" in (text or "") for text in why.values())
