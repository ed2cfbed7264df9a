"""Which samples are the same, number for number: rows by hash, twins across the splits, and twins by coincidence.

Rows whose 64-bit sum differs are different. Those that share one are hashed to 128 bits, so that memory stays flat for
large samples; two different rows of a million share a hash with probability 1e-27. −0.0 equals 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from audit.maths.blocks import CACHED_SINGLE, blocks

Array = NDArray[np.generic]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

HALVES = 8  # random halves of the features that a coincidence is looked for in
PAIRS = 50  # pairs that the report lists


def row_ids(*parts: Array) -> list[Ids]:
    """A number for every row of every part, equal exactly where the rows are equal; counted in order of appearance."""
    dtype = np.result_type(*parts)
    flat = [part.reshape(len(part), -1) for part in parts]
    sums = np.concatenate([_sums(rows, dtype) for rows in flat])
    _, group, size = np.unique(sums, return_inverse=True, return_counts=True)
    ends = np.cumsum([len(rows) for rows in flat])[:-1]
    if flat[0].shape[1] > 1:  # the sum of a single number tells it from every other
        shared = size[group] > 1
        parts_shared = zip(flat, np.split(shared, ends), strict=True)
        rows_of = (rows[place] for rows, those in parts_shared for place in np.flatnonzero(those))  # one at a time
        seen: dict[bytes, int] = {}
        group[shared] = [len(size) + seen.setdefault(_hash(row, dtype), len(seen)) for row in rows_of]
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    return np.split(np.argsort(np.argsort(first))[place], ends)


def _sums(rows: Array, dtype: np.dtype[np.generic]) -> NDArray[np.uint64]:
    """Σ of a row's bits, in words, times fixed random numbers, modulo 2⁶⁴."""
    word = np.dtype(f"u{min(8, dtype.itemsize)}")
    width = rows.shape[1] * (dtype.itemsize // word.itemsize)
    factors = np.random.default_rng(0).integers(1 << 63, size=width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    sums = np.empty(len(rows), np.uint64)
    for part in blocks(len(rows), width, CACHED_SINGLE):
        words = _canonical(rows[part], dtype).view(word).astype(np.uint64)
        words ^= words >> np.uint64(32)  # the last bits of a float are often zero, and a product moves no bit down
        sums[part] = words @ factors
    return sums


def _hash(row: Array, dtype: np.dtype[np.generic]) -> bytes:
    return blake2b(_canonical(row, dtype).tobytes(), digest_size=16).digest()


def _canonical(rows: Array, dtype: np.dtype[np.generic]) -> Array:
    """A copy in the common type, with −0.0 as 0.0."""
    return np.add(rows, np.zeros((), dtype), dtype=dtype)


@dataclass(frozen=True)
class Twins:
    """Equal inputs within and across two splits. All arrays are over the samples as used: n of train, m of test."""

    train_x: Ids  # [n] number of the input
    train_y: Ids  # [n] number of the label
    test_x: Ids  # [m]
    test_y: Ids
    across: Flags  # [m] test samples whose input is in train …
    across_same_label: Flags  # [m] … with the same label
    conflicts_across: Flags  # [m] … with another label
    conflicts_in_train: Flags  # [n] train samples whose input is in train again with another label
    repeated_in_train: Flags  # [n] … with the same label: how often twins are natural here

    @classmethod
    def of(cls, train: tuple[Array, Array], test: tuple[Array, Array]) -> Twins:
        """From x [n, ...] and y [n] or [n, k] of both splits."""
        x, x_test = row_ids(train[0], test[0])
        y, y_test = row_ids(train[1], test[1])
        both, both_test = _joint(x, y), _joint(x_test, y_test)
        labels = np.bincount(np.unique(both) >> 31, minlength=int(x_test.max()) + 1)  # different ones of each input
        across, same = np.isin(x_test, x), np.isin(both_test, both)
        _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
        return cls(
            *(x, y, x_test, y_test),
            across=across,
            across_same_label=same,
            conflicts_across=across & (labels[x_test] > same),
            conflicts_in_train=labels[x] > 1,
            repeated_in_train=np.asarray(counts[inverse.reshape(-1)] > 1),
        )

    def same_samples(self) -> bool:
        """Whether the two splits hold the very same samples, in whatever order."""
        train, test = (np.sort(_joint(x, y)) for x, y in ((self.train_x, self.train_y), (self.test_x, self.test_y)))
        return np.array_equal(train, test)

    def pairs(self) -> list[tuple[int, int]]:
        """(train, test) positions of the first `PAIRS` twins; a twin with the same label before one with another."""
        by_both = _first(_joint(self.train_x, self.train_y))
        by_input = _first(self.train_x)
        tests = np.flatnonzero(self.across)[:PAIRS]
        keys = _joint(self.test_x, self.test_y)[tests]
        return [
            (by_both.get(key, by_input[x]), test)
            for key, x, test in zip(keys.tolist(), self.test_x[tests].tolist(), tests.tolist(), strict=True)
        ]


def repeats(ids: Ids) -> int:
    """How many samples repeat an earlier one."""
    return len(ids) - len(np.unique(ids))


def coincidental(x: Array, ids: Ids, wanted: Ids, seed: int) -> Flags:
    """Whether a twin of each wanted input may be mere chance [len(wanted)]; x [n, ...] and ids [n] of train.

    Values that repeat by chance repeat in parts, too: of 10 yes-or-no features, far more rows share 5 than all 10. A
    copy is equal as a whole and resembles nothing else. So a twin is taken for chance where, in any of 8 random halves
    of the features that vary, another, different train row is equal to it; and always where only one feature varies.
    """
    rows = x.reshape(len(x), -1)
    varying = np.flatnonzero((rows != rows[:1]).any(0))
    if len(varying) < 2:
        return np.ones(len(wanted), dtype=bool)
    distinct = np.sort(np.unique(ids, return_index=True)[1])
    rng = np.random.default_rng([seed, len(varying)])
    chance = np.zeros(int(ids.max()) + 1, dtype=bool)
    for _ in range(HALVES):
        half = np.sort(rng.choice(varying, len(varying) // 2, replace=False))
        parts = row_ids(rows[np.ix_(distinct, half)])[0]
        chance[ids[distinct]] |= np.bincount(parts)[parts] > 1
    return np.asarray(chance[wanted])


def _joint(x: Ids, y: Ids) -> Ids:
    """One number for an input with its label."""
    return x * (1 << 31) + y


def _first(keys: Ids) -> dict[int, int]:
    values, positions = np.unique(keys, return_index=True)
    return dict(zip(values.tolist(), positions.tolist(), strict=True))
