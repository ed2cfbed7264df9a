"""Damage by seed: the same number always makes the same file."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import random
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.message import Message

ODD = [None, "NaN", -1, 0, 10**30, 1e308, 2**63, "", [], {}, "x\x1b[2J", True, [1], 0.5, "{", " [1"]
BYTES = [b"\0", b"\xff" * 4, b"\x80", b"PK\x03\x04", b"\n", b"{", b"9" * 40, (2**31 - 1).to_bytes(4, "little")]

WORDS = [
    b"",
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"[",
    b"]",
    b'"',
    b"'''",
    b"=",
    b"\n",
    b"\r",
    b"\xff",
    b"\0",
    b"true",
    b"a.b.c",
]


def bytes_of(content: bytes, rng: random.Random) -> bytes:
    """A few bytes flipped, cut out, doubled or put in."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif how == 1 and place < len(data):
            data[place] = rng.randrange(256)
        elif how == 2:
            data[place : place + rng.choice([1, 4, 64, 10**6])] = b""
        elif how == 3:
            data[place:place] = data[place : place + rng.choice([1, 8, 256])]
        else:
            data[place:place] = rng.choice(BYTES)
    return bytes(data)


def archive(content: bytes, rng: random.Random) -> bytes:
    """A ZIP archive that opens, with one of its members damaged; or damaged as a whole."""
    if rng.random() < 0.3:
        return bytes_of(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    chosen = rng.choice(sorted(members))
    plain = chosen.endswith(".json") and rng.random() < 0.7
    members[chosen] = document(members[chosen], rng) if plain else bytes_of(members[chosen], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as new:
        for name, member in members.items():
            new.writestr(name, member)
    return stream.getvalue()


def document(content: bytes, rng: random.Random) -> bytes:
    """A JSON document with values taken out, cut short or replaced, half of the time by others of their kind."""
    value, places = json.loads(content), _places_of(content)
    alike = rng.random() < 0.5  # what a schema lets through, so that it gets further
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        *path, key = rng.choice(places)
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change took it away
            holder = value
            for step in path:
                holder = holder[step]
            held, how = holder[key], rng.random()
            if alike and not isinstance(held, (list, dict)):
                holder[key] = _alike(held, rng)
            elif how < 0.3:
                del holder[key]
            elif how < 0.5 and isinstance(held, list) and held:
                holder[key] = held[: rng.randrange(len(held))]
            else:
                holder[key] = copy.deepcopy(rng.choice(ODD))  # a later change may be within it
    return json.dumps(value).encode()


def headed(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file: its header, a JSON document behind its length, is damaged half of the time."""
    if rng.random() < 0.5:
        return bytes_of(content, rng)
    size = int.from_bytes(content[:8], "little")
    header = document(content[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def text(content: bytes, rng: random.Random) -> bytes:
    """Words of a text replaced by odd ones, or swapped, or doubled; or its bytes damaged."""
    if rng.random() < 0.5:
        return bytes_of(content, rng)
    words = re.split(rb"([^\w.+-]+)", content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place, how = rng.randrange(len(words)), rng.randrange(4)
        if how == 0:
            words[place] = rng.choice(words)
        elif how == 1:
            words[place] *= rng.choice([0, 2, 300])
        else:
            words[place] = rng.choice(WORDS)
    return b"".join(words)


def graph(content: bytes, rng: random.Random) -> bytes:
    """An ONNX file that parses, with fields of its nodes, attributes, weights and declarations changed."""
    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        messages = [message for message in _messages(model) if message.ListFields()]
        message = rng.choice(messages)
        field, value = rng.choice(message.ListFields())
        if field.is_repeated:
            _change_list(value, field, rng)
        elif field.message_type is None:
            with contextlib.suppress(ValueError, TypeError):
                setattr(message, field.name, _other(value, rng))
        else:
            message.ClearField(field.name)
    content = model.SerializeToString()
    return content if isinstance(content, bytes) else b""


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _change_list(values: Any, field: Any, rng: random.Random) -> None:
    place = rng.randrange(len(values))
    how = rng.randrange(3)
    if how == 0:
        del values[place]
    elif how == 1 and field.message_type is not None:
        values.add().CopyFrom(values[place])
    elif field.message_type is None:
        with contextlib.suppress(ValueError, TypeError):
            values[place] = _other(values[place], rng)


def _other(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bytes):
        return bytes_of(value, rng)
    if isinstance(value, str):
        return rng.choice(["", "x", "Loop", "Relu", "MatMul", "Reshape", value + "\x1b", "a" * 3000])
    if isinstance(value, float):
        return rng.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
    return rng.choice([0, 1, -1, 2, 7, 99, 10**6, 2**31 - 1, 2**40, -(2**62)])


def _alike(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind, as JSON knows kinds."""
    if isinstance(value, bool) or value is None:
        return rng.choice([True, False, None])
    if isinstance(value, int):
        return rng.choice([0, 1, 2, -1, value + 1, 10**6, 2**31, 2**63, 10**30])
    if isinstance(value, float):
        return rng.choice([0.0, 1.0, -1.0, -value, 1e-320, 1e-30, 1e30, 1e308, -1e308])
    return rng.choice(
        ["", " ", "x" * 3000, "\x1b[2J", "\u202e", "\ud800", "\0", "<b>", "]]>", "{{", "..", value + value]
    )


@functools.lru_cache(maxsize=8)
def _places_of(content: bytes) -> list[tuple[Any, ...]]:
    """The way to every value of a document, which takes longer to find than to damage."""
    return list(_places(json.loads(content)))


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*way, key)
        yield from _places(value[key], (*way, key))
