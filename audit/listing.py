"""The layers of a model file, without data and without waking the measures."""

from __future__ import annotations

from pathlib import Path

from audit.errors import ModelError
from audit.example import example_input
from audit.layers import Layers, find_layers
from audit.model import load_model
from audit.model.base import Model
from audit.model.common import first_line, float_type
from audit.model.trace import trace
from audit.settings import Settings


def list_layers(model_path: Path, settings: Settings) -> tuple[Model, Layers]:
    """The layers of a model without data: it is shown made-up inputs of the shape it takes."""
    model = load_model(model_path, settings)
    example = example_input(model, settings.input_shape)
    model = trace(model, example, settings=settings)
    example = example.to(float_type(model.network)) if example.is_floating_point() else example
    try:
        return model, find_layers(model, example, settings.conv)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ModelError(
            f"{model_path}: does not run on an input of the shape it declares, {list(example.shape[1:])} "
            f"({first_line(error)}); export the model again."
        ) from error
