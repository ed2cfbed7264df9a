"""Data hygiene against loops over pairs, on copied, coarse, tiny and clean data."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import hygiene as reference
from torch import nn
from zoo import ZOO, build

from audit import partners
from audit.blocks.hygiene import Hygiene
from audit.hygiene import neighbours
from audit.hygiene.balance import class_balance, p_value
from audit.hygiene.mislabels import leave_one_out, wrong_rate
from audit.hygiene.near import closeness, local_dimension
from audit.hygiene.neighbours import Space, gather_votes, look_around
from audit.hygiene.rows import Twins, coincidental, row_ids
from audit.measure import Audit, Records
from audit.measures.hygiene import HygieneMeasure

EXACT = 1e-10
SAMPLES = Path(__file__).parents[2] / "samples"


def measured(audit: Audit) -> Hygiene:
    fold = HygieneMeasure().start(audit)
    for record in audit.train:
        fold.see(record)
    found = fold.finish().network
    json.dumps(asdict(found), allow_nan=False)
    return found


def network(inputs: int, outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def blobs(n: int, seed: int, features: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes far apart, so that neighbours know the label."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, features)) * 6
    return (centres[y] + rng.normal(size=(n, features))).astype(np.float32), y.astype(np.int64)


def rows(x: np.ndarray) -> list[tuple[float, ...]]:
    return [tuple(row) for row in x.astype(np.float64).reshape(len(x), -1).tolist()]


coarse = st.integers(0, 10_000).map(np.random.default_rng)


# ---------------------------------------------------------------------------------------------------- equal rows


@settings(max_examples=40, deadline=None)
@given(rng=coarse, n=st.integers(1, 30), m=st.integers(1, 20), features=st.integers(1, 4))
def test_duplicates_and_conflicts_are_those_of_loops_over_all_pairs(rng, n: int, m: int, features: int) -> None:
    x, x_test = (rng.integers(0, 3, (size, features)).astype(np.float32) for size in (n, m))
    y, y_test = (rng.integers(0, 2, size) for size in (n, m))
    twins = Twins.of((x, y), (x_test, y_test))
    assert (
        int(twins.across.sum()),
        len(x) - len(twins.distinct_train),
        len(np.unique(twins.test_x)),
    ) == (*reference.duplicates(rows(x), rows(x_test))[:2], m - reference.duplicates(rows(x), rows(x_test))[2])
    found = int(twins.conflicts_in_train.sum()), int(twins.conflicts_across.sum())
    assert found == reference.conflicts(rows(x), y.tolist(), rows(x_test), y_test.tolist())
    for train, test in twins.pairs():
        assert (x[train] == x_test[test]).all()
        assert y[train] == y_test[test] or not twins.across_same_label[test]


def test_minus_zero_is_zero_and_number_types_do_not_matter() -> None:
    assert row_ids(np.array([[0.0], [1.0]], np.float32), np.array([[-0.0], [1.0]]))[1].tolist() == [0, 1]
    assert row_ids(np.array([[True], [False]]), np.array([[1], [0]], np.int64))[1].tolist() == [0, 1]


def test_pairs_and_suspects_name_positions_in_the_split_as_stored(make_audit) -> None:
    x, y = blobs(60, 0)
    audit = make_audit(network(6, 3), x, y, np.concatenate([x[7:8], blobs(30, 1)[0]]), np.append(y[7], blobs(30, 1)[1]))
    train = replace(audit.data.train, index=np.arange(60) * 10 + 5)
    test = replace(audit.data.test, index=np.arange(31) + 100)
    found = measured(replace(audit, data=replace(audit.data, train=train, test=test)))
    assert [(pair.train, pair.test, pair.same_label) for pair in found.duplicate_pairs] == [(75, 100, True)]


# ---------------------------------------------------------------------------------------------------- neighbours


@settings(max_examples=25, deadline=None)
@given(rng=coarse, n=st.integers(20, 45), classes=st.integers(2, 4), values=st.sampled_from([2, 3, 1000]))
def test_votes_are_those_of_loops_ties_and_copies_included(rng, n: int, classes: int, values: int) -> None:
    x = torch.from_numpy(rng.integers(0, values, (n, 3)).astype(np.float64)) / 7
    y = torch.from_numpy(rng.integers(0, classes, n))
    ballots = torch.nn.functional.one_hot(y, classes).double()
    voters, place = gather_votes(torch.from_numpy(row_ids(x.numpy())[0]), ballots)
    space = Space.of("standardised input", x, x, standardise=True)
    found = leave_one_out(space, y, voters, place)
    points = reference.standardise(rows(x.numpy()), rows(x.numpy()))
    outvoted = 0.0
    for i, label in enumerate(y.tolist()):
        others = [(points[j], int(y[j])) for j in range(n) if j != i]
        shares = reference.votes(points[i], others)
        assert float(found.own[i]) == pytest.approx(shares.get(label, 0.0), abs=EXACT)
        assert bool(found.suspect[i]) == reference.suspect(shares, label)
        outvoted += reference.outvoted(shares, label) / n
    assert found.outvoted == pytest.approx(outvoted, abs=EXACT)


def test_block_size_and_order_of_the_samples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.integers(0, 4, (200, 5)).astype(np.float64)), torch.from_numpy(rng.integers(0, 3, 200))
    order = torch.from_numpy(rng.permutation(200))

    def suspects(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ballots = torch.nn.functional.one_hot(y, 3).double()
        voters, place = gather_votes(torch.from_numpy(row_ids(x.numpy())[0]), ballots)
        votes = leave_one_out(Space.of("input", x, x), y, voters, place)
        return torch.stack([votes.own, votes.top])

    whole = suspects(x, y)
    assert torch.equal(suspects(x[order], y[order]), whole[:, order])
    monkeypatch.setattr(partners, "BLOCK_NUMBERS", 300)
    assert torch.equal(suspects(x, y), whole)


@pytest.mark.parametrize("crowded", [0, 4, 1000])
@pytest.mark.parametrize("near", [True, False])
def test_neighbours_that_single_precision_cannot_tell_apart(
    monkeypatch: pytest.MonkeyPatch, crowded: int, near: bool
) -> None:
    """Rings of samples whose distances from a point differ in the ninth digit, among them copies."""
    generator = torch.Generator().manual_seed(0)
    points, away = (torch.randn(40, 60, generator=generator, dtype=torch.float64) for _ in range(2))
    away /= away.norm(dim=1, keepdim=True)
    radius = 1 + 1e-9 * torch.randperm(40, generator=generator).double()
    x = torch.cat([points[:1] + radius[:, None] * away, points[:1] + radius[:, None] * away.flip(1), points])
    x = torch.cat([x, x[:6]])
    voters, place = gather_votes(torch.from_numpy(row_ids(x.numpy())[0]), torch.eye(len(x), dtype=torch.float64))
    monkeypatch.setattr(neighbours, "CROWDED", crowded)
    found = look_around(Space.of("input", x, x), x, voters, place, near=near)
    for i, row in enumerate(x):
        squared = (x - row).square().sum(1)
        others = torch.tensor([j for j in range(len(x)) if j != i])
        tenth = squared[others].sort().values[9]
        assert torch.nonzero(found.votes[i])[:, 0].tolist() == sorted(
            {i, *others[squared[others] <= tenth * (1 + 1e-13)].tolist()}
            | set(torch.nonzero(place == place[i])[:, 0].tolist())
        )
        if near:
            nearest = squared[voters.rows][place[i] != torch.arange(len(voters.rows))].sort().values[:10]
            assert torch.allclose(found.distance[i], nearest.sqrt(), rtol=1e-12)
            assert torch.allclose(squared[found.nearest[i]], nearest, rtol=1e-12)


def test_close_distances_keep_their_digits_far_from_the_origin() -> None:
    base = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1e6
    point = base[3:4] + torch.tensor([3e-7, 0.0, 4e-7, 0.0], dtype=torch.float64)
    voters, _ = gather_votes(torch.arange(50), torch.ones(50, 1, dtype=torch.float64))
    around = look_around(Space.of("input", base, point), point, voters)
    assert int(around.nearest[0, 0]) == 3
    assert float(around.distance[0, 0]) == pytest.approx(float((point - base[3:4]).norm()), rel=1e-9)


def test_a_constant_feature_keeps_its_unit_and_does_not_divide_by_zero() -> None:
    x = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    space = Space.of("standardised input", x, x, standardise=True)
    assert space.scale.tolist() == pytest.approx([1.5**0.5, 1.0], rel=1e-12)


# ---------------------------------------------------------------------------------------------------- near twins


def test_near_twins_match_the_loops_and_are_found_where_they_were_made(make_audit) -> None:
    rng = np.random.default_rng(3)
    x, x_test = (rng.normal(size=(size, 8)).astype(np.float32) for size in (300, 60))
    y, y_test = rng.integers(0, 2, 300), rng.integers(0, 2, 60)
    x_test[:5] = x[10:15] + rng.normal(size=(5, 8)).astype(np.float32) * 1e-3
    audit = make_audit(network(8, 2), x, y, x_test, y_test)
    found = measured(audit)
    assert found.near_duplicates == 5
    assert sorted((pair.train, pair.test) for pair in found.near.pairs) == [(10 + i, i) for i in range(5)]
    points = [rows(x), rows(x_test)]
    if found.near.space == "standardised input":
        points = [reference.standardise(points[0], part) for part in points]
    ratios, dimension = reference.near_ratios(*points)
    assert found.near.dimension == pytest.approx(dimension, rel=1e-8)
    assert [pair.ratio for pair in found.near.pairs] == pytest.approx(sorted(ratios)[:5], rel=1e-8)
    assert found.near.within_train == 0
    assert found.duplicates_across_splits == 0 and not found.leaked.void


@pytest.mark.parametrize("features", [1, 2, 5, 30])
def test_fresh_samples_of_any_dimension_are_no_near_twins(make_audit, features: int) -> None:
    rng = np.random.default_rng(features)
    x, x_test = (rng.normal(size=(size, features)).astype(np.float64) for size in (400, 200))
    y, y_test = ((part[:, 0] > 0).astype(np.int64) for part in (x, x_test))
    assert measured(make_audit(network(features, 2), x, y, x_test, y_test)).near_duplicates == 0


def test_the_local_dimension_is_that_of_an_even_density() -> None:
    for d in (1, 2, 6):
        rng = np.random.default_rng(d)
        points = torch.from_numpy(rng.uniform(size=(4000, d)))
        inner = points[((points - 0.5).abs() < 0.25).all(1)][:500]
        distance = torch.cdist(inner, points).topk(11, 1, largest=False).values[:, 1:]
        assert local_dimension(distance)[0] == pytest.approx(d, rel=0.15)
    assert local_dimension(torch.ones(3, 10))[0] == np.inf
    assert closeness(np.inf, 10, 100) == 1 / 3


# ---------------------------------------------------------------------------------------------------- labels


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
    assert found.estimated_rate == pytest.approx(0.1, abs=1e-12)
    low, high = found.estimated_rate_ci95
    assert low < 0.1 < high


def test_the_rate_solves_its_own_model_and_stays_within_bounds() -> None:
    for r, Y, C in ((0.25, 0.1, 10), (0.05, 0.2, 2), (0.0, 0.3, 5)):
        X = r * (1 - Y / (C - 1)) + (1 - r) * Y
        assert wrong_rate((X, 4000), (Y, 1000), C, 200, 0)[0] == pytest.approx(r, abs=1e-12)
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


# ---------------------------------------------------------------------------------------------------- balance


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


# ---------------------------------------------------------------------------------------------------- leaks


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
    assert without.loss_gap == pytest.approx(test.loss[60:].mean() - train.loss.mean(), rel=1e-12)
    assert without.error_gap == pytest.approx(test.wrong[60:].mean() - train.wrong.mean(), abs=1e-12)
    assert without.loss_gap_shift == pytest.approx(test.loss[60:].mean() - test.loss.mean(), rel=1e-9)


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


# ---------------------------------------------------------------------------------------------------- what is not there


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
