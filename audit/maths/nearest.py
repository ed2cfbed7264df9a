"""The nearest train sample with the same label, for every test sample: exact, in blocks, one matrix product each.

‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b is one matrix product, but it cancels: near neighbours lose most of their digits. It only
proposes candidates, with a margin that covers its rounding error; the distance that decides is Σ (a − b)² in float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_NUMBERS = 1 << 22  # numbers in one block of distances or differences (32 MB)
ROUNDING = 2.0**-52
ROUNDING_SINGLE = 2.0**-23
TIE = 1e-14  # squared distances closer than this, relatively, differ by rounding alone
NOBODY = -1

Sided = tuple[Tensor, Tensor | None]  # samples [n, D] and their labels [n]; None: every sample may be a partner


class Nearest:
    """The nearest same-label train sample of each test sample, improved with every chunk of train samples offered.

    Chunks must be offered in the order of the split: of equally near samples the one with the lowest index stays.
    """

    def __init__(self, tests: int, device: torch.device | str = "cpu") -> None:
        self.index = torch.full((tests,), NOBODY, dtype=torch.int64, device=device)
        self.squared = torch.full((tests,), torch.inf, dtype=torch.float64, device=device)

    def offer(self, first: int, test: Sided, start: int, train: Sided) -> None:
        """Offers the train samples from position `start` on to the test samples from position `first` on."""
        (x_test, y_test), (x, y) = test, train
        rows, index = (torch.arange(len(part), device=part.device) for part in (x_test, x))
        if y_test is None or y is None:
            self._compare(rows + first, x_test, index + start, x)
            return
        for label in sorted(set(y_test.tolist())):
            mine, theirs = rows[y_test == label], index[y == label]
            if len(theirs):
                self._compare(mine + first, x_test[mine], theirs + start, x[theirs])

    def _compare(self, rows: Tensor, x_test: Tensor, index: Tensor, x: Tensor) -> None:
        for part in row_blocks(len(rows), max(x.shape)):
            squared, best = _nearest(x_test[part].double(), x.double())
            mine = rows[part]
            closer = squared < self.squared[mine] * (1 - TIE)
            self.index[mine] = torch.where(closer, index[best], self.index[mine])
            self.squared[mine] = torch.where(closer, squared, self.squared[mine])


def nearest_partners(test: Sided, train: Sided) -> Tensor:
    """Position in the train split of the partner of each test sample, −1 where there is none  [k]."""
    (x_test, y_test), (x, y) = test, train
    found = Nearest(len(x_test), x_test.device)
    flat_test, flat = x_test.reshape(len(x_test), -1), x.reshape(len(x), -1)
    for part in row_blocks(len(x), flat.shape[1]):
        found.offer(0, (flat_test, y_test), part.start, (flat[part], None if y is None else y[part]))
    return found.index


def _nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance from each a [k, D] to its nearest b [m, D], and the lowest position of such a b."""
    a_norm, b_norm = a.square().sum(1), b.square().sum(1)
    proposed = torch.addmm(b_norm[None, :], a, b.T, alpha=-2).add_(a_norm[:, None])
    margin = 4 * (a.shape[1] + 4) * ROUNDING * (a_norm + b_norm.max())  # twice the rounding error of one entry
    rows, columns = torch.nonzero(proposed <= (proposed.min(1).values + margin)[:, None], as_tuple=True)
    parts = row_blocks(len(rows), a.shape[1])
    exact = torch.cat([(a[rows[part]] - b[columns[part]]).square().sum(1) for part in parts])
    smallest = exact.new_full((len(a),), torch.inf).scatter_reduce(0, rows, exact, "amin")
    tied = exact <= smallest[rows] * (1 + TIE)
    lowest = rows.new_full((len(a),), len(b)).scatter_reduce(0, rows[tied], columns[tied], "amin")
    return smallest, lowest


def row_blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` rows of `width` numbers that fit into one block."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    return (slice(start, start + size) for start in range(0, count, size))
