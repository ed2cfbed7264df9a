"""An ONNX file and its external data, or a sentence that says what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo

from audit.errors import ModelError
from audit.model import sha256
from audit.model.onnx.graph import opset, subgraphs, walk
from audit.model.onnx.runtime import RuntimeFailure, Session

OLDEST = 7
"""Before opset 7, operators broadcast by attributes; 7 and 8 differ little from 9 and real files still use them."""

LARGEST_CHECK = 2**31 - 1
"""Protobuf cannot serialise more, and the checker takes serialised models."""

DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")

STRANGERS = (
    (0, b"version https://git-lfs", "is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"),
    (0, b"PK\x03\x04", "is a zip archive; if PyTorch wrote it, rename it to .pt2 or .pt"),
    (0, b"\x89HDF", "is an HDF5 file, which Keras writes; export it to ONNX with tf2onnx"),
    (0, b"\x80", "is a Python pickle; if it holds PyTorch weights, rename it to .pt and give --arch"),
    (4, b"TFL3", "is a TensorFlow Lite file; convert it with tf2onnx"),
    (4, b"ORTM", "is in onnxruntime's own format; audit the .onnx file that it was made from"),
    (0, b"<", "is a web page or XML, not a model; download the file itself"),
    (0, b"{", "is JSON, not a model; give the .onnx file"),
)
"""What people hand in instead: where its mark stands, the mark, and what to say."""


@dataclass(frozen=True)
class Source:
    """A file as read: its graph with all weights in it, and the hash of every byte that went in."""

    path: Path
    model: ModelProto
    sha256: str


def read_file(path: Path) -> Source:
    """Read `path` and the external data beside it."""
    model = parsed(path)
    check_size(path, model)
    digest = sha256(path, *external_files(path, model))
    _load_external(path, model)
    for tensor in _tensors(model):
        check_tensor(path, tensor)
    _check_opset(path, model)
    _check(path, model)
    return Source(path, model, digest)


def parsed(path: Path) -> ModelProto:
    """The graph in the file, its external data left where they are."""
    return _parse(path, _content(path))


def external_files(path: Path, model: ModelProto) -> list[Path]:
    """The files beside the model that hold its external data."""
    return sorted({tensor_file(path, tensor) for tensor in _external(model)})


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); give a readable .onnx file.") from error
    if not content:
        raise ModelError(f"{path}: the file is empty; export the model again.")
    for start, mark, sentence in STRANGERS:
        if content[start:].startswith(mark):
            raise ModelError(f"{path}: {sentence}.")
    return content


def _parse(path: Path, content: bytes) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError(
            f"{path}: not a readable ONNX file, it is cut short, damaged or of another format; export or copy it again."
        ) from error
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path}: there is no network in this file; export the model to ONNX again.")
    if not model.opset_import:
        raise ModelError(f"{path}: the file names no operator set, so its operators have no meaning; export it again.")
    return model


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of the file: of the graph, of the bodies in it, of functions, and the parts of sparse ones."""
    yield from _graph_tensors(model.graph)
    for node in (node for function in model.functions for node in function.node):
        yield from _node_tensors(node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        yield from attribute.tensors
        if attribute.HasField("t"):
            yield attribute.t
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for body in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(body)


def _external(model: ModelProto) -> list[TensorProto]:
    return [tensor for tensor in _tensors(model) if tensor.data_location == TensorProto.EXTERNAL]


def tensor_file(path: Path, tensor: TensorProto) -> Path:
    """The file that holds an external tensor: in the model's own folder and nowhere else, also through links."""
    location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
    file: Path = path.parent / location
    outside = not location or Path(location).name != location or "\\" in location
    if outside or file.resolve().parent not in (path.parent.resolve(), path.resolve().parent):
        raise ModelError(
            f"{path}: the weights of {tensor.name!r} are said to lie in {location!r}, outside the model's own folder, "
            "which is not followed; save the model again with its external data beside it."
        )
    if not file.is_file():
        raise ModelError(f"{path}: its weights are in {location!r}, which is missing; put that file beside the model.")
    return file


def _load_external(path: Path, model: ModelProto) -> None:
    for tensor in _external(model):
        file, info = tensor_file(path, tensor), ExternalDataInfo(tensor)
        start = info.offset or 0
        available = file.stat().st_size - start
        length = available if info.length is None else info.length
        if available < length or length < 0 or start < 0:
            raise ModelError(
                f"{file}: too short for the weights of {tensor.name!r} that {path.name} expects in it; "
                "copy or export both files again."
            )
        with file.open("rb") as stream:
            stream.seek(start)
            tensor.raw_data = stream.read(length)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_opset(path: Path, model: ModelProto) -> None:
    version, newest = opset(model), onnx.defs.onnx_opset_version()
    if version > newest:
        raise ModelError(
            f"{path}: opset {version} is newer than the installed onnx knows (up to {newest}); "
            "update onnx and onnxruntime, or export with an older opset."
        )
    if 0 < version < OLDEST:
        raise ModelError(
            f"{path}: opset {version} is too old to be read reliably; convert it with onnx.version_converter to 13 or "
            "later."
        )


def _check(path: Path, model: ModelProto) -> None:
    """The ONNX checker is strict about oddities that run well, so onnxruntime has the last word.

    Neither knows operators of other domains; those are left to the converter, which names all of them at once.
    """
    foreign = any(node.domain not in DOMAINS for node in walk(model.graph)) and not model.functions
    if foreign or model.ByteSize() > LARGEST_CHECK:
        return
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError):
        try:
            Session(path)
        except RuntimeFailure as failure:
            raise ModelError(
                f"{path}: not a valid ONNX model ({failure}); export it again, with an opset its exporter supports."
            ) from failure


