"""Test samples beside their train partners: who is whose, both run through the network, and their dual weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from audit.maths.blocks import HELD, all_within, blocks, row_blocks
from audit.maths.decompositions import norm
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

    def bytes(self) -> int:
        """Memory of both records."""
        return self.test.bytes() + self.partner.bytes()


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

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> Pairs:
        """The first `count` of them."""
        return Pairs(self._audit, self.partner[:count], self.rows[:count])

    def __iter__(self) -> Iterator[PairChunk]:
        return iter(self._run() if self._all is None else self._all)

    @cached_property
    def _all(self) -> list[PairChunk] | None:
        """All chunks, or None where they do not fit."""
        count = -(-len(self) // self.capture.forward_size)
        return all_within(self.room, self._run(), count, PairChunk.bytes)

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


# The dual weights of a pair: the smallest change of W that does to x what exchanging x for x′ does.
#
# One vector per sample:   ΔW = (W Δx) xᵀ / ‖x‖²          (Feng & Tu, Eq. 6),   Δx = x′ − x
# T vectors, X [T, in]:    ΔW = (W ΔX)ᵀ (X⁺)ᵀ             the same as a least-squares problem; exact iff rank X = T
#
# The patches of a convolution are such vectors; where there are more of them than a patch has numbers, ΔW does only
# approximately what exchanging the sample does.
#
# Both are Σ_t u_t p_tᵀ with u = W Δx and p the columns of the pseudo-inverse of X (x/‖x‖² for one vector), so that ΔW
# is kept as its factors u [k, T, out] and p [k, T, in].


ROUNDING = 1e-13  # a change of the layer's answer below this, relative to the answer's own scale, is rounding: ΔW = 0

Shift = Callable[[Tensor], Tensor]  # what a layer was given [n, T, in] → what is added to its answer [n, T, out]


@dataclass(frozen=True)
class Dual:
    """ΔW of k pairs, in factors."""

    u: Tensor  # [k, T, out]
    p: Tensor  # [k, T, in]
    alive: Tensor  # [k]  False where x = 0: no weight can change what the layer makes of it

    def squared_norm(self) -> Tensor:
        """‖ΔW‖² = Σ_tt′ (u_t·u_t′)(p_t·p_t′)  [k]."""
        if self.u.shape[1] == 1:
            return self.u.square().sum((1, 2)) * self.p.square().sum((1, 2))
        if self._smaller_formed:
            return torch.cat([(u.mT @ p).square().sum((1, 2)) for u, p in self._blocks(self._weights)])
        return ((self.u @ self.u.mT) * (self.p @ self.p.mT)).sum((1, 2)).clamp(min=0)

    def weighted_sum(self, weights: Tensor, rows: slice, dtype: torch.dtype = torch.float64) -> Tensor:
        """Some rows of Σ_k weights_k ΔW_k  [rows, in]; weights [k]."""
        u = self.u[..., rows] * weights[:, None, None]
        return u.to(dtype).flatten(0, 1).T @ self.p.to(dtype).flatten(0, 1)

    def one(self, k: int) -> Dual:
        """Of pair k alone."""
        return Dual(self.u[k : k + 1], self.p[k : k + 1], self.alive[k : k + 1])

    def inner(self, M: Tensor) -> Tensor:
        """ΔW_k·M [k] of a large M [out, in], multiplied in its own precision."""
        p = self.p.to(M)
        parts = (torch.einsum("kto,kto->k", self.u[..., rows], (p @ M[rows].T).double()) for rows in row_blocks(M))
        return sum(parts, self.u.new_zeros(len(self.u)))

    def project(self, E: Tensor) -> Tensor:
        """ΔW_k·E_n = Σ_t u_tᵀ E_n p_t  [k, N]; E [N, out, in]. Whichever way has the smaller numbers in between."""
        N, out, into = E.shape
        by_weights = self.p.shape[1] > 1 or into < N
        step, numbers = (self._by_weights, self._weights) if by_weights else (self._by_factors, N * out)
        return torch.cat([step(u, p, E) for u, p in self._blocks(numbers)])

    @property
    def _weights(self) -> int:
        return self.u.shape[2] * self.p.shape[2]

    @property
    def _smaller_formed(self) -> bool:
        """Whether ΔW has fewer entries than a matrix between tokens, as in a convolution with many patches."""
        return self._weights < self.u.shape[1] ** 2

    def _blocks(self, numbers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Factors of a few pairs at a time, where each pair takes that many numbers."""
        return ((self.u[part], self.p[part]) for part in blocks(len(self.u), numbers, HELD))

    @staticmethod
    def _by_weights(u: Tensor, p: Tensor, E: Tensor) -> Tensor:
        return (u.mT @ p).flatten(1) @ E.flatten(1).T

    @staticmethod
    def _by_factors(u: Tensor, p: Tensor, E: Tensor) -> Tensor:
        N, out, into = E.shape
        E_p = (p.flatten(0, 1) @ E.reshape(N * out, into).T).reshape(*p.shape[:2], N, out)
        return torch.einsum("kto,ktno->kn", u, E_p)

    def shift(self, rows: int) -> Shift:
        """What ΔW_k adds to the answer for sample k; in a batch of `rows`, those beyond the pairs are left alone."""
        u, p = (nn.functional.pad(part, (0, 0, 0, 0, 0, rows - len(part))) for part in (self.u, self.p))
        if self._smaller_formed:
            dW = u.mT @ p
            return lambda x: x.to(dW) @ dW.mT
        return lambda x: (x.to(p) @ p.mT) @ u


def dual_weights(W: Tensor, x: Tensor, x_test: Tensor) -> Dual:
    """ΔW of each pair, multiplied in W's precision; x [k, T, in] the train partners, x_test [k, T, in], float64."""
    step = (x_test - x).to(W)
    u = torch.cat([(step @ W[rows].T).double() for rows in row_blocks(W)], -1)
    scale = norm(W) * (x.flatten(1).norm(dim=1) + x_test.flatten(1).norm(dim=1))
    u = torch.where((u.flatten(1).norm(dim=1) <= ROUNDING * scale)[:, None, None], torch.zeros_like(u), u)
    alive = (x != 0).flatten(1).any(1)
    if x.shape[1] == 1:
        square = x.square().sum(2, keepdim=True)
        p = torch.where(square > 0, x / torch.where(square > 0, square, torch.ones_like(square)), torch.zeros_like(x))
    else:
        p = _pseudo_inverse(x).mT
    return Dual(u, p, alive)


def _pseudo_inverse(x: Tensor) -> Tensor:
    """X⁺ [k, in, T]; long matrices through the triangle of their QR, which has their singular values."""
    tall = x if x.shape[1] >= x.shape[2] else x.mT
    rounding = len(tall[0]) * torch.finfo(x.dtype).eps
    Q, R = torch.linalg.qr(tall)
    inverse: Tensor = torch.linalg.pinv(R, rtol=rounding) @ Q.mT
    return inverse if x.shape[1] >= x.shape[2] else inverse.mT
