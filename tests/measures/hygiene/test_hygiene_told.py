"""Test inputs told from train inputs: against a regression solved anew for each sample, and by counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hygiene_cases import blobs, measured, network, rows
from references import hygiene as reference

from audit.measures.hygiene.block import ToldApart
from audit.measures.hygiene.duplicates import row_ids
from audit.measures.hygiene.measure import DIVISIONS, RIDGE, TOO_FEW, compare_inputs, distinct, tell


def compared(x: np.ndarray, x_test: np.ndarray, seed: int = 0, close: float | None = None) -> ToldApart:
    first, second = row_ids(x, x_test)
    return compare_inputs((torch.from_numpy(x), torch.from_numpy(x_test)), (first, second), close, seed)


def drawn(n: int, seed: int, features: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, features))


@pytest.mark.parametrize("seed", range(6))
def test_each_sample_is_told_by_a_regression_without_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(12 + seed, 3)), rng.normal(0.6, 2, (9, 3))])
    x[:, 2] = 7.0  # says nothing
    from_test = np.arange(len(x)) >= 12 + seed
    right = np.array(reference.told_rightly(rows(x), from_test.tolist(), RIDGE))
    expected = (right[from_test].mean() + right[~from_test].mean()) / 2
    found = tell(torch.from_numpy(x), from_test, rng)
    assert found[0] == pytest.approx(expected, abs=1e-12)
    assert len(found) == 1 + DIVISIONS


def test_honest_divisions_are_seldom_called_different() -> None:
    """P values are as likely high as low, and none of a hundred is the least possible one, or one by chance."""
    found = [compared(drawn(40, seed), drawn(30, 1000 + seed), seed) for seed in range(100)]
    p = np.array([each.p_value for each in found])
    assert sum(bool(each.differ) for each in found) <= 1
    assert 0.4 < p.mean() < 0.62 and (p <= 0.1).sum() <= 18
    held = [each.by_chance[0] <= each.accuracy <= each.by_chance[1] for each in found if each.by_chance]
    assert sum(held) >= 88


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x + 0.5, id="moved"),
        pytest.param(lambda x: 2 * x, id="stretched"),
        pytest.param(lambda x: x + np.random.default_rng(5).normal(0, 1.2, x.shape), id="noise"),
        pytest.param(lambda x: np.where(np.arange(5) == 2, np.abs(x), x), id="one feature folded"),
    ],
)
def test_changes_of_the_test_inputs_are_seen(change) -> None:
    found = compared(drawn(400, 1), change(drawn(300, 2)))
    assert found.differ and found.p_value == 1 / (1 + DIVISIONS)
    assert found.accuracy > 0.58 and found.by_chance[1] < found.accuracy


def test_the_units_of_a_feature_do_not_hide_another_one() -> None:
    x, x_test = drawn(300, 1), drawn(300, 2)
    x_test[:, 1] += 1.0
    for split in (x, x_test):
        split[:, 0] *= 1e6
    assert compared(x, x_test).differ


def test_copies_and_near_copies_are_no_evidence() -> None:
    x, x_test = drawn(200, 1), drawn(100, 2)
    honest = compared(x, x_test)
    with_copies = compared(np.concatenate([x, x[:50], x_test[:30]]), np.concatenate([x_test, x_test[:50]]))
    assert not honest.differ and not with_copies.differ
    assert (honest.samples, with_copies.samples) == (200, 140)
    train = np.concatenate([x, x + np.random.default_rng(3).normal(0, 1e-3, x.shape)])  # every sample nearly twice
    repeated = np.repeat(x_test, 4, 0) + np.random.default_rng(4).normal(0, 1e-3, (400, 5))
    assert compared(train, repeated).differ  # for no other reason than that each has its like in its own split
    assert not compared(train, repeated, close=1 / 3).differ


def test_of_near_copies_the_first_is_kept() -> None:
    x = torch.from_numpy(drawn(40, 7))
    pool = torch.cat([x, x[:5] + 1e-6])
    assert distinct(pool, 0.1).tolist() == [True] * 40 + [False] * 5
    assert distinct(pool, None).all()


def test_an_audit_asks_it_and_its_seed_decides(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(90, 0), blobs(60, 1)
    found = measured(make_audit(network(6, 3), x, y, x_test, y_test)).told_apart
    assert found == measured(make_audit(network(6, 3), x, y, x_test, y_test)).told_apart
    assert not found.differ and found.skipped is None and found.draws == DIVISIONS
    moved = measured(make_audit(network(6, 3), x, y, x_test + 1.5, y_test)).told_apart
    assert moved.differ and moved.accuracy > 0.8


def test_why_it_is_not_asked(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(90, 0), blobs(15, 1)
    few = measured(make_audit(network(6, 3), x, y, x_test, y_test)).told_apart
    assert few.accuracy is None and "fewer than 20 different inputs" in few.skipped


def test_where_near_copies_or_one_value_are_left_nothing_is_told() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 5)))
    pairs = torch.from_numpy(rng.normal(size=(12, 5))).repeat(2, 1) + 1e-9 * torch.from_numpy(rng.normal(size=(24, 5)))
    ids = np.arange(60), np.arange(60, 120)
    assert compare_inputs((x, pairs), (ids[0], ids[1][:24]), 0.5, seed=0).skipped == TOO_FEW
    assert compare_inputs((x, x + 0.1), ids, None, seed=0).skipped is None
    assert compare_inputs((torch.ones(60, 5), torch.ones(60, 5)), ids, None, seed=0).skipped == TOO_FEW
