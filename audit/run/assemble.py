"""Turns what the rooms found into the plain values of a `Report`."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from audit import __version__
from audit.data.dataset import Data, Split
from audit.errors import ModelError
from audit.maths.decompositions import InfiniteMatrix
from audit.measures import LayerReport, Report
from audit.measures.catalogue import LayerBlocks, NetworkBlocks, ReportBlocks
from audit.measures.consequences.theory import foretell
from audit.measures.contract import Audit, Measurement
from audit.measures.suite import Results
from audit.model.base import Model
from audit.model.parity import Parity
from audit.network import DenseLayer
from audit.network.records import Outcome
from audit.report import (
    SCHEMA,
    DataReport,
    InputReport,
    LayerNotMeasured,
    LossName,
    ModelReport,
    ParityReport,
    SplitReport,
    Task,
    Tool,
)
from audit.report.blocks import CLOSEST, COSTLIEST, Check, Outcomes, SplitOutcomes
from audit.report.conduct import Doctor
from audit.report.numbers import REPRODUCED
from audit.report.paths import find, leaves, not_finite
from audit.run.gallery import make_gallery
from audit.run.progress import MEASURE

WIDENED = (
    "this network magnifies rounding, so more than the usual difference from the file's own runtime was let through: a "
    "small fault of the conversion would not be seen"
)


@dataclass(frozen=True)
class Measured:
    """Everything that an audit measured, not yet written down."""

    audit: Audit
    results: Results
    parity: Parity | None
    checks: list[Check]
    warnings: list[str]
    doctor: Doctor
    command: str
    timings: Mapping[str, float]  # seconds of each stage


def assemble(measured: Measured) -> Report:
    """The report, complete but for its findings."""
    audit, found = measured.audit, measured.results.measurements
    report = Report(
        schema=SCHEMA,
        created=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=_tool(audit),
        command=measured.command,
        settings=dataclasses.asdict(audit.settings),
        model=_model(audit, measured.parity),
        data=_data(audit.data),
        layers=[_layer(layer, measured.results, len(audit.train)) for layer in audit.layers],
        passed_by=[LayerNotMeasured(name=layer.name, op=layer.op, why=layer.why) for layer in audit.passed_by],
        network=NetworkBlocks(**_blocks(found, NetworkBlocks)),
        checks=measured.checks,
        warnings=measured.warnings,
        doctor=measured.doctor,
        findings=[],
        outcomes=keep_outcomes(audit.data, audit.train_outcome, audit.test_outcome),
        timings=_timings(measured.timings),
        plan=audit.plan,
        **_blocks(found, ReportBlocks),
    )
    gallery = make_gallery(audit.data, found["duality"].network, found["hygiene"].network, _likely_to_change(audit))
    foretold = report.consequences and foretell(report.consequences, lambda path: find(path, report)[0])
    return dataclasses.replace(report, consequences=foretold, gallery=gallery)


def _likely_to_change(audit: Audit) -> list[int]:
    """Positions of test samples with the largest loss, and of those whose two best scores are closest."""
    split, outcome = audit.data.test, audit.test_outcome
    rows = np.argsort(-outcome.loss, kind="stable")[:COSTLIEST]
    if outcome.wrong is not None:
        f = outcome.scores if outcome.scores.shape[1] > 1 else np.concatenate([outcome.scores, -outcome.scores], 1)
        best = np.sort(f, 1)
        rows = np.concatenate([rows, np.argsort(best[:, -1] - best[:, -2], kind="stable")[:CLOSEST]])
    positions = split.index if len(split.index) else np.arange(len(split))
    return list(dict.fromkeys(positions[rows].tolist()))


def _blocks(found: Mapping[str, Measurement], kind: type[NetworkBlocks | ReportBlocks]) -> dict[str, Any]:
    """Each measure's block for the whole model, of those that stand in `kind`."""
    return {block.name: found[block.name].network for block in dataclasses.fields(kind)}


def _timings(stages: Mapping[str, float]) -> dict[str, float | dict[str, float]]:
    """Stages side by side, the measures under one key."""
    by_measure = {name.removeprefix(MEASURE): spent for name, spent in stages.items() if name.startswith(MEASURE)}
    others = {name: spent for name, spent in stages.items() if not name.startswith(MEASURE)}
    return {**others, "measures": by_measure}


def _tool(audit: Audit) -> Tool:
    return Tool(
        name="gen-audit",
        version=__version__,
        python=platform.python_version(),
        torch=version("torch"),
        onnxruntime=version("onnxruntime"),
        platform=platform.platform(),
        threads=torch.get_num_threads(),
        digits=REPRODUCED[audit.plan.arithmetic],
    )


