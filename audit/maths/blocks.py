"""How much is worked on at once: every size of a block, with its reason, and the one way to go over rows in blocks.

A block is a trade: too small and the time goes into calls, too large and what lies between two steps leaves the
processor's cache, or memory fills up. Where nothing else is said, sizes are numbers, 8 bytes each in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # compare and history count blocks, too, and never wake torch
    from torch import Tensor

Item = TypeVar("Item")

# Of numbers that are read again at once, so that a cache should hold them.
CACHED = 1 << 16  # ½ MB: a core's own cache
CACHED_SINGLE = 1 << 17  # the same in single precision, and 1 MB of the words that rows are summed up in
CACHED_PRODUCT = 1 << 18  # 2 MB: a factor that a matrix product reads in its own order
CACHED_STACK = 1 << 19  # 4 MB: the signals of a few scores, stacked
CACHED_GATHER = 1 << 20  # 8 MB: rows gathered for one product; beyond it the shared cache is full

# Of numbers that are written once and read once, so that only memory counts.
TABLE = 1 << 21  # 16 MB: two tables of this size are multiplied
HELD = 1 << 22  # 32 MB: gradients, differences or distances, formed and summed up

# Of what is kept for longer.
DENSE_LIMIT = 4096  # weights of a layer up to which its Hessian itself is formed (128 MB)
KRYLOV_BASIS = 1 << 25  # 256 MB: beyond it the basis of an iteration is restarted from its best vectors
COUNTS = 1 << 25  # 32 MB: counts of a split's bootstrap, a byte each, that are kept from one measure to the next
POINTS = 1 << 24  # 64 MB in single precision: samples made ready for one search …
SHARED_POINTS = 1 << 22  # … and 16 MB: for all searches in the same space
PAIRS_PROPOSED = 1 << 20  # 30 MB of places and distances: pairs that one block of a search may propose

# Rows at once.
RESAMPLED = 1 << 14  # samples that are resampled one by one: of more, random groups are
DIRECTIONS = 64  # columns of the table of projections, beyond which a few thousand pairs leave the cache
EIGENVECTORS = 512  # whose residuals are taken at once
RESIDUAL_COLUMNS = 4  # of R, each of which takes a second backward pass side by side
SAMPLE_GRADIENTS = 64  # samples whose gradients are formed by a closed form at once
MAPPED_SAMPLES = 128  # … and by torch.func: more do not make it faster
SCORES = 5  # whose signals are held at once: all would be quicker, but weigh more
FORWARD_SAMPLES = 64  # that a forward pass alone is quickest with …
FORWARD_CHUNKS = 4  # … but no more than this many chunks of the whole pass, which keeps far more of a sample

# Bytes of Jacobians in a chunk of samples.
CHUNK_BYTES = 128 << 20  # beyond which a CPU only waits for memory
CHUNK_BYTES_IN_TURN = 48 << 20  # the same where one backward pass after the other walks over the same activations


def blocks(count: int, width: int, numbers: int) -> Iterator[slice]:
    """Slices that go over `count` rows of `width` numbers each: at most `numbers` in a block, but at least one row.

    >>> list(blocks(5, width=3, numbers=6))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    rows = max(1, numbers // max(1, width))
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


def all_within(room: int, parts: Iterable[Item], count: int, size: Callable[[Item], int]) -> list[Item] | None:
    """All `count` parts, to be gone over again and again, or None where together they take more than `room` bytes.

    What is still to come counts like the part before it, so that few are made in vain.

    >>> all_within(5, ["abc", "de"], count=2, size=len), all_within(6, ["abc", "de"], count=2, size=len)
    (None, ['abc', 'de'])
    """
    held: list[Item] = []
    for part in parts:
        if size(part) * (count - len(held)) > room:
            return None
        room -= size(part)
        held.append(part)
    return held


def row_blocks(M: Tensor) -> Iterator[slice]:
    """Goes over a matrix as large as a layer's weights, a few rows at a time: beside it there is no room for another.

    >>> import torch
    >>> list(row_blocks(torch.zeros(2, 3)))
    [slice(0, 2, None)]
    """
    return blocks(len(M), M[0].numel(), HELD)


def in_blocks(work: Callable[..., Tensor], *tensors: Tensor, width: int = 0) -> Tensor:
    """work(*tensors) [n, …], a few rows at a time, so that what lies between two steps stays in the cache.

    `width`: numbers in a row of what lies between, where these are more than those of the tensors [n, …] themselves.

    >>> import torch
    >>> in_blocks(lambda a, b: (a * b).sum(1), torch.ones(3, 2), torch.full((3, 2), 5.0))
    tensor([10., 10., 10.])
    """
    import torch

    widest = max(width, *(tensor[0].numel() for tensor in tensors))
    return torch.cat([work(*(each[part] for each in tensors)) for part in blocks(len(tensors[0]), widest, CACHED)])
