"""Models: one file per format, each giving the same `Model`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import ModelError, UsageError, readable
from audit.model.detect import detect
from audit.settings import Settings
from audit.settings.limits import memory_limited

if TYPE_CHECKING:
    from torch import Tensor

    from audit.model.base import Model

__all__ = ["canonical_form", "load_model"]

REMEDY = "export or copy the model again"


def load_model(path: Path, settings: Settings) -> Model:
    """The model in the file `path`, whatever its format. Its own loader, and torch with it, is imported only now."""
    path = Path(path)
    with readable(ModelError, path, REMEDY), memory_limited(settings.memory, path):
        return _load(path, detect(path), settings)


def _load(path: Path, form: str, settings: Settings) -> Model:
    if settings.fix_input and form != "onnx":
        raise UsageError("--fix-input: only ONNX files can have inputs held at a constant; drop it, or export to ONNX.")
    if form == "onnx":
        from audit.model.onnx.load import load
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
