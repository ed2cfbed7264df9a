"""Reports that no audit may ever write, but that every rule must survive: examples with many values changed."""

from __future__ import annotations

import json
import random
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from places import SUPPORT
from twin_sets import block

from audit.measures import Report
from audit.measures.hygiene.block import ToldApart

NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.3, 0.02, 1e-9, 1e-300, -1e-12, 3.7, 250.0, 1e12, 1e300)
KEPT = {
    "schema",
    "id",
    "kind",
    "status",
    "task",
    "settings",
    "timings",
    "plan",
    "findings",
    "not_judged",
}  # words with a meaning
APART = ToldApart(accuracy=0.71, by_chance=(0.47, 0.53), p_value=0.001, differ=True, samples=1500, draws=999)


@cache
def example(name: str) -> Report:
    """`example` or `regression`, as an audit wrote it."""
    return Report.from_json((SUPPORT / f"{name}_report.json").read_text(encoding="utf-8"))


SEEDS = st.integers(0, 2**32)
RATES = (0.002, 0.05, 0.4)


def mutated(seed: int) -> Report:
    """An example with a few or with many values changed, and a gap whose numbers still belong together."""
    rng = random.Random(seed)
    changed = _changed(example(rng.choice(("example", "regression"))), Report, rng, rng.choice(RATES))
    changes = (with_gap, with_shape, with_statuses, with_units, with_odd_data, with_calibration, with_collapse)
    for change in (*changes, with_doctor, with_weak_class, with_twins):
        if change is with_gap or rng.random() < 0.3:
            changed = change(changed, rng)
    return changed


def with_shape(report: Report, rng: random.Random) -> Report:
    """The report with one share of the gap in the steepest directions of every layer, and its interval."""
    share = rng.choice((-0.2, 0.1, 0.45, 0.55, 0.9, 1.3))
    layers = [replace(layer, duality=with_share(layer.duality, share)) for layer in report.layers]
    return replace(report, layers=layers)


def with_share(block: Any, share: float) -> Any:
    if block is None:
        return None
    parts = {
        name: part and replace(part, share=share) for name, part in (("fixed", block.fixed), ("sharp", block.sharp))
    }
    interval = replace(block.ci95, sharp_share=(share - 0.02, share + 0.02))
    return replace(block, **parts, ci95=interval, basis_complete=True, approximate=False)


def with_statuses(report: Report, rng: random.Random) -> Report:
    """The report with other outcomes of its self-checks and assumptions."""
    words = ("passed", "passed", "failed", "skipped")
    return replace(report, checks=[replace(check, status=rng.choice(words)) for check in report.checks])


def with_units(report: Report, rng: random.Random) -> Report:
    """The report with units that act always, rarely or never."""
    counts = [[rng.choice((0, 1, layer.samples)) for _ in range(rng.randrange(6))] for layer in report.layers]
    blocks = [
        layer.sensitivity and replace(layer.sensitivity, units_active=own)
        for layer, own in zip(report.layers, counts, strict=True)
    ]
    layers = [replace(layer, sensitivity=block) for layer, block in zip(report.layers, blocks, strict=True)]
    return replace(report, layers=layers)


def with_odd_data(report: Report, rng: random.Random) -> Report:
    """The report with near twins and missing classes."""
    if report.hygiene is None:
        return report
    near = replace(report.hygiene.near, within_train=rng.choice((None, 0.0, 0.5)))
    missing = {f"missing_in_{split}": rng.choice((None, [], ["cat"], ["cat", "dog"])) for split in ("train", "test")}
    balance = replace(report.hygiene.class_balance, **missing)
    twins, told = rng.choice((None, 0, 1, 40)), rng.choice((None, ToldApart(skipped="Too few."), APART, APART))
    blocks = {"near": near, "near_duplicates": twins, "class_balance": balance, "told_apart": told}
    return replace(report, hygiene=replace(report.hygiene, **blocks))


def with_calibration(report: Report, rng: random.Random) -> Report:
    """The report with a model that is too sure or too unsure, or with other errors on test than on train."""
    off = rng.choice((-0.2, -0.03, 0.0, 0.0, 0.03, 0.2))
    bounds = off - 0.01, off + 0.01
    block = report.calibration
    if block is None:
        return report
    if block.test is not None:
        error = rng.choice(((0.0, 0.02), (0.01, 0.03)))
        test = replace(block.test, overconfidence=off, overconfidence_ci95=bounds, ece_ci95=error)
        return replace(report, calibration=replace(block, test=test))
    outputs = [
        replace(output, coverage=[replace(part, difference=off, difference_ci95=bounds) for part in output.coverage])
        for output in block.outputs
    ]
    return replace(report, calibration=replace(block, outputs=outputs))


def with_collapse(report: Report, rng: random.Random) -> Report:
    """The report with a Jacobian that loses rank on some or on all samples."""
    block = report.network.sensitivity
    if block is None or not report.layers:
        return report
    flat = rng.choice((0, 1, report.layers[0].samples))
    changed = replace(block, rank_deficient_samples=flat, rank_deficient_samples_centred=flat)
    return replace(report, network=replace(report.network, sensitivity=changed))


