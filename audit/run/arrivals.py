"""What arrives inside a network: at its BatchNorms, beside the statistics in the file, and at its first layer."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.model.base import Model, quiet
from audit.model.batches import as_fed, batches
from audit.network.hooks import CONVOLUTIONS, hooked, is_fixed_batch_norm, modules_with_weights, scores
from audit.report.doctor import BatchNormInput, FirstLayer

CHUNK = 32  # samples run at once


@torch.no_grad()
def run(model: Model, x: NDArray[np.generic]) -> Tensor:
    """Scores [n, C] of samples as fed, float64, as the file's own arithmetic gives them."""
    with quiet():
        parts = [
            scores(model.network, as_fed(model.network, torch.from_numpy(np.ascontiguousarray(part))))[:count]
            for part, count in batches(x, model.input.batch or CHUNK)
        ]
    return torch.cat(parts).double().cpu()


def batch_norms(model: Model, x: NDArray[np.generic]) -> list[BatchNormInput]:
    """Each BatchNorm with statistics of its own, in the order of the network."""
    arrived: dict[str, list[Tensor]] = {}
    statistics: dict[str, tuple[Tensor, Tensor]] = {}
    norms = {path: module for path, module in model.network.named_modules() if _has_statistics(module)}

    def keep(path: str):  # type: ignore[no-untyped-def]
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
            statistics[path] = _statistics(module, inputs)
            arrived.setdefault(path, []).append(_moments(inputs[0]))

        return hook

    if not norms:
        return []
    with hooked(model.network, {path: keep(path) for path in norms}):
        run(model, x)
    names = {path: model.names.get(path, path) for path in arrived}
    return [_held(names[path], statistics[path], torch.stack(parts)) for path, parts in arrived.items()]


def _has_statistics(module: nn.Module) -> bool:
    live = isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None
    return live or is_fixed_batch_norm(module)


def _statistics(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Running mean and variance: of the layer's own, or handed to an operator of an ONNX file."""
    if is_fixed_batch_norm(module):
        return inputs[3], inputs[4]
    assert isinstance(module.running_mean, Tensor) and isinstance(module.running_var, Tensor)
    return module.running_mean, module.running_var


def _moments(x: Tensor) -> Tensor:
    """Mean and mean square of each channel of [n, C, …], as [2, C]."""
    flat = x.double().movedim(1, 0).flatten(1)
    return torch.stack([flat.mean(1), flat.square().mean(1)])


def _held(name: str, statistics: tuple[Tensor, Tensor], parts: Tensor) -> BatchNormInput:
    mean, square = parts.mean(0)
    running_mean, deviation = statistics[0].double(), statistics[1].double().sqrt().clamp_min(1e-12)
    spread = (square - mean.square()).clamp_min(0).sqrt() / deviation
    shift = (mean - running_mean).abs() / deviation
    return BatchNormInput(name=name, shift=float(shift.median()), spread=float(spread.median()))


def first_layer(model: Model, x: NDArray[np.generic]) -> FirstLayer | None:
    """The dense layer or convolution that comes first, and how far its answers spread without their bias."""
    seen: list[tuple[str, float]] = []
    layers = {
        path: module
        for path, module in modules_with_weights(model.network).items()
        if isinstance(module, (nn.Linear, *CONVOLUTIONS))
    }

    def keep(path: str):  # type: ignore[no-untyped-def]
        axis = -1 if isinstance(layers[path], nn.Linear) else 1
        return lambda _module, _inputs, answer: seen.append((path, _spread(answer, axis)))

    with hooked(model.network, {path: keep(path) for path in layers}):
        run(model, x[:CHUNK])
    if not seen or x.dtype.kind != "f":
        return None
    path, spread = seen[0]
    return FirstLayer(name=model.names.get(path, path), lowest=float(x.min()), highest=float(x.max()), spread=spread)


def _spread(answer: Tensor, axis: int) -> float:
    """The median over units of the standard deviation of their answers [n, …], units along `axis`."""
    return float(answer.double().movedim(axis, 0).flatten(1).std(1, correction=0).median())
