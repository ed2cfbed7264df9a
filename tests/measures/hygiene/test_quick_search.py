"""The quick search for neighbours finds what a search through all pairs finds, whatever the samples are like."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from torch import Tensor

from audit.measures.hygiene import candidates, neighbours, points
from audit.measures.hygiene.duplicates import row_ids
from audit.measures.hygiene.neighbours import Neighbourhood, Search, Voters, gather_votes
from audit.measures.hygiene.points import Space

Rng = np.random.Generator
Array = np.ndarray
TIE = 1e-12  # squared distances closer than this, relatively, are equal
PRECISE = 1e-8  # what the search promises of a distance


@pytest.fixture(autouse=True, scope="module")
def _screen_for_few() -> Iterator[None]:
    """A screen that is used for few samples of few features."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": 3, "WIDTH": 2, "FEWEST": 100, "GROUPS": 24, "SAMPLE": 40}.items():
            patch.setattr(points, name, value)
        yield


def evenly(rng: Rng, n: int, D: int) -> Array:
    return rng.normal(size=(n, D))


def clustered(rng: Rng, n: int, D: int) -> Array:
    return rng.normal(size=(5, D))[rng.integers(5, size=n)] * 20 + rng.normal(size=(n, D)) * 0.1


def low_rank(rng: Rng, n: int, D: int) -> Array:
    return rng.normal(size=(n, 2)) @ rng.normal(size=(2, D)) + 7


