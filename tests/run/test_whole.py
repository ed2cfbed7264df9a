"""Every number of a whole audit, from file to JSON, against the slow way: no code in common, plain autograd."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import whole_networks
from formats import audited, write_state
from references.whole import whole
from side_by_side import disagreements
from whole_cases import SETTINGS, Case, trained

CASES = {
    "relu": Case("relu", ("fc1", "fc2", "fc3")),
    "tanh": Case("tanh", ("fc1", "fc2", "fc3")),
    "gelu_dropout": Case("gelu_dropout", ("fc1", "fc2", "fc3")),
    "batch_norm": Case("batch_norm", ("fc1", "fc2")),
    "residual": Case("residual", ("fc1", "fc2", "fc3")),
    "bias_free": Case("bias_free", ("fc1", "fc2")),
    "linear": Case("linear", ("fc",)),
    "lenet": Case("lenet", ("fc1", "fc2")),
    "tabular": Case("tabular", ("fc1", "fc2")),
    "regression": Case("regression", ("fc1", "fc2")),
    "regressions": Case("regressions", ("fc1", "fc2")),
    "pointwise": Case("pointwise", ("mix", "fc")),
    "used twice in a row": Case("tied", ("fc1", "twice", "fc2"), fed_by_itself=("twice",)),
    "token_mean": Case("token_mean", ("embed", "head")),
    "side_by_side": Case("side_by_side", ("embed", "narrow", "head")),
    "attention": Case("attention", ("embed", "qkv", "out", "up", "down", "head")),
    "mixer": Case("mixer", ("across", "within", "head")),
    "words": Case("words", ("mix", "head")),
    "tied_words": Case("tied_words", ("mix", "head"), shared=("head",), settings={"dtype": "int64"}),
    "siamese": Case("siamese", ("both", "head")),
    "compared": Case("compared", ("both", "head")),
    "shared_weights": Case("shared_weights", ("fc1", "fc2", "fc3", "head"), shared=("fc2", "fc3")),
    "there_and_back": Case("there_and_back", ("fc", "head"), shared=("fc",)),
    "recurrent": Case("recurrent", ("mix", "head")),
    "features": Case("relu", ("fc1", "fc2", "fc3"), settings={"partner_space": "features"}),
    "features of tokens": Case(
        "attention", ("embed", "qkv", "out", "up", "down", "head"), settings={"partner_space": "features"}
    ),
    "features of regression": Case("regression", ("fc1", "fc2"), settings={"partner_space": "features"}),
    "soiled": Case("relu", ("fc1", "fc2", "fc3"), soiled=True),
    "soiled binary": Case("tabular", ("fc1", "fc2"), soiled=True),
    "soiled regression": Case("regression", ("fc1", "fc2"), soiled=True),
    "conv": Case("lenet", ("conv1", "conv2", "fc1", "fc2"), ("conv1", "conv2"), settings={"conv": True}),
    "conv pointwise": Case("pointwise", ("conv", "mix", "fc"), ("conv",), settings={"conv": True}),
}
SLOW = (  # what others of the cases have, too
    *("tanh", "gelu_dropout", "lenet", "regressions", "linear", "bias_free", "token_mean", "used twice in a row"),
    *("tied_words", "compared", "side_by_side", "features", "features of tokens", "conv pointwise"),
)


def subsets_of(report: dict[str, Any], n: int) -> list[list[int]]:
    """The drawn subsets, by the rule that the report's hash stands for."""
    rng = np.random.default_rng([SETTINGS["seed"], n, SETTINGS["subset_size"]])
    drawn = [np.sort(rng.choice(n, SETTINGS["subset_size"], replace=False)) for _ in range(SETTINGS["subsets"])]
    recorded = report["network"]["fisher"]["subsets_sha256"]
    assert recorded in ("", hashlib.sha256(np.stack(drawn).astype("<i8").tobytes()).hexdigest())
    return [subset.tolist() for subset in drawn]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_every_number_is_what_plain_autograd_finds(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert_agreement(case, case.report(tmp_path))


def test_a_weight_that_is_kept_transposed_and_used_both_ways_is_one_weight(tmp_path: Path) -> None:
    case = CASES["there_and_back"]
    network = whole_networks.KeptTransposed.like(trained("there_and_back", case.task))
    weights = write_state(network, torch.empty(0), tmp_path / "weights.pth")
    arch = f"{whole_networks.__file__}:kept_transposed"
    report = audited(weights, case.data.save(tmp_path / "data"), arch=arch, **SETTINGS)
    assert report["layers"][0]["tied_with"] == ["fc_weight (elsewhere)"]
    assert_agreement(case, report)


def assert_agreement(case: Case, report: dict[str, Any]) -> None:
    assert [layer["name"] for layer in report["layers"]] == list(case.layers)
    problem = case.problem()
    expected = whole(problem, subsets_of(report, len(problem.x)), SETTINGS | case.settings)
    assert disagreements(report, expected) == []
