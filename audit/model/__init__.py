"""Models: one file per format, each giving the same `Model`."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import ModelError, UsageError, readable
from audit.settings import Settings
from audit.settings.limits import let_go, memory_limited

if TYPE_CHECKING:
    from torch import Tensor

    from audit.model.base import Model

REMEDY = "export or copy the model again"


def load_model(path: Path, settings: Settings) -> Model:
    """The model in the file `path`, whatever its format. Its own loader, and torch with it, is imported only now."""
    path = Path(path)
    with readable(ModelError, path, REMEDY), memory_limited(settings.memory, path):
        model = _load(path, detect(path), settings)
    let_go(model.weights)  # graphs point at themselves, and at what was converted
    return model


def _load(path: Path, form: str, settings: Settings) -> Model:
    if settings.fix_input and form != "onnx":
        raise UsageError("--fix-input: only ONNX files can have inputs held at a constant; drop it, or export to ONNX.")
    if form == "onnx":
        from audit.model.onnx import load
    elif form == "pt2":
        from audit.model.torch.pt2 import load
    elif form == "torchscript":
        from audit.model.torch.torchscript import load
    else:
        from audit.model.torch.checkpoint import load
    return load(path, settings)


def canonical_form(model: Model, example: Tensor, *, settings: Settings | None = None) -> Model:
    """`model` in the form that an audit reads, found by running `example` [n, ...]; unchanged if it already is."""
    if model.input.shape is not None:
        return model
    from audit.model.torch.module import to_graph  # torch.export takes half a second to import

    settings = settings or Settings(output=model.output or None)
    with readable(ModelError, model.path, REMEDY), memory_limited(settings.memory, model.path):
        return to_graph(model, example, settings)


# Which format a model file has, by its content first, by its name only where the content does not say; and its hash.
# A wrong suffix must never open a door: a pickle called `model.onnx` is still treated as a pickle, and not unpickled.


HEAD = 4096  # bytes looked at
GIVE = "give a .onnx, .pt2, TorchScript, .safetensors or .pt/.pth file"
TO_ONNX = "export the model to ONNX and audit that file"
TO_SKL2ONNX = "convert it with skl2onnx and audit that file, or hand the fitted model to audit_model in Python"
PYTORCH_SUFFIXES = {".pt", ".pth", ".pt2", ".ts", ".ckpt", ".bin"}

MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
    (0, b"\x89HDF\r\n\x1a\n", "a Keras .h5 (HDF5) file", "export the model to ONNX with tf2onnx and audit that file"),
    (4, b"TFL3", "a TensorFlow Lite model", TO_ONNX),
    (4, b"ET12", "an ExecuTorch program", "audit the .pt2 file or the source model it came from"),
    (0, b"GGUF", "a GGUF model", "audit the model it was converted from"),
    (0, b"\x93NUMPY", "a NumPy array", GIVE),
    (0, b"PAR1", "a Parquet table", GIVE),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (0, b"\x89PNG", "a PNG image", GIVE),
    (0, b"\xff\xd8\xff", "a JPEG image", GIVE),
    (0, b"%PDF", "a PDF document", GIVE),
    (0, b"\x7fELF", "a compiled library", GIVE),
    (257, b"ustar", "a tar archive", "unpack it first"),
)
"""Files that people hand over by mistake: offset, bytes there, what it is, what to do."""


def detect(path: Path) -> str:
    """One of "onnx", "pt2", "torchscript", "checkpoint", "safetensors"; a ModelError for everything else."""
    head = _head(path)
    for offset, magic, what, remedy in MAGIC:
        if head[offset : offset + len(magic)] == magic:
            raise ModelError(f"{path}: is {what}; {remedy}.")
    if head[:2] == b"PK":
        return _zip_format(path)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        if b"sklearn." in head[:32] or path.suffix == ".joblib":  # the first object's class stands at the beginning
            raise _scikit_learn(path)
        return "checkpoint"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100_000_000:
        return "safetensors"
    return _by_name(path, head)


def file_hash(path: Path) -> str:
    """The SHA-256 of every byte of a model file, and of the weights that an ONNX file keeps beside it, as hex digits.

    This is `Model.sha256`; nothing is loaded for it.
    """
    if detect(path) != "onnx":
        return sha256(path)
    from audit.model.onnx.file import external_files, parsed

    return sha256(path, *external_files(path, parsed(path)))


def sha256(*paths: Path) -> str:
    """The SHA-256 of the files, one after the other, as hex digits."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _head(path: Path) -> bytes:
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            raise ModelError(f"{path}: is a TensorFlow SavedModel; export it to ONNX with tf2onnx and audit that file.")
        raise ModelError(f"{path}: is a folder; give the model file itself.")
    if not path.exists():
        raise ModelError(f"{path}: there is no such file; check the path of the model.")
    if not path.is_file():  # a pipe would be waited for, a device never ends
        raise ModelError(f"{path}: is no ordinary file; {GIVE}.")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); check its permissions.") from error
    if not head:
        raise ModelError(f"{path}: is empty; export or download the model again.")
    return head


def _zip_format(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ModelError(
            f"{path}: is truncated or corrupt (a ZIP archive that does not open); export or copy it again."
        ) from error
    inner = {name.partition("/")[2] for name in names} | set(names)
    if {"archive_format", "serialized_exported_program.json"} & inner:
        return "pt2"
    if "constants.pkl" in inner and any("/code/" in name for name in names):
        return "torchscript"
    if "data.pkl" in inner:
        return "checkpoint"
    if "model.weights.h5" in inner:
        raise ModelError(f"{path}: is a Keras archive; export the model to ONNX with tf2onnx and audit that file.")
    if any(name.endswith(".npy") for name in names):
        raise ModelError(f"{path}: is a NumPy .npz archive; {GIVE}.")
    raise ModelError(f"{path}: is a ZIP archive without a model that gen-audit knows; {GIVE}.")


def _by_name(path: Path, head: bytes) -> str:
    """For content without a signature: ONNX has none, and text is told by eye."""
    if (what := _text_kind(path, head)) is not None:
        raise ModelError(f"{path}: is {what}; {GIVE}.")
    looks_like_onnx = len(head) > 1 and head[0] == 0x08 and 0 < head[1] < 0x20  # field 1: the IR version
    if path.suffix == ".onnx" or looks_like_onnx:
        return "onnx"
    if path.suffix in PYTORCH_SUFFIXES:
        raise ModelError(f"{path}: is not a PyTorch file, or its beginning is corrupt; save or copy it again.")
    if path.suffix == ".safetensors":
        raise ModelError(f"{path}: is not a safetensors file, or its beginning is corrupt; save or copy it again.")
    if path.suffix == ".joblib":
        raise _scikit_learn(path)
    raise ModelError(f"{path}: is not a model that gen-audit knows; {GIVE}.")


def _scikit_learn(path: Path) -> ModelError:
    return ModelError(f"{path}: is a pickled scikit-learn or joblib object, which is not read; {TO_SKL2ONNX}.")


def _text_kind(path: Path, head: bytes) -> str | None:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # only a character cut off at the end may fail
            return None
        text = head[: error.start].decode("utf-8")
    if any(ord(letter) < 32 and letter not in "\t\r\n\f" for letter in text):
        return None
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype", "<html")):
        return "a web page, perhaps a download that needed a login"
    if start.startswith(("{", "[")):
        return "a JSON file"
    if path.suffix == ".py":
        return "Python source, which goes to --arch, not here"
    if path.suffix == ".csv" or "," in text.partition("\n")[0]:
        return "a CSV file"
    return "a text file"
