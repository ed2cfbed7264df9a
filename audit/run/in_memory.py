"""The audit of a network and samples that a program holds: the caller's modes and random states stay as they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from audit.data import read_data
from audit.data.dataset import Data
from audit.data.in_memory import About, data_in_memory
from audit.errors import UsageError
from audit.measures import Report
from audit.model import load_model
from audit.model.base import Model, Preparation
from audit.model.torch.given import (
    estimator_file,
    feature_names,
    fitted,
    given_network,
    is_estimator,
    is_pipeline,
    load_estimator,
    transformed,
)
from audit.run.pipeline import Reader, Sources, audit_sources
from audit.run.progress import Progress
from audit.settings import Settings


def audit_in_memory(model: Any, train: Any, test: Any, settings: Settings, command: str, watching: Progress) -> Report:
    """The report on a module, an estimator or a file, and samples or a folder."""
    with undisturbed(), ExitStack() as stack:
        stack.callback(watching.close)
        return audit_sources(sources_of(model, train, test, stack), settings, command, watching).report


def sources_of(model: Any, train: Any, test: Any, stack: ExitStack) -> Sources:
    """Where they come from; what is written on the way to it is gone with the stack."""
    read = _reader(train, test)
    if is_pipeline(model) and _is_pair(train) and (test is None or _is_pair(test)):
        pipeline = fitted(model)
        read = partial(_transformed, pipeline, train, test)
        model = pipeline[-1]
    return Sources(_loader(model, stack), read)


def _loader(model: Any, stack: ExitStack) -> Callable[[Settings], Model]:
    if isinstance(model, (str, Path)):
        return partial(load_model, Path(model))
    if isinstance(model, nn.Module):
        return partial(given_network, model)
    if is_estimator(model):
        return partial(load_estimator, stack.enter_context(estimator_file(fitted(model))))
    raise UsageError(
        f"audit_model: a {type(model).__name__} is no model; give an nn.Module, a scikit-learn estimator or a file."
    )


def _reader(train: Any, test: Any) -> Reader:
    if not isinstance(train, (str, Path)):
        return lambda settings, _inputs, preparation: data_in_memory(train, test, settings, preparation)
    if test is not None:
        raise UsageError("audit_model: train is a folder, which holds its own test split; leave test out.")
    return partial(read_data, Path(train))


def _is_pair(samples: Any) -> bool:
    return isinstance(samples, (tuple, list)) and len(samples) == 2


def _transformed(
    pipeline: Any,
    train: Any,
    test: Any,
    settings: Settings,
    _inputs: tuple[str, ...],
    preparation: Preparation | None,
) -> Data:
    """The samples as the pipeline's steps before its last one make them."""
    train, test = (
        None if pair is None else (transformed(pipeline, pair[0], name), pair[1])
        for pair, name in ((train, "train"), (test, "test"))
    )
    steps = ", ".join(type(step).__name__ for _, step in pipeline.steps[:-1])
    notes = (f"Samples were transformed by the pipeline's own {steps}.",) if steps else ()
    return data_in_memory(train, test, settings, preparation, About(feature_names(pipeline), notes))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Work that neither sees the caller's torch modes nor moves a random state of the caller's."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    pythons, numpys = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.callback(random.setstate, pythons)
        stack.callback(np.random.set_state, numpys)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(torch.autocast("cuda", enabled=False))
        yield
