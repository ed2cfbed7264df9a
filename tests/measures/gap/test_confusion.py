"""Who is taken for whom: the table adds up to the split, and its mistakes are the mistakes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit.measures.gap.measure import MOST_CLASSES, count_confusions
from audit.network.records import Outcome


def outcome(labels: np.ndarray, scores: np.ndarray) -> Outcome:
    return Outcome(scores, labels, np.zeros(len(labels)), np.zeros(len(labels)))


@given(st.integers(2, 6), st.integers(1, 60), st.integers(0, 2**16))
def test_table_counts_every_test_sample_once(classes, samples, seed):
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, classes, samples), rng.normal(size=(samples, classes))
    found = count_confusions(outcome(labels, scores), [f"c{k}" for k in range(classes)])
    table = np.array(found.counts)
    assert table.sum() == samples
    assert np.array_equal(table.sum(1), np.bincount(labels, minlength=classes))
    assert np.trace(table) == (scores.argmax(1) == labels).sum()
    assert [mistake.count for mistake in found.most] == sorted((m.count for m in found.most), reverse=True)
    assert all(mistake.label != mistake.answer and mistake.count for mistake in found.most)


def test_one_score_answers_by_its_sign():
    found = count_confusions(outcome(np.array([0, 1, 1]), np.array([[-1.0], [0.0], [-2.0]])), ["no", "yes"])
    assert found.counts == [[1, 0], [1, 1]]
    assert [(mistake.label, mistake.answer, mistake.count) for mistake in found.most] == [("yes", "no", 1)]


def test_very_many_classes_keep_their_mistakes_only():
    names = [str(k) for k in range(MOST_CLASSES + 1)]
    scores = np.eye(len(names))[[3, 3, 5]]
    found = count_confusions(outcome(np.array([4, 4, 5]), scores), names)
    assert found.counts is None and found.skipped == "more than 100 classes"
    assert [(mistake.label, mistake.answer, mistake.count) for mistake in found.most] == [("4", "3", 2)]
