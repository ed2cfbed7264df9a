"""How many bytes of tensors are alive at once, counted operator by operator."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from audit.network.hooks import Operators


class LiveBytes(Operators):
    """`peak` of what was made while it is on, and has not gone since."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for part in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(part, Tensor):
                self._count(part)
        return found

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size
