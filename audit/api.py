"""The audit from a notebook or a training script.

    from audit import audit_model

    report = audit_model(network, train_loader, test_loader)
    report                                  # shows itself in a notebook
    report.save("out", "html,pdf,json")     # the same files as `gen-audit report` writes
    report.check().passed                   # held against the default policy, as `gen-audit check` does

The numbers are those of the command line on the same network and samples: both walk the same road.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit import measures
from audit.errors import AuditError, UsageError
from audit.policy import Verdict
from audit.policy.judge import judge
from audit.policy.parse import PolicyFailed, PolicyLike, as_baseline, as_policy
from audit.render.notebook import ClassTable, FindingTable, GapTable, LayerTable, render_notebook
from audit.settings import as_arguments, from_report

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    from audit.twins import Recipe, TwinSet
    from audit.twins.in_memory import OwnTraining
    from audit.twins.kinds import Kind

    Samples = tuple[Any, Any] | Dataset[Any] | DataLoader[Any] | str | Path


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(measures.Report):
    """An audit, complete, and what a program does with one.

    In a notebook `report`, `report.gap`, `report.classes`, `report.layers` and `report.findings` show themselves as
    small tables; each of the last four has `to_frame()`, a pandas data frame.
    """

    if TYPE_CHECKING:  # read and written as the plain blocks and lists that they also are
        gap: GapTable
        layers: LayerTable
        findings: FindingTable

    @classmethod
    def from_json(cls, text: str, name: str = "report.json") -> Report:
        """A report read back, or a sentence that says what is wrong with it."""
        return cls.of(super().from_json(text, name))

    @classmethod
    def of(cls, measured: measures.Report) -> Report:
        """A report with its parts as tables that show themselves."""
        values = {field.name: getattr(measured, field.name) for field in fields(measured)}
        shown = {
            "gap": GapTable(**vars(measured.gap)),
            "layers": LayerTable(measured.layers),
            "findings": FindingTable(measured.findings),
        }
        return cls(**{**values, **shown})

    @property
    def classes(self) -> ClassTable:
        """The classes of a classifier, with their errors; none for regression."""
        return ClassTable(self.gap.per_class)

    def check(
        self, policy: PolicyLike = None, baseline: measures.Report | None = None, *, strict: bool = False
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
    baseline: measures.Report | None = None,
    progress: bool | None = None,
    twins: str | Path | None = None,
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

    `progress` is shown in a notebook unless it is False, and elsewhere where it is True.

    `settings` are those of the command line (`gen-audit report --help`): `samples=1000`, `task="regression"`, `seed=1`.
    Neither gen-audit.toml nor the environment is read.

    `twins` is a folder of networks that `make_twins` made, or the time to make some in, such as "10m": `report.twins`
    then holds the model beside them.

    With a `policy` (a `Policy`, a file, or rules such as `{"gap.error_gap": {"max": 0.05}}`), a model that fails it
    raises `PolicyFailed`, which carries the report and the verdict; `baseline` is an earlier report to compare with.
    """
    from audit.run.in_memory import audit_in_memory  # wakes torch
    from audit.run.progress import progress_for

    with naming_arguments():
        chosen = from_report(settings, "audit_model")
    rules, earlier = None if policy is None else as_policy(policy), as_baseline(baseline)
    if rules is None and earlier is not None:
        raise UsageError("baseline: only a policy compares with it; give a policy, or call report.check(baseline=…).")
    shown = ", ".join([_name(model), "…", *(f"{name}={value!r}" for name, value in settings.items())])
    in_cell = in_notebook()
    watching = progress_for(quiet=not (in_cell if progress is None else progress), in_cell=in_cell)
    with naming_arguments():
        if twins is None:
            measured = audit_in_memory(model, train, test, chosen, f"audit_model({shown})", watching)
        else:
            from audit.twins.in_memory import audit_beside_twins  # a room that most audits never enter

            asked = (str(twins), f"audit_model({shown}, twins={str(twins)!r})")
            measured = audit_beside_twins((model, train, test), asked, chosen, watching)
    report = Report.of(measured)
    if rules is not None:
        verdict = report.check(rules, earlier)
        if not verdict.passed:
            raise PolicyFailed(report, verdict)
    return report


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Around what may go wrong: a sentence names the arguments of `audit_model`, not the flags of a command."""
    try:
        yield
    except AuditError as error:
        error.args = (as_arguments(str(error)), *error.args[1:])
        raise


def in_notebook() -> bool:
    """Whether a notebook's cell is what shows the output: asked of IPython, where it is awake already."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def make_twins(
    model: nn.Module | str | Path | Any,
    train: Samples,
    test: Samples | None = None,
    *,
    folder: str | Path | None = None,
    recipe: Recipe | dict[str, Any] | None = None,
    train_with: OwnTraining | None = None,
    kinds: Sequence[str | Kind] | None = None,
    count: int | None = None,
    budget: str = "10m",
    engine: str = "local",
    **settings: Any,
) -> TwinSet:
    """Trains networks of the model's own architecture on its train samples, to its train loss.

    `model`, `train`, `test` and `settings` are those of `audit_model`. `recipe` says how the model was trained, or
    `train_with` trains a network as the owner does: it is called with (seed, x, y, change) and returns the module.
    Without either, the family of its training is looked for among ordinary ones. `kinds` are names, or `Kind`s of
    your own. Twins are kept in `folder`, else in the user's cache, and what is there already is not made again.
    `engine` says who trains: "local", as many processes as torch would take threads, or "ray", a Ray cluster.
    """
    from audit.twins.in_memory import Asked, twins_in_memory  # wakes torch

    asked = Asked(recipe, train_with, kinds, count, budget, None if folder is None else Path(folder), engine)
    return twins_in_memory(model, train, test, from_report(settings, "make_twins"), asked)


def _name(model: Any) -> str:
    return repr(str(model)) if isinstance(model, (str, Path)) else type(model).__name__
