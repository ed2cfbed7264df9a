"""Test samples copied from train: when they void the verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hygiene_cases import blobs, coarse, measured, network
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import CANCELS, ROUNDING, SOLVED

from audit.measures.hygiene.duplicates import coincidental, row_ids


def test_a_test_split_that_is_train_voids_whatever_the_data(make_audit) -> None:
    x, y = blobs(120, 0)
    found = measured(make_audit(network(6, 3), x, y, x[::-1].copy(), y[::-1].copy()))
    assert found.leaked.void and found.leaked.share == 1
    assert found.leaked.why == "Train and test hold the very same samples: the test split says nothing about new data."
    assert (
        found.leaked.skipped == "Every test sample is in train with the same label: none is left to measure a gap on."
    )
    assert found.near.skipped == "Every test sample is itself in train."
    one = np.arange(60, dtype=np.float32)[:, None] // 3
    assert measured(make_audit(network(1, 2), one, y[:60] % 2, one, y[:60] % 2)).leaked.void


def test_a_part_copied_from_train_voids_and_the_gap_is_measured_without_it(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(200, 0), blobs(140, 1)
    x_test[:60], y_test[:60] = x[:60], y[:60]
    audit = make_audit(network(6, 3), x, y, x_test, y_test)
    leak = measured(audit).leaked
    assert leak.void and leak.copies == 60 and leak.coincidences == 0
    assert leak.why == (
        "60 of 140 test samples are in train with the same label, more than chance explains: the test split is no "
        "evidence about new data."
    )
    without = leak.without_copies
    assert without.samples == 80
    train, test = audit.train_outcome, audit.test_outcome
    assert without.loss_gap == pytest.approx(test.loss[60:].mean() - train.loss.mean(), rel=ROUNDING)
    assert without.error_gap == pytest.approx(test.wrong[60:].mean() - train.wrong.mean(), abs=CANCELS)
    assert without.loss_gap_shift == pytest.approx(test.loss[60:].mean() - test.loss.mean(), rel=SOLVED)


def test_natural_repeats_of_a_coarse_table_do_not_void(make_audit) -> None:
    rng = np.random.default_rng(1)
    x, x_test = (rng.integers(0, 2, (size, 7)).astype(np.float32) for size in (500, 200))
    y, y_test = ((part[:, 0] > 0).astype(np.int64) for part in (x, x_test))
    found = measured(make_audit(network(7, 2), x, y, x_test, y_test))
    assert found.duplicates_across_splits > 180 and found.leaked.coincidences == found.leaked.copies
    assert not found.leaked.void
    assert found.leaked.why.endswith("in data with so few different values that is chance.")


@pytest.mark.parametrize("values", [2, 5, 40])
def test_one_feature_with_few_values_does_not_void(make_audit, values: int) -> None:
    rng = np.random.default_rng(values)
    x, x_test = (rng.integers(0, values, (size, 1)).astype(np.float32) for size in (200, 80))
    y, y_test = ((part[:, 0] > values / 2).astype(np.int64) for part in (x, x_test))
    y[:2], y_test[:2] = (0, 1), (0, 1)
    assert not measured(make_audit(network(1, 2), x, y, x_test, y_test)).leaked.void


def test_a_handful_of_copies_is_told_but_does_not_void(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(200, 0), blobs(300, 1)
    x_test[:3], y_test[:3] = x[:3], y[:3]
    leak = measured(make_audit(network(6, 3), x, y, x_test, y_test)).leaked
    assert (leak.copies, leak.coincidences, leak.void) == (3, 0, False)
    assert leak.why == "3 of 300 test samples are in train with the same label: too few to change the verdict."


def test_copies_of_train_samples_that_were_not_used_are_reckoned_with(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(200, 0), blobs(300, 1)
    x_test[:20], y_test[:20] = x[:20], y[:20]
    audit = make_audit(network(6, 3), x, y, x_test, y_test)
    assert not measured(audit).leaked.void
    capped = replace(audit, data=replace(audit.data, train=replace(audit.data.train, total=2000)))
    leak = measured(capped).leaked
    assert leak.void and leak.estimated_share == pytest.approx(20 / 300 * 10)
    assert "(only 10.0% of the train samples were searched)" in leak.why


@settings(max_examples=20, deadline=None)
@given(rng=coarse, features=st.integers(2, 6))
def test_a_coincidence_needs_another_row_that_shares_half(rng, features: int) -> None:
    x = rng.normal(size=(30, features))
    ids = row_ids(x)[0]
    assert not coincidental(x, ids, ids, seed=0).any()
    x[1, :-1] = x[0, :-1]  # all but one value: some half is shared
    ids = row_ids(x)[0]
    assert set(np.flatnonzero(coincidental(x, ids, ids, seed=0))) <= {0, 1}