def _model(audit: Audit, parity: Parity | None) -> ModelReport:
    model: Model = audit.model
    return ModelReport(
        path=str(model.path),
        format=model.format,
        sha256=model.sha256,
        parameters=audit.model.weights,
        task=cast(Task, audit.task),
        loss=cast(LossName, audit.loss.name),
        output="scores" if audit.task == "regression" else "logits",
        output_name=model.output,
        outputs=audit.train_outcome.scores.shape[1],
        head=model.head,
        input=InputReport(
            name=model.input.name,
            shape=list(audit.data.train.x.shape[1:]),
            dtype=str(model.input.dtype).removeprefix("torch."),
            batch=model.input.batch,
        ),
        opset=model.opset,
        parity=None if parity is None else _parity(parity),
        notes=list(model.notes),
        factor=model.factor,
    )


def _parity(parity: Parity) -> ParityReport:
    return ParityReport(
        against=parity.against,
        samples=parity.samples,
        batch_sizes=list(parity.batch_sizes),
        max_abs_diff=parity.max_abs_diff,
        tolerance=parity.tolerance,
        widened=parity.widened,
    )


def _data(data: Data) -> DataReport:
    return DataReport(
        path=str(data.path),
        layout=data.layout,
        sha256=data.sha256,
        classes=None if data.classes is None else len(data.classes),
        class_names=None if data.classes is None else list(data.classes),
        train=_split(data.train, data.classes),
        test=_split(data.test, data.classes),
        split_is_ours=data.split_is_ours,
        notes=list(data.notes),
        test_is_validation=data.test_is_validation,
    )


def _split(split: Split, classes: tuple[str, ...] | None) -> SplitReport:
    counts = None
    if classes is not None:
        y = split.y.astype(np.int64)
        found = np.bincount(y[y >= 0], minlength=len(classes))
        counts = dict(zip(classes, found.tolist(), strict=True))
    return SplitReport(samples=len(split), total=split.total, class_counts=counts)


def _layer(layer: DenseLayer, results: Results, samples: int) -> LayerReport:
    tail = results.tails[layer.name]
    blocks = (block.name for block in dataclasses.fields(LayerBlocks))
    return LayerReport(
        name=layer.name,
        op=layer.op,
        in_features=layer.in_features,
        out_features=layer.out_features,
        bias=layer.bias,
        tokens=layer.tokens,
        calls=layer.calls,
        tied_with=list(layer.tied_with),
        cut_point=layer.cut_point,
        fed_by_input=layer.fed_by_input,
        curvature=tail.curvature,
        tail="curved" if tail.curved else "piecewise-linear",
        samples=samples,
        **{key: results.measurements[key].layers.get(layer.name) for key in blocks},
    )


# Which outcomes a report keeps: all of them, or for very large splits a draw that is the same in every report.


MOST = 20_000  # samples kept of a split: about half a megabyte


def keep_outcomes(data: Data, train: Outcome, test: Outcome) -> Outcomes:
    """Losses and mistakes of both splits by position."""
    return Outcomes(train=_kept(data.train, train), test=_kept(data.test, test))


def _kept(split: Split, outcome: Outcome) -> SplitOutcomes:
    positions = split.index if len(split.index) else np.arange(len(split))
    rows = chosen(positions, MOST)
    return SplitOutcomes(
        sha256=split.sha256,
        samples=len(split),
        positions=positions[rows].tolist(),
        loss=outcome.loss[rows].tolist(),
        wrong=None if outcome.wrong is None else outcome.wrong[rows].astype(int).tolist(),
        answers=None if outcome.asked is None else outcome.asked[rows].astype(int).tolist(),
    )


def chosen(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows to keep, ascending by position. A position's rank depends on itself alone, so two audits keep the same."""
    order = np.argsort(positions, kind="stable")
    if len(order) <= most:
        return order
    draws = np.random.PCG64(0).random_raw(int(positions.max()) + 1)[positions[order]]
    return np.asarray(order[np.sort(np.argsort(draws, kind="stable")[:most])])


# The last look at a report before it is written: every number in it is a number.


OVERFLOW = (
    "with inputs and weights of this size the arithmetic of the audit overflows; scale the inputs (--scale) or the "
    "model to ordinary sizes."
)

TOO_LARGE = ("math range error", "Result too large", "result out of range", "float infinity")  # Python's own words


def check_finite(report: Report) -> Report:
    """The report itself, or a refusal that names the first number that is none."""
    place = next((path for path, value in leaves(report) if not_finite(value)), None)
    if place is None:
        return report
    raise ModelError(f"{place} comes out as no finite number: {OVERFLOW}")


@contextmanager
def ordinary_sizes() -> Iterator[None]:
    """Around the numbers of the audit: one too large to be held is a refusal, not a warning of numpy's.

    What overflows inside torch is infinite without a word: it is found in the report, or by the linear algebra.
    """
    try:
        with np.errstate(over="raise"):
            yield
    except (FloatingPointError, OverflowError) as error:
        if isinstance(error, OverflowError) and not any(words in str(error) for words in TOO_LARGE):
            raise  # a number that some type cannot take, which is our fault
        raise ModelError(f"A number of the audit is too large to be held ({error}): {OVERFLOW}") from error
    except InfiniteMatrix as error:
        raise ModelError(f"A matrix that the audit needs the eigenvalues of is not finite: {OVERFLOW}") from error