# What the file asks for, counted before any of it is done: functions that call each other, and tensors.


MOST_NODES = 40_000
"""Once functions are put in their callers' place; the largest networks have some ten thousand."""
COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
PACKED: dict[int, int] = {TensorProto.UINT4: 2, TensorProto.INT4: 2}  # numbers in one byte


def check_size(path: Path, model: ModelProto) -> None:
    """Refuses a graph of more operators than can be converted soon, its functions put in their callers' place."""
    bodies = {(one.domain, one.name): list(one.node) for one in model.functions}
    known: dict[tuple[str, str], int] = {}

    def nodes_of(nodes: list[NodeProto]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(nodes_of(list(body.node)) for body in subgraphs(node))
            total += expanded((node.domain, node.op_type)) if (node.domain, node.op_type) in bodies else 0
        return min(total, MOST_NODES + 1)

    def expanded(name: tuple[str, str]) -> int:
        if name not in known:
            known[name] = MOST_NODES + 1  # of one that calls itself
            known[name] = nodes_of(bodies[name])
        return known[name]

    if nodes_of(list(model.graph.node)) > MOST_NODES:
        raise ModelError(
            f"{path}: runs more than {MOST_NODES:,} operators, those of its functions and branches included; export it "
            "without unrolled loops."
        )


def check_tensor(path: Path, tensor: TensorProto) -> None:
    """Refuses a tensor whose bytes are not those of its shape, and numbers that the audit would have to cut."""
    if tensor.data_type in COMPLEX:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are complex numbers; audit a model with real ones.")
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{path}: the weights of {tensor.name!r} have a negative size; export the model again.")
    if not tensor.HasField("raw_data") or tensor.data_type == TensorProto.STRING:
        return
    count = math.prod(tensor.dims)
    if tensor.data_type in PACKED:
        wanted = -(-count // PACKED[tensor.data_type])
    elif tensor.data_type in helper.get_all_tensor_dtypes():
        wanted = count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    else:
        raise ModelError(f"{path}: the weights of {tensor.name!r} are of no type that exists; export the model again.")
    if len(tensor.raw_data) != wanted:
        raise ModelError(
            f"{path}: the weights of {tensor.name!r} are {len(tensor.raw_data)} bytes where their shape asks for "
            f"{wanted}; export or copy the model again."
        )
