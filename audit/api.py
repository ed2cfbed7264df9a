"""The audit from a notebook or a training script.

    from audit import audit_model

    report = audit_model(network, train_loader, test_loader)
    report                                  # shows itself in a notebook
    report.save("out", "html,pdf,json")     # the same files as `gen-audit report` writes
    report.check().passed                   # held against the default policy, as `gen-audit check` does

The numbers are those of the command line on the same network and samples: both walk the same road.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.errors import UsageError
from audit.measures import report as plain
from audit.policy import Verdict, judge
from audit.policy.parse import PolicyFailed, PolicyLike, as_baseline, as_policy
from audit.render.notebook import render_notebook
from audit.settings import from_report

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    Samples = tuple[Any, Any] | Dataset[Any] | DataLoader[Any] | str | Path


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(plain.Report):
    """An audit, complete, and what a program does with one."""

    def check(
        self, policy: PolicyLike = None, baseline: plain.Report | None = None, *, strict: bool = False
    ) -> Verdict:
        """The verdict of a policy (a `Policy`, a file, rules in a dictionary, or the default) on this report."""
        return judge(as_policy(policy), self, as_baseline(baseline), strict=strict)

    def save(
        self, folder: str | Path, formats: str | Sequence[str] = "html,json", verdict: Verdict | None = None
    ) -> list[Path]:
        """Writes the files of `gen-audit report -f FORMATS` into `folder` and returns their paths."""
        from audit.render.write import save  # wakes WeasyPrint's and Jinja's modules

        return save(self, Path(folder), formats, verdict)

    def _repr_html_(self) -> str:
        """How a notebook shows the report."""
        return render_notebook(self)


def audit_model(
    model: nn.Module | str | Path | Any,
    train: Samples,
    test: Samples | None = None,
    *,
    policy: PolicyLike = None,
    baseline: plain.Report | None = None,
    progress: bool = False,
    **settings: Any,
) -> Report:
    """Audits a model on two splits and returns the `Report`.

    `model` is an `nn.Module`, a fitted scikit-learn network (needs skl2onnx) or the path of a model file. A module may
    be in training mode and on any device: a copy is audited, in eval mode, and the module, its gradients, its hooks
    and every random state stay as they are. Of a scikit-learn pipeline the last step is audited, on what the steps
    before it make of the pairs (x, y), data frames included.

    `train` and `test` are pairs (x, y) of arrays or tensors, x also a dict of inputs by the names of the network's
    arguments, or a torch `Dataset` or `DataLoader` that yields such pairs, or dicts that hold the labels, too; all
    samples are read into memory, and a loader's shuffling is undone. Labels are class indices, class names, one-hot
    rows, or targets. Without `test`, `train` is a data folder as on the command line, or `test_fraction=0.2` holds a
    share of it out.

    `settings` are those of the command line (`gen-audit report --help`): `samples=1000`, `task="regression"`, `seed=1`.
    Neither gen-audit.toml nor the environment is read.

    With a `policy` (a `Policy`, a file, or rules such as `{"gap.error_gap": {"max": 0.05}}`), a model that fails it
    raises `PolicyFailed`, which carries the report and the verdict; `baseline` is an earlier report to compare with.
    """
    from audit.run.in_memory import audit_in_memory  # wakes torch

    chosen = from_report(settings, "audit_model")
    rules, earlier = None if policy is None else as_policy(policy), as_baseline(baseline)
    if rules is None and earlier is not None:
        raise UsageError("baseline: only a policy compares with it; give a policy, or call report.check(baseline=…).")
    shown = ", ".join([_name(model), "…", *(f"{name}={value!r}" for name, value in settings.items())])
    measured = audit_in_memory(model, train, test, chosen, f"audit_model({shown})", progress)
    report = Report(**{field.name: getattr(measured, field.name) for field in fields(measured)})
    if rules is not None:
        verdict = report.check(rules, earlier)
        if not verdict.passed:
            raise PolicyFailed(report, verdict)
    return report


def _name(model: Any) -> str:
    return repr(str(model)) if isinstance(model, (str, Path)) else type(model).__name__
