"""`audit_model`: the audit from a notebook or a training script.

    from audit import audit_model

    report = audit_model(network, train_loader, test_loader)
    report                                  # shows itself in a notebook
    report.save("out", "html,pdf,json")     # the same files as `gen-audit report` writes
    report.check().passed                   # held against the default policy, as `gen-audit check` does

The numbers are those of the command line on the same network and samples: both walk the same road.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from audit.data import read_data
from audit.data.given import given_data
from audit.errors import UsageError
from audit.model import load_model
from audit.model.given import estimator_file, given_network, is_estimator, load_estimator
from audit.pipeline import audit_of
from audit.policy.given import PolicyFailed, as_baseline, as_policy
from audit.progress import progress_for
from audit.settings import Settings, from_report

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset

    from audit.data.base import Data
    from audit.model.base import Model
    from audit.policy.given import PolicyLike
    from audit.report import Report

    Samples = tuple[Any, Any] | Dataset[Any] | DataLoader[Any] | str | Path


def audit_model(
    model: nn.Module | str | Path | Any,
    train: Samples,
    test: Samples | None = None,
    *,
    policy: PolicyLike = None,
    baseline: Report | None = None,
    progress: bool = False,
    **settings: Any,
) -> Report:
    """Audits a model on two splits and returns the `Report`.

    `model` is an `nn.Module`, a fitted scikit-learn network (needs skl2onnx) or the path of a model file. A module may
    be in training mode and on any device: a copy is audited, in eval mode, and the module, its gradients, its hooks
    and every random state stay as they are.

    `train` and `test` are pairs (x, y) of arrays or tensors, or a torch `Dataset` or `DataLoader` that yields such
    pairs; all samples are read into memory, and a loader's shuffling is undone. Labels are class indices, class names,
    one-hot rows, or targets. Without `test`, `train` is a data folder as on the command line, or `test_fraction=0.2`
    holds a share of it out.

    `settings` are those of the command line (`gen-audit report --help`): `samples=1000`, `task="regression"`, `seed=1`.
    Neither gen-audit.toml nor the environment is read.

    With a `policy` (a `Policy`, a file, or rules such as `{"gap.error_gap": {"max": 0.05}}`), a model that fails it
    raises `PolicyFailed`, which carries the report and the verdict; `baseline` is an earlier report to compare with.
    """
    chosen = from_report(settings, "audit_model")
    rules, earlier = None if policy is None else as_policy(policy), as_baseline(baseline)
    if rules is None and earlier is not None:
        raise UsageError("baseline: only a policy compares with it; give a policy, or call report.check(baseline=…).")
    shown = ", ".join([_name(model), "…", *(f"{name}={value!r}" for name, value in settings.items())])
    watching = progress_for(quiet=not progress)
    with undisturbed(), ExitStack() as stack:
        stack.callback(watching.close)
        load, read = _loader(model, stack), _reader(train, test)
        report = audit_of(load, read, chosen, f"audit_model({shown})", watching)
    if rules is not None:
        verdict = report.check(rules, earlier)
        if not verdict.passed:
            raise PolicyFailed(report, verdict)
    return report


def _name(model: Any) -> str:
    return repr(str(model)) if isinstance(model, (str, Path)) else type(model).__name__


def _loader(model: Any, stack: ExitStack) -> Callable[[Settings], Model]:
    if isinstance(model, (str, Path)):
        return partial(load_model, Path(model))
    if isinstance(model, nn.Module):
        return partial(given_network, model)
    if is_estimator(model):
        return partial(load_estimator, stack.enter_context(estimator_file(model)))
    raise UsageError(
        f"audit_model: a {type(model).__name__} is no model; give an nn.Module, a scikit-learn estimator or a file."
    )


def _reader(train: Any, test: Any) -> Callable[[Settings], Data]:
    if not isinstance(train, (str, Path)):
        return partial(given_data, train, test)
    if test is not None:
        raise UsageError("audit_model: train is a folder, which holds its own test split; leave test out.")
    return partial(read_data, Path(train))


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