def with_doctor(report: Report, rng: random.Random) -> Report:
    """The report with one thing that the doctor may find."""
    block, found = report.doctor, rng.randrange(6)
    if block is None:
        return report
    order, norms, inputs = block.class_order, block.batch_norms, block.constant_inputs
    changed = [
        {"better": 1 if len(block.trials) > 1 else None, "best_as_fed": False},
        {"class_order": order and replace(order, moved=["0", "1"], right_if_moved=0.99, cure="--classes 1,0")},
        {"batch_norms": [replace(norm, shift=3.0) for norm in norms]},
        {"best_as_fed": False, "first_layer": block.first_layer and replace(block.first_layer, spread=99.0)},
        {"constant_inputs": inputs and replace(inputs, constant=3, varying_in_test=0, names=["a", "b", "c"])},
        {"constant_inputs": inputs and replace(inputs, constant=1, varying_in_test=1, names=["a"])},
    ][found]
    return replace(report, doctor=replace(block, **changed))


def with_weak_class(report: Report, rng: random.Random) -> Report:
    """The report with one class on which the model is mostly wrong, and with few mistakes on the whole."""
    if not report.gap.per_class:
        return report
    rows = list(report.gap.per_class)
    rows[0] = replace(rows[0], test_samples=100, test_error=0.8)
    accuracy = rng.choice((0.12, 0.9))
    width = rng.choice((0.01, 0.25))
    bounds = (accuracy - width, accuracy + width)
    gap = replace(report.gap, per_class=rows, test_error=0.1, test_accuracy=accuracy, test_accuracy_ci95=bounds)
    return replace(report, gap=gap)


def with_twins(report: Report, rng: random.Random) -> Report:
    """The report beside networks that were trained anew."""
    return replace(report, twins=block(report, rng))


def with_gap(report: Report, rng: random.Random) -> Report:
    """The report with losses, errors and intervals that agree with each other, of every sign and size."""
    gap = report.gap
    train, test = (rng.choice((0.0, rng.random(), 10 * rng.random())) for _ in range(2))
    loss = {
        "train_loss": train,
        "test_loss": test,
        "loss_gap": test - train,
        "loss_gap_ci95": around(test - train, rng),
    }
    loss["test_loss_ci95"] = around(test, rng)
    if report.model.task == "regression":
        r2 = {"train_r2": rng.choice((None, 1.0, 0.3, -2.0)), "test_r2": rng.choice((None, 1.0, 0.3, -2.0))}
        r2["test_r2_ci95"] = None if r2["test_r2"] is None else around(r2["test_r2"], rng, 3.0)
        return replace(report, gap=replace(gap, error_gap=None, error_gap_ci95=None, train_error=None, **loss, **r2))
    wrong, wrong_test = (rng.choice((0.0, 1.0, round(rng.random(), 3))) for _ in range(2))
    error = {"train_error": wrong, "test_error": wrong_test, "error_gap": wrong_test - wrong}
    error |= {"error_gap_ci95": around(wrong_test - wrong, rng), "train_error_ci95": around(wrong, rng)}
    error |= {"train_accuracy": 1 - wrong, "test_accuracy": 1 - wrong_test}
    return replace(report, gap=replace(gap, **loss, **error))


def around(value: float, rng: random.Random, widest: float = 0.3) -> tuple[float, float] | None:
    """An interval that holds the value, or none."""
    width = rng.choice((0.0, 0.01, widest))
    return rng.choice((None, (value - width, value + width), (value - width, value + width)))


def _changed(value: Any, hint: Any, rng: random.Random, rate: float) -> Any:
    """The value, or another one that its type allows."""
    optional, item = _read(hint)
    if optional and rng.random() < rate:
        return None
    if value is None:
        return None
    if is_dataclass(value):
        hints = _hints(type(value))
        return replace(value, **{name: _changed(getattr(value, name), kind, rng, rate) for name, kind in hints.items()})
    if isinstance(value, list):
        few = (
            value if value and is_dataclass(value[0]) else value[:8]
        )  # long columns of numbers take time and add nothing
        kept = [_changed(each, item, rng, rate) for each in few]
        return kept[: rng.randrange(len(kept) + 1)] if rng.random() < rate else kept
    if isinstance(value, dict) or rng.random() >= rate:
        return value
    return _other(value, rng)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The type of each field that may change."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.name not in KEPT}


@cache
def _read(hint: Any) -> tuple[bool, Any]:
    """Whether a type allows None, and of which type the items of a list are."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(option for option in options if option is not NoneType)
    return NoneType in options, next(iter(get_args(kind)), None)


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, tuple):
        return tuple(sorted(rng.choice(NUMBERS) for _ in value))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((0, 1, 2, 7, 1000, value))
    if isinstance(value, float):
        return rng.choice(NUMBERS)
    return rng.choice((value, "<b>x</b>", "a.b[3].c", "", "  ", "x" * 300, "\x1b[31m", "{value}"))


def plain(report: Report) -> Any:
    """What the report's JSON says, read back."""
    return json.loads(report.to_json())
