"""Turns what the rooms found into the plain values of a `Report`."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Mapping, Sequence

import numpy as np

from audit import __version__
from audit.blocks.checks import Check
from audit.blocks.gap import GapReport
from audit.data.base import Data, Split
from audit.keep import keep_outcomes
from audit.layers import DenseLayer, PassedBy
from audit.measure import Audit, Measurement
from audit.model.base import Model
from audit.model.parity import Parity
from audit.report import (
    SCHEMA,
    DataReport,
    InputReport,
    LayerReport,
    ModelReport,
    NetworkReport,
    ParityReport,
    PassedByReport,
    Report,
    SplitReport,
    Tool,
)
from audit.suite import Results, Tail
from audit.thumbnails import make_gallery

WIDENED = (
    "this network magnifies rounding, so more than the usual difference from the file's own runtime was let through: a "
    "small fault of the conversion would not be seen"
)
MEASURE = "measure "  # how the suite names the stage of a measure


def assemble(
    audit: Audit,
    task: str,
    parity: Parity | None,
    gap: GapReport,
    results: Results,
    checks: list[Check],
    passed_by: Sequence[PassedBy],
    warnings: list[str],
    command: str,
    timings: dict[str, float],
) -> Report:
    """The finished report."""
    measured = {key: found for key, found in results.measurements.items() if key != "hygiene"}
    hygiene = results.measurements["hygiene"].network
    return Report(
        schema=SCHEMA,
        created=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=_tool(),
        command=command,
        settings=dataclasses.asdict(audit.settings),
        model=_model(audit, task, parity),
        data=_data(audit.data),
        gap=gap,
        layers=[_layer(layer, results.tails[layer.name], measured, len(audit.train)) for layer in audit.layers],
        passed_by=[PassedByReport(name=layer.name, op=layer.op, why=layer.why) for layer in passed_by],
        network=NetworkReport(**{key: found.network for key, found in measured.items()}),
        hygiene=hygiene,
        gallery=make_gallery(audit.data, results.measurements["duality"].network, hygiene),
        checks=checks,
        warnings=warnings,
        findings=[],
        outcomes=keep_outcomes(audit.data, audit.train_outcome, audit.test_outcome),
        timings=_timings(timings),
    )


def _timings(stages: dict[str, float]) -> dict[str, float | dict[str, float]]:
    """Stages side by side, the measures under one key."""
    by_measure = {name.removeprefix(MEASURE): spent for name, spent in stages.items() if name.startswith(MEASURE)}
    others = {name: spent for name, spent in stages.items() if not name.startswith(MEASURE)}
    return {**others, "measures": by_measure}


def _tool() -> Tool:
    from importlib.metadata import version

    return Tool(
        name="gen-audit",
        version=__version__,
        python=platform.python_version(),
        torch=version("torch"),
        onnxruntime=version("onnxruntime"),
        platform=platform.platform(),
    )


def _model(audit: Audit, task: str, parity: Parity | None) -> ModelReport:
    model: Model = audit.model
    return ModelReport(
        path=str(model.path),
        format=model.format,
        sha256=model.sha256,
        parameters=sum(parameter.numel() for parameter in audit.network.parameters()),
        task=task,
        loss=audit.loss.name,
        output="scores" if task == "regression" else "logits",
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
    )


def _split(split: Split, classes: tuple[str, ...] | None) -> SplitReport:
    counts = None
    if classes is not None:
        found = np.bincount(split.y.astype(np.int64), minlength=len(classes))
        counts = dict(zip(classes, found.tolist(), strict=True))
    return SplitReport(samples=len(split), total=split.total, class_counts=counts)


def _layer(layer: DenseLayer, tail: Tail, measured: Mapping[str, Measurement], samples: int) -> LayerReport:
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
        **{key: found.layers.get(layer.name) for key, found in measured.items()},
    )
