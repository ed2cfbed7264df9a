"""Models that a program hands over: an nn.Module, which is copied and left as it is, or a scikit-learn estimator."""

from __future__ import annotations

import copy
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from audit.errors import DataError, ModelError, UsageError
from audit.model import load_model
from audit.model.base import Model, check_weights, first_line, quiet
from audit.model.packing import inputs_of
from audit.settings import Settings

WRAPPERS = ("module", "_orig_mod")  # of DataParallel and DistributedDataParallel, of torch.compile
TRAINERS = ("_trainer", "trainer", "_fabric")  # what training loops hang on a module; the data hang on it in turn
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def given_network(module: nn.Module, settings: Settings) -> Model:
    """A frozen copy on the CPU, in eval mode. What shape it takes, `canonical_form` finds out with data."""
    module = _unwrapped(module)
    path = Path(type(module).__name__)
    if any(map(nn.parameter.is_lazy, module.parameters())):
        raise ModelError(f"{path}: a lazy layer has no weights yet; train it, or run one batch through it, first.")
    network = _copied(module, path).cpu().eval()
    hooks = _without_hooks(network)
    for parameter in network.parameters():
        parameter.requires_grad_(False).grad = None
    check_weights(network.state_dict(), path)
    inputs = inputs_of(network)
    return Model(
        network=network,
        path=path,
        format="torchscript" if isinstance(network, torch.jit.ScriptModule) else "module",
        sha256=_digest(network),
        input=inputs[0],
        others=inputs[1:],
        output=settings.output or "",
        notes=(f"{hooks} hooks on the module's layers were left out.",) if hooks else (),
    )


def _unwrapped(module: nn.Module) -> nn.Module:
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while isinstance(module, parallel) or hasattr(module, "_orig_mod"):
        module = next(getattr(module, name) for name in reversed(WRAPPERS) if hasattr(module, name))
    return module


def _copied(module: nn.Module, path: Path) -> nn.Module:
    """A deep copy without a trainer; of tensors with a history, which torch refuses to copy, their numbers."""
    attributes = [item for each in module.modules() for item in vars(each).items()]
    tensors = [value for _, value in attributes if isinstance(value, torch.Tensor) and not value.is_leaf]
    memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in tensors}
    memo |= {id(value): None for name, value in attributes if name in TRAINERS and hasattr(value, "__dict__")}
    try:
        with torch.no_grad():
            return copy.deepcopy(module, memo)
    except Exception as error:  # whatever a user's attributes say to being copied
        raise ModelError(
            f"{path}: cannot be copied ({first_line(error)}), and the audit works on a copy; pass a module without "
            "such attributes, or its file."
        ) from error


def _without_hooks(network: nn.Module) -> int:
    """Takes a caller's hooks off, which could write to the caller's lists; torch's own, as weight_norm's, stay."""
    removed = 0
    for module in network.modules():
        for hooks in (getattr(module, name, None) or {} for name in HOOKS):
            for key, hook in list(hooks.items()):
                if not _is_torchs_own(hook):
                    del hooks[key]
                    removed += 1
    return removed


def _is_torchs_own(hook: Any) -> bool:
    return any(str(getattr(owner, "__module__", "")).startswith("torch.") for owner in (hook, type(hook)))


def _digest(network: nn.Module) -> str:
    """sha256 over the names, shapes, types and values of the weights."""
    total = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            total.update(f"{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\0".encode())
            total.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def is_estimator(model: Any) -> bool:
    """Whether it follows scikit-learn's conventions."""
    return hasattr(model, "predict") and hasattr(model, "get_params") and not isinstance(model, nn.Module)


def is_pipeline(model: Any) -> bool:
    """Whether it is a scikit-learn pipeline, or a search over pipelines that has found one."""
    return is_estimator(model) and hasattr(fitted(model), "steps")


def fitted(model: Any) -> Any:
    """The estimator that a search, such as GridSearchCV, has found; else the model itself."""
    return getattr(model, "best_estimator_", model)


def transformed(pipeline: Any, x: Any, name: str) -> Any:
    """Samples as the pipeline's last step gets them."""
    if len(pipeline.steps) < 2:
        return x
    try:
        with quiet():
            return pipeline[:-1].transform(x)
    except Exception as error:  # its steps complain in as many ways as there are transformers
        raise DataError(
            f"{name}: the pipeline cannot transform these samples ({first_line(error)}); give them as it was fitted on."
        ) from error


def feature_names(pipeline: Any) -> tuple[str, ...] | None:
    """What the features that its last step gets are called, where its other steps tell."""
    try:
        return tuple(map(str, pipeline[:-1].get_feature_names_out()))
    except Exception:  # not every transformer can say
        return None


@contextmanager
def estimator_file(estimator: Any) -> Iterator[Path]:
    """The estimator as an ONNX file, for as long as it is needed."""
    name = type(estimator).__name__
    try:
        from skl2onnx import to_onnx
    except ImportError as error:
        raise UsageError(
            f"{name}: scikit-learn models are audited as ONNX, which needs skl2onnx; run pip install skl2onnx."
        ) from error
    try:
        with quiet():
            example = np.zeros((1, estimator.n_features_in_), np.float32)
            converted = to_onnx(estimator, example, name=name)
    except Exception as error:  # its converters fail in as many ways as there are estimators
        raise ModelError(
            f"{name}: skl2onnx cannot convert it ({first_line(error)}); audit a fitted network."
        ) from error
    with tempfile.TemporaryDirectory(prefix="gen-audit-") as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(converted.SerializeToString())
        yield path


def load_estimator(path: Path, settings: Settings) -> Model:
    """The converted estimator, called by its own name."""
    try:
        return replace(load_model(path, settings), path=Path(path.stem), format="scikit-learn")
    except ModelError as error:
        raise ModelError(str(error).replace(str(path), path.stem)) from error