def repeated(rng: Rng, n: int, D: int) -> Array:
    return rng.normal(size=(n // 2, D))[rng.integers(n // 2, size=n)]


def in_a_grid(rng: Rng, n: int, D: int) -> Array:
    return rng.integers(0, 4, size=(n, D)).astype(np.float64)


def partly_constant(rng: Rng, n: int, D: int) -> Array:
    x = rng.normal(size=(n, D))
    x[:, ::3] = 0.1
    return x


def with_outliers(rng: Rng, n: int, D: int) -> Array:
    x = rng.normal(size=(n, D))
    x[::17] *= 1e3
    return x


def all_equal(rng: Rng, n: int, D: int) -> Array:
    return np.full((n, D), 0.1)


def on_two_spots(rng: Rng, n: int, D: int) -> Array:
    return np.where(rng.integers(2, size=(n, 1)) > 0, 1.0, -3.0) * np.ones((n, D))


kinds = st.sampled_from(
    [evenly, clustered, low_rank, repeated, in_a_grid, partly_constant, with_outliers, all_equal, on_two_spots]
)
units = st.sampled_from([1.0, 2.0**-30, 2.0**-70, 2.0**-100, 2.0**40, 2.0**100])
Kind = Callable[[Rng, int, int], Array]


def electorate(x: Tensor) -> tuple[Voters, Tensor]:
    """Everyone votes for himself: the votes are the neighbours."""
    return gather_votes(torch.from_numpy(row_ids(x.numpy())[0]), torch.eye(len(x), dtype=torch.float64))


def naive(where: Space, points: Tensor) -> Tensor:
    """Squared distances of all pairs [q, n]."""
    return torch.stack([((point - where.train.double()) * where.scale).square().sum(1) for point in points.double()])


def check_votes(found: Neighbourhood, squared: Tensor, itself: bool) -> None:
    """All samples no farther than the tenth, besides the point itself; `squared` [q, n]."""
    for i, row in enumerate(squared):
        others = torch.cat([row[:i], row[i + 1 :]]) if itself else row
        tenth = others.sort().values[min(10, len(others)) - 1]
        surely, perhaps = row <= tenth * (1 - TIE), row <= tenth * (1 + TIE) + 1e-13 * row.max()
        voted = found.votes[i] > 0
        assert not bool((surely & ~voted).any()) and not bool((voted & ~perhaps).any())
        assert bool((voted | ~(row <= tenth)).all()), "of equally near ones some are missing"
        assert int(found.voters[i]) == int(voted.sum()) - itself


def check_nearest(found: Neighbourhood, squared: Tensor, own: Tensor | None, rows: Tensor, exact: bool) -> None:
    """The nearest different inputs in order, the first of equal ones; squared [q, u] from the inputs at `rows`."""
    if own is not None:
        squared = squared.scatter(1, own[:, None], torch.inf)
    values, order = squared.sort(dim=1, stable=True)
    k = found.nearest.shape[1]
    assert k == min(10, len(rows) - (own is not None))
    assert torch.allclose(found.distance, values[:, :k].sqrt(), rtol=PRECISE, atol=0)
    if exact:
        assert torch.equal(found.nearest, rows[order[:, :k]])


@pytest.mark.parametrize("numbers", [1 << 22, 600, 100])
@given(st.integers(0, 10_000), kinds, units, st.integers(100, 160), st.integers(6, 24), st.booleans(), st.booleans())
@example(0, partly_constant, 2.0**100, 124, 6, True, False)  # a mean that is rounded is no constant
@example(0, evenly, 2.0**-70, 120, 12, False, True)  # squares that single precision cannot hold
@settings(max_examples=60, deadline=None)
def test_neighbours_are_those_of_a_search_through_all_pairs(
    numbers: int, seed: int, kind: Kind, unit: float, n: int, D: int, standardise: bool, single: bool
) -> None:
    """Whether the voters are made ready all at once, or in parts of so many `numbers`, some with fewer than ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "POINTS", numbers)
        patch.setattr(neighbours, "SHARED_POINTS", numbers)
        _check_against_all_pairs(seed, kind, unit, n, D, standardise, single)


def _check_against_all_pairs(
    seed: int, kind: Kind, unit: float, n: int, D: int, standardise: bool, single: bool
) -> None:
    samples = kind(np.random.default_rng(seed), 2 * n, D) * unit
    x, x_test = torch.from_numpy(samples.astype(np.float32 if single else np.float64)).chunk(2)
    where = Space.of("input", x, x_test, standardise)
    voters, place = electorate(x)
    around = Search(where, voters).around(x_test, torch.arange(n))
    squared = naive(where, x_test)
    check_votes(around, squared, itself=False)
    check_nearest(around, squared[:, voters.rows], None, voters.rows, exact=kind is evenly and not standardise)
    squared = naive(where, x)
    for near in (True, False):
        around = Search(where, voters).around(x, torch.arange(n), place, near=near)
        check_votes(around, squared, itself=True)
    around = Search(where, voters).around(x, voters.rows, torch.arange(len(voters.rows)))
    check_nearest(
        around, squared[voters.rows][:, voters.rows], torch.arange(len(voters.rows)), voters.rows, exact=False
    )


@given(st.integers(0, 10_000), st.integers(1, 15), st.integers(1, 3), st.integers(1, 4), units)
@settings(max_examples=60, deadline=None)
def test_few_samples_of_few_features(seed: int, n: int, D: int, q: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    x, x_test = (torch.from_numpy(rng.integers(-2, 3, size=(rows, D)) * unit) for rows in (n, q))
    where, (voters, _) = Space.of("input", x, x_test), electorate(x)
    around = Search(where, voters).around(x_test, torch.arange(q))
    check_votes(around, naive(where, x_test), itself=False)
    check_nearest(around, naive(where, x_test)[:, voters.rows], None, voters.rows, exact=False)


@given(st.integers(0, 10_000), st.sampled_from([1, 5, 50]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_equally_near_ones_stay_in_order_whichever_way_they_are_measured(seed: int, dense: int, kept: bool) -> None:
    """Distances in a grid are exactly equal or clearly different: single precision tells who is asked about."""
    rng = np.random.default_rng(seed)
    x, x_test = (torch.from_numpy(rng.integers(0, 50, size=(n, 12)).astype(np.float64)) for n in (150, 120))
    x[1::2] = 49 - x[::2]  # as far as the one before from the point in the middle
    x_test[:60] = 24.5
    where, (voters, _) = Space.of("input", x, x_test), electorate(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "DENSE", dense)
        patch.setattr(neighbours, "POINTS", 1 << 24 if kept else 400)
        patch.setattr(neighbours, "SHARED_POINTS", 1 << 22 if kept else 0)
        patch.delattr(Search, "_in_double")
        around = Search(where, voters).around(x_test, torch.arange(120))
    squared = naive(where, x_test)
    assert int((squared[0].sort().values.diff() == 0).sum()) >= 75, "the case has no ties"
    check_votes(around, squared, itself=False)
    check_nearest(around, squared[:, voters.rows], None, voters.rows, exact=True)
    assert torch.equal(around.distance, squared[:, voters.rows].sort(dim=1).values[:, :10].sqrt())


def test_a_screen_spares_most_products_and_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that spread in few directions, sorted, with copies of some; nothing set for the test."""
    for name, value in {"RANK": 96, "WIDTH": 4, "FEWEST": 500, "GROUPS": 48, "SAMPLE": 500}.items():
        monkeypatch.setattr(points, name, value)
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(1300, 30)) @ rng.normal(size=(30, 400)) + 0.2 * rng.normal(size=(1300, 400))
    x, x_test = torch.from_numpy(spread[:800][np.argsort(spread[:800, 0])]), torch.from_numpy(spread[800:])
    x[700:] = x[:100]
    where, (voters, place) = Space.of("input", x, x_test), electorate(x)
    measured = []
    products = points.sampled_products
    counting = lambda *parts: measured.append(len(parts[2])) or products(*parts)  # noqa: E731
    monkeypatch.setattr(points, "sampled_products", counting)
    around = Search(where, voters).around(x_test, torch.arange(len(x_test)))
    within = Search(where, voters).around(x, torch.arange(len(x)), place, near=False)
    pairs = len(voters.rows) * (len(x) + len(x_test))
    assert 0 < sum(measured) < pairs / 5
    squared = naive(where, x_test)
    check_votes(around, squared, itself=False)
    check_nearest(around, squared[:, voters.rows], None, voters.rows, exact=True)
    check_votes(within, naive(where, x), itself=True)
