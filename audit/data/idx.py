"""MNIST's idx files, gzipped or not: `train-images-idx3-ubyte`, `t10k-labels.idx1-ubyte.gz`, and their kin."""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from audit.data.dataset import SPLITS, Array, Folder, Match, Source, Stored, rows_of, same_length, unreadable
from audit.errors import DataError
from audit.settings import Settings
from audit.settings.limits import require_room

NAME = re.compile(r"(?:.*[-_.])?(train|t10k|test)[-_.](images|labels)[-_.]idx[0-9][-_.]ubyte(\.gz)?", re.IGNORECASE)
GZIP_RATIO = 1032  # bytes that one byte can unpack to, at most
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def find(folder: Folder, settings: Settings) -> list[Match]:
    """One match where any file is named like MNIST's."""
    files = tuple(file for file in folder.files if NAME.fullmatch(file.name))
    plain = {file.name for file in files}
    chosen = tuple(f for f in files if f.suffix != ".gz" or f.name.removesuffix(".gz") not in plain)
    return [Match("idx", chosen, partial(read, chosen, settings.memory))] if chosen else []


def read(files: tuple[Path, ...], memory: str | None = None) -> Stored:
    """Pair images with labels, split by split."""
    parts: dict[str, dict[str, Path]] = {}
    for file in files:
        match = NAME.fullmatch(file.name)
        assert match is not None, "find chose the files by this pattern"
        kinds = parts.setdefault(SPLITS[match[1].lower()], {})
        if match[2].lower() in kinds:
            raise DataError(f"{file}: {kinds[match[2].lower()].name} beside it holds the same split; keep one of them.")
        kinds[match[2].lower()] = file
    sources = {split: _source(kinds, next(iter(kinds.values())), memory) for split, kinds in parts.items()}
    return Stored(sources)


def _source(kinds: dict[str, Path], any_file: Path, memory: str | None) -> Source:
    for kind, other in (("images", "labels"), ("labels", "images")):
        if kind not in kinds:
            raise DataError(
                f"{any_file}: the {kind} file that belongs to it is missing; put it beside the {other} file."
            )
    images, labels = (read_idx(kinds[kind], memory) for kind in ("images", "labels"))
    same_length(len(images), len(labels), str(kinds["images"]), kinds["labels"].name)
    return Source(np.asarray(labels), partial(rows_of, images), (kinds["images"], kinds["labels"]))


def read_idx(path: Path, memory: str | None = None) -> Array:
    """The array of one file: never more is read than its header promises, nor allocated than the file holds."""
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as opened:
            stream = cast(BinaryIO, opened)
            dtype, shape = _header(stream, path)
            promised = math.prod(shape) * dtype.itemsize
            require_room(min(promised, GZIP_RATIO * path.stat().st_size), memory, path)
            content = _read_at_most(stream, promised + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, "an idx file", error, "fetch it again") from error
    if len(content) != promised:
        held = "more" if len(content) > promised else f"only {len(content)}"
        raise DataError(f"{path}: its header promises {promised} bytes of data but it holds {held}; fetch it again.")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _header(stream: BinaryIO, path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Two zero bytes, the type, the number of axes; then the length of each axis as a big-endian uint32."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise DataError(f"{path}: does not begin like an idx file ({magic.hex(' ') or 'it is empty'}); fetch it again.")
    lengths = stream.read(4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(f"{path}: ends within its header; fetch it again.")
    return np.dtype(TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", lengths)


def _read_at_most(stream: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, piece by piece, because one large read allocates its whole size beforehand."""
    pieces = []
    while size > 0 and (piece := stream.read(min(size, 1 << 22))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
