"""Suspect labels and the balance of classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hygiene_cases import blobs, measured, network
from places import SAMPLES
from references import hygiene as reference
from tolerances import CANCELS

from audit.measures.hygiene import mislabels
from audit.measures.hygiene.measure import class_balance, p_value
from audit.measures.hygiene.mislabels import wrong_rate


def test_labels_moved_in_clear_classes_are_listed_and_their_rate_is_told(make_audit) -> None:
    (x, y), (x_test, y_test) = blobs(300, 0), blobs(150, 1)
    moved = np.random.default_rng(0).choice(300, 30, replace=False)
    given = y.copy()
    given[moved] = (y[moved] + 1) % 3
    found = measured(make_audit(network(6, 3), x, given, x_test, y_test)).suspected_mislabels
    assert found.count == 30 and found.skipped is None and found.caveat is None
    assert sorted(one.index for one in found.suspects) == sorted(moved.tolist())
    assert all(one.neighbours_label == str(y[one.index]) for one in found.suspects)
    strengths = [(-one.agreement, one.own) for one in found.suspects]
    assert strengths == sorted(strengths)
    assert found.expected_by_chance == 0
    for one in found.suspects:
        scale = x.std(0) if found.space == "standardised input" else 1
        nearest = np.argsort((((x - x[one.index]) / scale) ** 2).sum(1), kind="stable")[1:6]
        assert [(beside.index, beside.label) for beside in one.neighbours] == [(k, str(given[k])) for k in nearest]
    assert found.estimated_rate == pytest.approx(0.1, abs=CANCELS)
    low, high = found.estimated_rate_ci95
    assert low < 0.1 < high


def test_of_many_labels_some_are_asked_about_and_all_others_vote(make_audit, monkeypatch: pytest.MonkeyPatch) -> None:
    (x, y), (x_test, y_test) = blobs(600, 0), blobs(150, 1)
    moved = np.random.default_rng(0).choice(600, 60, replace=False)
    given = y.copy()
    given[moved] = (y[moved] + 1) % 3
    x[590:], given[590:] = x[:10], given[:10]  # copies vote together, and each is asked for itself
    audit = make_audit(network(6, 3), x, given, x_test, y_test)
    monkeypatch.setattr(mislabels, "SUSPECTS", 600)
    whole = measured(audit).suspected_mislabels
    assert whole.asked == 600 and whole.count == len(whole.suspects) > 40
    monkeypatch.setattr(mislabels, "ASKED", 250)
    some, again = (measured(audit).suspected_mislabels for _ in range(2))
    assert some == again and some.asked == 250
    asked = set(mislabels.asked_about(600, audit.settings.seed).tolist())
    assert len(asked) == 250
    assert some.suspects == [one for one in whole.suspects if one.index in asked]
    assert some.count == len(some.suspects) and some.share == some.count / 250
    assert some.share_ci95[0] < whole.share < some.share_ci95[1]
    assert some.estimated_rate_ci95[0] < whole.estimated_rate < some.estimated_rate_ci95[1]
    assert np.ptp(some.estimated_rate_ci95) > np.ptp(whole.estimated_rate_ci95)


def test_of_classes_with_five_samples_no_rate_of_wrong_labels_is_told(make_audit) -> None:
    """Without its own sample a class has four votes on train, and five on test: that is no wrong label."""
    (x, y), (x_test, y_test) = blobs(150, 0, classes=30), blobs(150, 1, classes=30)
    found = measured(make_audit(network(6, 30), x, y, x_test, y_test)).suspected_mislabels
    assert (found.estimated_rate, found.estimated_rate_ci95, found.expected_by_chance) == (None, None, None)
    assert found.skipped is not None or (found.caveat or "").startswith("Classes have fewer than 10 train samples")


def test_the_rate_solves_its_own_model_and_stays_within_bounds() -> None:
    for r, Y, C in ((0.25, 0.1, 10), (0.05, 0.2, 2), (0.0, 0.3, 5)):
        X = r * (1 - Y / (C - 1)) + (1 - r) * Y
        assert wrong_rate((X, 4000), (Y, 1000), C, 200, 0)[0] == pytest.approx(r, abs=CANCELS)
    assert wrong_rate((0.5, 40), (0.6, 40), 2, 100, 0) == (None, None)
    assert wrong_rate((0.1, 40), (0.3, 40), 5, 100, 0)[0] == 0.0
    low, high = wrong_rate((0.0, 40), (0.0, 40), 3, 1000, 0)[1]
    assert 0.0 == low < high


def test_the_listed_labels_of_real_images_are_mostly_wrong_ones(make_audit) -> None:
    splits = [np.load(SAMPLES / folder) for folder in ("mnist-mislabelled/train.npz", "mnist/train.npz")]
    used = np.arange(0, 4000, 4)
    x, given, truth = splits[0]["x"][used], splits[0]["y"][used], splits[1]["y"][used]
    test = np.load(SAMPLES / "mnist/test.npz")
    x, x_test = (part.reshape(-1, 784).astype(np.float32) / 255 for part in (x, test["x"]))
    found = measured(make_audit(network(784, 10), x, given, x_test[::4], test["y"][::4])).suspected_mislabels
    listed = [one.index for one in found.suspects]
    assert found.space == "input" and len(listed) == 50
    assert (given[listed] != truth[listed]).mean() >= 0.9
    low, high = found.estimated_rate_ci95
    assert low <= (given != truth).mean() <= high


def test_features_are_used_only_where_they_foretell_far_better(make_audit) -> None:
    rng = np.random.default_rng(0)
    x, x_test = (rng.normal(size=(size, 40)).astype(np.float32) for size in (400, 200))
    y, y_test = ((part[:, 0] > 0).astype(np.int64) for part in (x, x_test))
    net = network(40, 2)
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.zero_()
        net[0].weight[0, 0], net[0].weight[1, 0] = 1.0, -1.0
    found = measured(make_audit(net, x, y, x_test, y_test)).suspected_mislabels
    assert found.space == "features"
    assert (found.estimated_rate, found.expected_by_chance) == (None, None)
    assert found.caveat.startswith("The neighbours are taken among the network's own features")


@pytest.mark.parametrize(("train", "test"), [((6, 2), (1, 4)), ((4, 4, 2), (2, 2, 1)), ((5, 0, 3), (1, 3, 2))])
def test_the_p_value_is_that_of_all_divisions(train: tuple[int, ...], test: tuple[int, ...]) -> None:
    sampled = p_value(np.array(train), np.array(test), draws=20_000, seed=0)
    assert sampled == pytest.approx(reference.exact_p_value(train, test), abs=0.012)  # 3 standard errors and more


def test_balance_names_what_is_missing_and_what_differs() -> None:
    y, y_test = np.repeat([0, 1], [90, 10]), np.repeat([0, 1, 2], [20, 20, 10])
    found = class_balance(y, y_test, ["a", "b", "c", "d"], draws=500, seed=0)
    assert (found.train, found.test) == ({"a": 90, "b": 10, "c": 0, "d": 0}, {"a": 20, "b": 20, "c": 10, "d": 0})
    assert (found.missing_in_train, found.missing_in_test) == (["c", "d"], ["d"])
    assert (found.ratio, found.differ) == (9.0, True)
    assert found.difference == pytest.approx(0.5)
    assert class_balance(y, y, ["a", "b"], draws=100, seed=0).p_value == 1.0
