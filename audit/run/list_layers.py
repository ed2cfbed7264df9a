"""The layers of a model file without data: the model is shown made-up inputs of the shape it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.base import InputSpec, Model, accepts, as_fed, first_line, float_type, runs, trial_batches
from audit.model.packing import encode, pack
from audit.network import Layers, find_layers
from audit.run.fitting import module_of_rows, required
from audit.settings import Settings

SAMPLES = 3
FREE_SIZES = (32, 224, 28, 64, 16, 8, 1)  # tried, in this order, for a size that the file leaves open


def list_layers(model_path: Path, settings: Settings) -> tuple[Model, Layers]:
    """The layers of a model, without waking the measures."""
    model = load_model(model_path, settings)
    if len(required(model)) > 1:
        model, example = _several_inputs(model, settings)
    else:
        example = example_input(model, settings.input_shape)
        model = canonical_form(replace(model, others=()), example, settings=settings)
    example = example.to(float_type(model.network)) if example.is_floating_point() else example
    try:
        return model, find_layers(model, example, settings.conv)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ModelError(
            f"{model_path}: does not run on an input of the shape it declares, {list(example.shape[1:])} "
            f"({first_line(error)}); export the model again."
        ) from error


def example_input(model: Model, wanted: tuple[int, ...] | None = None) -> Tensor:
    """Random samples [n, ...] that the network accepts, of the shape wanted or of one that is found by trying."""
    for shape in _shapes(model) if wanted is None else [wanted]:
        if accepts(model, shape):
            return _random(model, shape)
    if wanted is not None:
        shown = ",".join(map(str, wanted))
        raise ModelError(f"{model.path}: does not run on samples of --input-shape {shown}; give the shape it takes.")
    raise ModelError(
        f"{model.path}: the file does not say what input shape it takes and none could be guessed; "
        "say it with --input-shape, such as --input-shape 3,32,32."
    )


def _several_inputs(model: Model, settings: Settings) -> tuple[Model, Tensor]:
    """A model of several inputs as one that takes rows, and random rows that its network accepts."""
    specs = [spec for spec in model.inputs if not spec.optional]
    for few in _trials(model, specs, settings.input_shape):
        shapes = {name: values.shape[1:] for name, values in few.items()}
        try:
            is_module = model.input.shape is None
            found = module_of_rows(model, specs, few, settings) if is_module else pack(model, shapes)
        except ModelError:
            continue
        rows = torch.from_numpy(encode(found.input.parts, few))
        if runs(found.network, as_fed(found.network, rows)):
            return found, rows
    raise ModelError(
        f"{model.path}: takes several inputs ({', '.join(spec.name for spec in specs)}), and no sizes were found that "
        "it runs with; say those of one with --input-shape, or audit it with its data."
    )


def _trials(
    model: Model, specs: list[InputSpec], wanted: tuple[int, ...] | None
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Random inputs in the shapes declared; of a module, in the wanted shape or one that its first layer suggests."""
    if model.input.shape is not None:
        trials = trial_batches(specs, model.input.batch or SAMPLES)
    else:
        tokens = any(_kind(module) == "Embedding" for module in model.network.modules())
        kind = torch.int64 if tokens else float_type(model.network)
        shapes = [wanted] if wanted is not None else _shapes(model)
        alike = ([replace(spec, shape=shape, dtype=kind) for spec in specs] for shape in shapes)
        trials = (trial for same in alike for trial in trial_batches(same, SAMPLES))
    for trial in trials:
        yield {spec.name: values.numpy() for spec, values in zip(specs, trial, strict=True)}


def _shapes(model: Model) -> list[tuple[int, ...]]:
    """Candidates: the declared shape with its open sizes filled in, or what the first layer suggests."""
    if model.input.shape is not None:
        choices = [FREE_SIZES if size is None else (size,) for size in model.input.shape]
        same = [tuple(choice[0] if len(choice) == 1 else free for choice in choices) for free in FREE_SIZES]
        return same + [shape for shape in product(*choices) if len(choices) <= 3]
    return next((shapes for module in model.network.modules() if (shapes := _suggested(module))), [])


def _suggested(module: nn.Module) -> list[tuple[int, ...]]:
    """Sample shapes that a layer would take, were it the first."""
    kind = _kind(module)
    weight = getattr(module, "weight", getattr(module, "weight_ih_l0", None))
    if not isinstance(weight, Tensor):
        return []
    width = weight.shape[1] if weight.dim() > 1 else 0
    if kind == "Linear":
        return [(width,), (16, width), (1, 28, 28), (3, 32, 32), (width // 784, 28, 28)]
    if kind in ("Conv1d", "Conv2d", "Conv3d"):
        return [(width * getattr(module, "groups", 1), *[size] * (weight.dim() - 2)) for size in FREE_SIZES]
    if kind in ("LSTM", "GRU", "RNN"):
        return [(length, width) for length in (16, 32, 8)]
    return [(16,), (32,), (8,)] if kind == "Embedding" else []


def _kind(module: nn.Module) -> str:
    """The class of a module; a TorchScript module only knows its name."""
    return str(getattr(module, "original_name", type(module).__name__))


def _random(model: Model, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    n = 2 * model.input.batch if model.input.batch else SAMPLES
    if model.input.dtype.is_floating_point:
        return torch.rand((n, *shape), generator=generator)
    return torch.randint(0, 2, (n, *shape), generator=generator, dtype=model.input.dtype)
