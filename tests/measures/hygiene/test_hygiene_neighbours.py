"""Neighbours, their votes, and near twins."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hygiene_cases import coarse, measured, network, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from references import hygiene as reference
from tolerances import EXACT, LOSSY, ROUNDING, SOLVED

from audit.measures.hygiene import neighbours
from audit.measures.hygiene.duplicates import row_ids
from audit.measures.hygiene.leak import closeness, local_dimension
from audit.measures.hygiene.mislabels import leave_one_out
from audit.measures.hygiene.neighbours import Search, Space, gather_votes


@settings(max_examples=25, deadline=None)
@given(rng=coarse, n=st.integers(20, 45), classes=st.integers(2, 4), values=st.sampled_from([2, 3, 1000]))
def test_votes_are_those_of_loops_ties_and_copies_included(rng, n: int, classes: int, values: int) -> None:
    x = torch.from_numpy(rng.integers(0, values, (n, 3)).astype(np.float64)) / 7
    y = torch.from_numpy(rng.integers(0, classes, n))
    ballots = torch.nn.functional.one_hot(y, classes).double()
    voters, place = gather_votes(torch.from_numpy(row_ids(x.numpy())[0]), ballots)
    space = Space.of("standardised input", x, x, standardise=True)
    found = leave_one_out(Search(space, voters), y, place, torch.arange(n))
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
        votes = leave_one_out(Search(Space.of("input", x, x), voters), y, place, torch.arange(200))
        return torch.stack([votes.own, votes.top])

    whole = suspects(x, y)
    assert torch.equal(suspects(x[order], y[order]), whole[:, order])
    monkeypatch.setattr(neighbours, "HELD", 300)
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
    found = Search(Space.of("input", x, x), voters).around(x, torch.arange(len(x)), place, near=near)
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
            assert torch.allclose(found.distance[i], nearest.sqrt(), rtol=ROUNDING)
            assert torch.allclose(squared[found.nearest[i]], nearest, rtol=ROUNDING)


def test_close_distances_keep_their_digits_far_from_the_origin() -> None:
    base = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1e6
    point = base[3:4] + torch.tensor([3e-7, 0.0, 4e-7, 0.0], dtype=torch.float64)
    voters, _ = gather_votes(torch.arange(50), torch.ones(50, 1, dtype=torch.float64))
    around = Search(Space.of("input", base, point), voters).around(point, torch.arange(len(point)))
    assert int(around.nearest[0, 0]) == 3
    assert float(around.distance[0, 0]) == pytest.approx(float((point - base[3:4]).norm()), rel=SOLVED)


def test_a_constant_feature_keeps_its_unit_and_does_not_divide_by_zero() -> None:
    x = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    space = Space.of("standardised input", x, x, standardise=True)
    assert space.scale.tolist() == pytest.approx([1.5**0.5, 1.0], rel=ROUNDING)


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
    assert found.near.dimension == pytest.approx(dimension, rel=LOSSY)
    assert [pair.ratio for pair in found.near.pairs] == pytest.approx(sorted(ratios)[:5], rel=LOSSY)
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
