"""Are the errors of a regression on test those of train? Residuals e = prediction − target, output by output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from audit.maths.resample import TEST, Bootstrap, interval
from audit.maths.shares import difference_interval, wilson
from audit.measures.calibration.bins import Array, Places, equal_count_bins, members
from audit.measures.calibration.block import Coverage, OutputErrors, ResidualBin
from audit.network.records import Outcome

OUTPUTS = 6  # outputs that the report speaks of
POINTS = 200  # of all of them together, to be drawn
TIMES = (1, 2)  # the train RMSE
SHARES = (0.90, 0.95)  # of the train samples
ROUNDING = 1e-9  # of a limit: an error that equals it but for rounding is within it


def measure_outputs(train: Outcome, test: Outcome, bootstrap: Bootstrap) -> list[OutputErrors]:
    """The first outputs."""
    count = min(OUTPUTS, test.scores.shape[1])
    return [_output(place, train, test, bootstrap, POINTS // count) for place in range(count)]


def _output(place: int, train: Outcome, test: Outcome, bootstrap: Bootstrap, most: int) -> OutputErrors:
    f = test.scores[:, place]
    there, here = (part.scores[:, place] - part.targets[:, place] for part in (train, test))
    chosen = evenly_spread(f, here, most)
    return OutputErrors(
        output=place,
        train_bias=float(there.mean()),
        train_bias_ci95=interval(bootstrap.means(there[:, None])[:, 0]),
        test_bias=float(here.mean()),
        test_bias_ci95=interval(bootstrap.means(here[:, None], TEST)[:, 0]),
        coverage=[_coverage(id, limit, there, here) for id, limit in limits(there)],
        bins=residual_bins(f, here, bootstrap),
        predictions=f[chosen].tolist(),
        residuals=here[chosen].tolist(),
    )


def limits(e: Array) -> Iterator[tuple[str, float]]:
    """Sizes of error to count by, from the residuals of train [n]."""
    size = np.abs(e)
    scale = float(size.max()) or 1.0  # keeps squares in range
    rmse = scale * float(np.sqrt(((size / scale) ** 2).mean()))
    yield from ((f"rmse-{times}", times * rmse) for times in TIMES)
    for share in SHARES:  # the least error that at least this share of train does not exceed
        yield f"share-{100 * share:.0f}", float(np.quantile(size, share, method="inverted_cdf"))


def _coverage(id: str, limit: float, train: Array, test: Array) -> Coverage:
    (seen, ends), (found, found_ends) = (_within(limit, e) for e in (train, test))
    return Coverage(
        id=id,
        limit=limit,
        train_within=seen,
        train_within_ci95=ends,
        test_within=found,
        test_within_ci95=found_ends,
        difference=found - seen,
        difference_ci95=difference_interval(found, seen, found_ends, ends),
    )


def _within(limit: float, e: Array) -> tuple[float, tuple[float, float]]:
    share = float((np.abs(e) <= limit * (1 + ROUNDING)).mean())
    return share, wilson(share, len(e))


def residual_bins(f: Array, e: Array, bootstrap: Bootstrap) -> list[ResidualBin]:
    """The mean residual of test samples with about the same prediction."""
    held = members(equal_count_bins(f))  # [n, B]
    scale = float(np.abs(e).max()) or 1.0
    sums, counts = np.split(bootstrap.means(np.concatenate([held * e[:, None] / scale, held], 1), TEST), 2, 1)
    means = scale * np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)  # [draws, B]
    return [
        ResidualBin(
            prediction=float(f[own > 0].mean()),
            residual=float(e[own > 0].mean()),
            residual_ci95=interval(means[:, place]),
            samples=int(own.sum()),
        )
        for place, own in enumerate(held.T)
    ]


def evenly_spread(f: Array, e: Array, most: int) -> Places:
    """Rows of at most so many samples, evenly spaced in the order of f, whatever the order of the samples.

    >>> evenly_spread(np.array([3.0, 1.0, 2.0]), np.zeros(3), 2).tolist()
    [1, 0]
    """
    order = np.lexsort((e, f))
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(np.int64)
    return np.asarray(order[ranks])
