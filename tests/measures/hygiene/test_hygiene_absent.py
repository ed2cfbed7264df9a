"""What is not there is said: labels, neighbours, distances; and networks of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hygiene_cases import blobs, measured, network
from torch import nn
from zoo import ZOO, build

from audit.measures.contract import Records
from audit.measures.hygiene.measure import HygieneMeasure


def test_regression_has_duplicates_but_no_labels(make_audit) -> None:
    rng = np.random.default_rng(0)
    x, x_test, y, y_test = (rng.normal(size=shape) for shape in ((50, 4), (30, 4), (50, 2), (30, 2)))
    x_test[:4], y_test[:4] = x[:4], y[:4]
    x_test[4] = x[5]
    found = measured(make_audit(network(4, 2), x, y, x_test, y_test, task="regression"))
    assert (found.duplicates_across_splits, found.leaked.copies, found.conflicting_labels) == (5, 4, 1)
    assert found.class_balance.skipped == "There are no classes in a regression."
    assert found.suspected_mislabels.skipped == (
        "The targets of a regression are not labels: those of neighbours differ by nature."
    )
    assert found.near_duplicates == 0 and found.leaked.without_copies.error_gap is None


@pytest.mark.parametrize("train", [2, 5, 12])
def test_tiny_data_say_what_they_are_too_few_for(make_audit, train: int) -> None:
    (x, y), (x_test, y_test) = blobs(train, 0), blobs(3, 1)
    found = measured(make_audit(network(6, 3), x, y, x_test, y_test))
    assert found.suspected_mislabels.skipped == (
        "Fewer than 20 train samples: a vote of 10 neighbours would be a vote of everyone."
    )
    few = "Fewer than 5 different train inputs: there is no neighbourhood to compare with."
    assert found.near.skipped == (few if train < 5 else None)


def test_all_inputs_equal(make_audit) -> None:
    x, y = np.ones((40, 3), np.float32), np.arange(40) % 2
    found = measured(make_audit(network(3, 2), x, y, np.ones((10, 3), np.float32), y[:10]))
    assert (found.duplicates_across_splits, found.duplicates_within_train, found.conflicting_labels) == (10, 39, 50)
    assert not found.leaked.void and found.near_duplicates is None
    assert found.suspected_mislabels.count in (None, 0)


def test_labels_that_neighbours_do_not_know_give_no_list(make_audit) -> None:
    rng = np.random.default_rng(0)
    x, x_test = (rng.normal(size=(size, 5)).astype(np.float32) for size in (200, 100))
    y, y_test = (rng.permutation(np.arange(size) % 2) for size in (200, 100))
    found = measured(make_audit(network(5, 2), x, y, x_test, y_test)).suspected_mislabels
    assert found.count is None
    assert found.skipped == (
        "The neighbours do not foretell labels clearly better than always naming the commonest class would: their "
        "vote on train labels means nothing."
    )


class Words(nn.Module):
    """A network that takes whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x).mean(1))


def test_tokens_have_no_distance_of_their_own(make_audit) -> None:
    rng = np.random.default_rng(0)
    x, x_test = (rng.integers(0, 9, (size, 5)) for size in (80, 40))
    y, y_test = ((part.sum(1) > 20).astype(np.int64) for part in (x, x_test))
    found = measured(make_audit(Words(), x, y, x_test, y_test))
    assert found.near.skipped == "The inputs are whole numbers such as tokens: a distance between them means nothing."
    assert [space.name for space in found.suspected_mislabels.spaces] == ["features"]


@pytest.mark.parametrize("outputs", [1, 3])
def test_binary_and_linear_networks_and_both_precisions(make_audit, outputs: int) -> None:
    (x, y), (x_test, y_test) = blobs(80, 0, classes=max(2, outputs)), blobs(40, 1, classes=max(2, outputs))
    task = "binary" if outputs == 1 else "classification"
    results = [
        measured(make_audit(nn.Linear(6, outputs), x, y, x_test, y_test, task=task, precision=precision, seed=3))
        for precision in ("float64", "float64", "float32")
    ]
    assert results[0] == results[1] == results[2]
    assert {space.name for space in results[0].suspected_mislabels.spaces} == {"standardised input", "input"}
    assert sum(results[0].class_balance.train.values()) == 80


@pytest.mark.parametrize("name", ZOO)
def test_networks_of_every_kind(make_audit, name: str) -> None:
    net, x, y = build(name, n=90)
    audit = make_audit(net, x[:60].numpy(), y[:60].numpy(), x[55:].numpy(), y[55:].numpy(), task=ZOO[name].task)
    found = measured(audit)
    assert (found.duplicates_across_splits, found.leaked.copies, found.near_duplicates) == (5, 5, 0)
    assert (found.class_balance.skipped is None) == (ZOO[name].task != "regression")
    small = Records(replace(audit.capture, chunk=7), audit.train.x, audit.train.y, room=0, full=True)
    assert measured(replace(audit, train=small)) == found


def test_every_card_is_complete() -> None:
    for card in HygieneMeasure().cards:
        assert card.id.startswith("hygiene.") and card.meaning and card.formula and card.source
        assert "{" not in "".join(map(str, vars(card).values())).replace("#{", "")
