"""The records of a split, as often as a measure wants them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from audit.network.capture import Capture
from audit.network.record import Record


class Records:
    """The records of a split, to be walked over as often as needed.

    They are kept from the first walk on if they fit into `room` bytes, and captured anew on each walk if not. Records
    with a curved tail hold on to their autograd graph and are never kept.
    """

    def __init__(self, capture: Capture, x: Tensor, y: Tensor, room: int, full: bool) -> None:
        self.capture, self._full, self._new = capture, full, True
        self.chunks = -(-len(x) // (capture.full_size if full else capture.forward_size))  # records that a walk meets
        self.x, self.y, self.room = x, y, room
        self._kept: list[Record] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Record]:
        if self._kept is not None:
            for record in self._kept:
                yield record
                record.release()
            return
        keep: list[Record] | None = []
        left = self.room
        for record in self._captured():
            left -= record.bytes()
            keep = None if keep is None or left < 0 or record.has_graph() else [*keep, record]
            yield record
            record.release()
        self._kept = keep

    def _captured(self) -> Iterator[Record]:
        """Only the first walk gathers squares: the measures see each record once, and walk again for other things."""
        squares, self._new = self._new, False
        return self.capture.full(self.x, self.y, squares) if self._full else self.capture.forward(self.x, self.y)
