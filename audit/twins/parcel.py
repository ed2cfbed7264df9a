"""A value on its way to other processes: pickled once, its arrays apart, so that workers of one machine share them.

`cloudpickle` also takes what a notebook has defined: a network's class, a training function, a kind's lambda.
"""

from __future__ import annotations

import io
import mmap
import pickle
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNED = 64  # bytes: where arrays begin in a file
NUMPYS = {torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool}
VALUE, ARRAYS = "value.pickle", "arrays"


class CannotTravel(Exception):
    """What has no meaning in another process, such as an open file."""


@dataclass(frozen=True)
class Parcel:
    """A pickled value and the arrays in it, as bytes. A parcel is equal to what arrives of it elsewhere."""

    value: bytes = field(compare=False)
    arrays: list[NDArray[np.uint8]] = field(compare=False)
    key: str = field(default_factory=lambda: uuid4().hex)

    def opened(self) -> Any:
        """The value; its arrays are those of the parcel, not copies."""
        return pickle.loads(self.value, buffers=self.arrays)

    def save(self, folder: Path) -> None:
        """Into two files."""
        sizes = [array.nbytes for array in self.arrays]
        with (folder / ARRAYS).open("wb") as stream:
            for array in self.arrays:
                stream.write(array.data)
                stream.write(bytes(-stream.tell() % ALIGNED))
            stream.write(bytes(1))  # nothing cannot be mapped
        (folder / VALUE).write_bytes(pickle.dumps((sizes, self.value)))


def parcel_of(value: Any) -> Parcel:
    """The value ready to be sent, opened once to be sure."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    try:
        _Pickler(stream, buffers).dump(value)
        parcel = Parcel(stream.getvalue(), [np.asarray(buffer.raw()) for buffer in buffers])
        parcel.opened()
    except Exception as error:  # whatever a foreign object trips
        raise CannotTravel(f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip(".")) from error
    return parcel


def saved_parcel(folder: Path) -> Parcel:
    """The parcel of a folder, its arrays mapped: pages that nobody writes to are in memory once for all processes."""
    sizes, value = pickle.loads((folder / VALUE).read_bytes())
    with (folder / ARRAYS).open("rb") as stream:
        mapped = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    starts = accumulate((size + -size % ALIGNED for size in sizes), initial=0)
    return Parcel(value, [mapped[start : start + size] for start, size in zip(starts, sizes, strict=False)])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes tensors for the arrays that they are, and arrays out of the stream."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)

    def reducer_override(self, value: Any) -> Any:
        """Of a plain tensor; cloudpickle's of anything else."""
        if type(value) is Tensor and value.device.type == "cpu" and value.dtype in NUMPYS and not value.requires_grad:
            return torch.from_numpy, (value.numpy(),)
        return super().reducer_override(value)
