"""Test samples beside their train partners: who is whose, and both run through the network chunk by chunk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.maths.blocks import HELD, blocks
from audit.measures.contract import Audit
from audit.network.capture import Capture
from audit.network.cost import budget_bytes
from audit.network.record import Record


@dataclass(frozen=True)
class PairChunk:
    """k test samples (x′ in the paper) and the train partner (x) of each."""

    positions: slice  # which of the pairs these are
    test: Record
    partner: Record
    x: Tensor  # [k, ...]  the partners as the network takes them
    y: Tensor


class Pairs:
    """All pairs of an audit: walked over as often as needed, kept if they fit into a sixteenth of the memory budget.

    Everything about a pair is computed in float64, whatever the precision of the capture pass: the duality is an
    equality, and it is checked as one. Only where a plan samples, and passes are dear, they run in its own arithmetic.
    """

    def __init__(self, audit: Audit, partner: Tensor, asked: Tensor | None = None) -> None:
        """From the partner of each test sample, or of those at `asked` alone [k]; −1 where there is none."""
        self.asked = torch.arange(len(partner)) if asked is None else asked  # [k] positions in the test split
        paired = partner >= 0
        self.rows = self.asked[paired]  # positions in the test split
        self.partner = partner[paired]  # positions in the train split
        self.unpaired = len(partner) - len(self.rows)
        self.capture = audit.capture if audit.plan.samples_some else in_float64(audit.capture)
        self._audit, self.room = audit, budget_bytes(audit.settings.memory) // 16
        self._kept: list[PairChunk] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> Pairs:
        """The first `count` of them."""
        few = copy.copy(self)
        few.rows, few.partner, few._kept = self.rows[:count], self.partner[:count], None
        return few

    def __iter__(self) -> Iterator[PairChunk]:
        if self._kept is not None:
            yield from self._kept
            return
        keep: list[PairChunk] | None = []
        left = self.room
        for chunk in self._run():
            left -= chunk.test.bytes() + chunk.partner.bytes()
            keep = None if keep is None or left < 0 else [*keep, chunk]
            yield chunk
        self._kept = keep

    def _run(self) -> Iterator[PairChunk]:
        train, test = self._audit.train, self._audit.test
        for positions in blocks(len(self), 1, self.capture.forward_size):
            rows, partner = self.rows[positions], self.partner[positions]
            x, y = train.x[partner], train.y[partner]
            yield PairChunk(positions, self._forward(test.x[rows], test.y[rows]), self._forward(x, y), x, y)

    def _forward(self, x: Tensor, y: Tensor) -> Record:
        """The pass without the layers' answers, which nobody asks a pair for: so that more pairs can be kept."""
        record = next(self.capture.forward(x, y))
        layers = {name: replace(layer, z=layer.z.new_empty(0)) for name, layer in record.layers.items()}
        return replace(record, layers=layers)


def in_float64(capture: Capture) -> Capture:
    """The same capture with its network in float64."""
    if all(weight.dtype == torch.float64 for weight in capture.network.parameters()):
        return capture
    return replace(capture, network=copy.deepcopy(capture.network).double())


# The nearest train sample with the same label, for every test sample: exact, in blocks, one matrix product each.
# ‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b is one matrix product, but it cancels: near neighbours lose most of their digits. It
# only proposes candidates, with a margin that covers its rounding error; the distance that decides is Σ (a − b)².


PAIRED = 10_000  # test samples, at most, that a partner is looked for: the losses of all are in the gap anyway
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
        for part in blocks(len(rows), max(x.shape), HELD):
            squared, best = _nearest(x_test[part].double(), x.double())
            mine = rows[part]
            closer = squared < self.squared[mine] * (1 - TIE)
            self.index[mine] = torch.where(closer, index[best], self.index[mine])
            self.squared[mine] = torch.where(closer, squared, self.squared[mine])


def asked_for(tests: int, seed: int) -> Tensor:
    """Positions of the test samples that are paired: all of them, or `PAIRED` drawn at random."""
    if tests <= PAIRED:
        return torch.arange(tests)
    return torch.randperm(tests, generator=torch.Generator().manual_seed(seed))[:PAIRED].sort().values


def nearest_partners(test: Sided, train: Sided) -> Tensor:
    """Position in the train split of the partner of each test sample, −1 where there is none  [k]."""
    (x_test, y_test), (x, y) = test, train
    found = Nearest(len(x_test), x_test.device)
    flat_test, flat = x_test.reshape(len(x_test), -1), x.reshape(len(x), -1)
    for part in blocks(len(x), flat.shape[1], HELD):
        found.offer(0, (flat_test, y_test), part.start, (flat[part], None if y is None else y[part]))
    return found.index


def _nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance from each a [k, D] to its nearest b [m, D], and the lowest position of such a b."""
    a_norm, b_norm = a.square().sum(1), b.square().sum(1)
    proposed = torch.addmm(b_norm[None, :], a, b.T, alpha=-2).add_(a_norm[:, None])
    rounding = torch.finfo(torch.float64).eps * (a_norm + b_norm.max())
    margin = 4 * (a.shape[1] + 4) * rounding  # twice the rounding error of one entry
    rows, columns = torch.nonzero(proposed <= (proposed.min(1).values + margin)[:, None], as_tuple=True)
    parts = blocks(len(rows), a.shape[1], HELD)
    exact = torch.cat([(a[rows[part]] - b[columns[part]]).square().sum(1) for part in parts])
    smallest = exact.new_full((len(a),), torch.inf).scatter_reduce(0, rows, exact, "amin")
    tied = exact <= smallest[rows] * (1 + TIE)
    lowest = rows.new_full((len(a),), len(b)).scatter_reduce(0, rows[tied], columns[tied], "amin")
    return smallest, lowest
