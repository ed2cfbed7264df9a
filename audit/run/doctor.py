"""Runs the doctor: the model on a few train samples fed in other ways, and what arrives inside it; forward only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.data.class_order import Answers, class_order, compared, in_range, much_better
from audit.data.dataset import Data
from audit.data.feedings import TRIED, Feeding, feeding_now, normalisations, orders, unit_of
from audit.data.fit import Fitting
from audit.model.base import Model, accepts, as_fed, batches, quiet
from audit.network.hooks import CONVOLUTIONS, hooked, is_fixed_batch_norm, modules_with_weights, scores
from audit.network.loss import LOSS_OF_TASK
from audit.network.records import Outcome
from audit.report.conduct import BatchNormInput, ClassOrder, ConstantInputs, Doctor, FirstLayer, Plan
from audit.settings import Settings

SHARE = 0.03  # of the budget, that the trials may take
PASSES = 16.0  # of each sample tried: the trials, counted twice for what is not counted
LEAST = 16  # samples, however little the budget leaves
CLOSE = 0.02  # of the inputs' spread: two ways to feed that differ by less are one
COMPARED = 8  # samples on which they are compared
NAMED = 8  # constant features that are named
MOST_CLASSES = 2000  # beyond which classes are too many to be counted against each other
SHARPNESSES = (2.0 ** np.arange(-10, 3.5, 0.5)).tolist()  # inverse temperatures tried
NO_FLOATS = "the inputs are whole numbers, which are neither scaled nor shifted"
SEVERAL = "samples have several inputs, each fed as it is stored"
NOT_FINITE = "the model's scores are not finite as the samples are fed"
PREPARED = "the model file prepares its inputs itself"


@dataclass(frozen=True)
class Patient:
    """A model and how its samples are fed."""

    model: Model
    data: Data  # as the audit feeds them
    task: str
    settings: Settings
    fitting: Fitting | None  # of some samples as they are stored; None where they are fed as they are


def examine(patient: Patient, plan: Plan) -> Doctor:
    """What can be said before anything is measured; the class order needs the answers to all train samples."""
    why_not = _why_not(patient)
    rows = _rows(patient, plan)
    if why_not is not None:
        x = patient.data.train.x[rows]
        doctor = Doctor(samples=0, skipped=why_not)
    else:
        doctor, x = _tried(patient, rows)
    first = first_layer(patient.model, x)
    if doctor.better is None and doctor.constant_loss is not None and first is not None:
        doctor = replace(doctor, better=in_range(doctor.trials, doctor.constant_loss, first.spread))
    return replace(
        doctor,
        batch_norms=batch_norms(patient.model, x),
        first_layer=first,
        constant_inputs=constant_inputs(patient.data),
    )


def _why_not(patient: Patient) -> str | None:
    if patient.model.preparation is not None:
        return PREPARED
    if patient.fitting is None:
        return SEVERAL
    whole = patient.data.train.x.dtype.kind != "f" or not patient.model.input.dtype.is_floating_point
    return NO_FLOATS if whole else None


def _rows(patient: Patient, plan: Plan) -> NDArray[np.int64]:
    """Places of the samples to try, among those of the fitting, within the share of the budget."""
    total = len(patient.data.train) if patient.fitting is None else len(patient.fitting.stored.train)
    most = TRIED
    if plan.budget is not None and plan.operations > 0 and plan.speed > 0:
        fits = SHARE * plan.budget * plan.speed / (PASSES * plan.operations)
        most = max(LEAST, min(TRIED, int(fits)))
    return np.linspace(0, total - 1, min(most, total)).astype(np.int64)


def _tried(patient: Patient, rows: NDArray[np.int64]) -> tuple[Doctor, NDArray[np.generic]]:
    """What the trials say, and the samples as they are fed."""
    fitting = patient.fitting
    assert fitting is not None
    stored, axes = fitting.stored.train.x[rows], fitting.stored.axes
    labels = torch.from_numpy(np.ascontiguousarray(patient.data.train.y[fitting.stored.train.index[rows]]))
    now, takes = feeding_now(fitting, patient.settings), partial(accepts, patient.model)
    norms = list(normalisations(fitting, patient.settings))
    found = _answers(patient, _distinct([now, *norms, *orders(fitting, now, takes)], stored, axes), stored, labels)
    if not found[0].finite:
        return Doctor(samples=0, skipped=NOT_FINITE), now.apply(stored, axes)
    best = min((one for one in found if one.finite), key=lambda one: one.fitted.mean())
    if best.name in {norm.name for norm in norms}:
        norm = next(norm for norm in norms if norm.name == best.name)
        further = _distinct([norm, *orders(fitting, norm, takes)], stored, axes)[1:]
        found += _answers(patient, further, stored, labels)
    trials = compared([found[0], *(one for one in found[1:] if one.finite)])
    constant = _constant_loss(labels, patient.task)
    doctor = Doctor(
        samples=len(rows),
        constant_loss=constant,
        trials=trials,
        better=much_better(trials, constant, len(rows)),
        best_as_fed=min(trials, key=lambda trial: trial.fitted_loss) is trials[0],
    )
    return doctor, now.apply(stored, axes)


def _distinct(feedings: list[Feeding], stored: NDArray[np.generic], axes: str) -> list[Feeding]:
    """Those that feed something else than an earlier one does."""
    few = stored[:COMPARED]
    kept: list[Feeding] = []
    seen: list[NDArray[np.float64]] = []
    for feeding in feedings:
        x = feeding.apply(few, axes).astype(np.float64)
        if not any(
            x.shape == other.shape and np.sqrt(np.square(x - other).mean()) <= CLOSE * max(other.std(), 1e-30)
            for other in seen
        ):
            kept.append(feeding)
            seen.append(x)
    return kept


def _answers(patient: Patient, feedings: list[Feeding], stored: NDArray[np.generic], y: Tensor) -> list[Answers]:
    axes = patient.fitting.stored.axes if patient.fitting is not None else ""
    loss = LOSS_OF_TASK[patient.task]
    found = []
    for feeding in feedings:
        x = feeding.apply(stored, axes)
        f, size = run(patient.model, x), float(x.std(dtype=np.float64))
        plain = loss.value(f, y)
        fitted, sharpness = _after_line(f, y) if patient.task == "regression" else _at_best(f, y, patient.task)
        wrong = None if patient.task == "regression" else (~loss.correct(f, y)).double().numpy()  # type: ignore[union-attr]
        found.append(Answers(feeding.name, feeding.cure, plain.numpy(), fitted.numpy(), sharpness, wrong, size))
    return found


def _at_best(f: Tensor, y: Tensor, task: str) -> tuple[Tensor, float]:
    """Losses [n] of the scores times the one factor that makes their mean smallest, and that factor."""
    tried = [(LOSS_OF_TASK[task].value(factor * f, y), factor) for factor in SHARPNESSES]
    return min(tried, key=lambda one: float(one[0].mean().nan_to_num(torch.inf)))


def _after_line(f: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """½‖y − a − b f‖² [n], each output with the a and b that make it smallest, and the median b."""
    from_mean, answers = y.double() - y.double().mean(0), f - f.mean(0)
    slope = (answers * from_mean).sum(0) / answers.square().sum(0).clamp_min(1e-300)
    return (from_mean - slope * answers).square().sum(1) / 2, float(slope.median())


def _constant_loss(y: Tensor, task: str) -> float:
    """The mean loss of the best constant answer: the labels' entropy, or half their variance."""
    if task == "regression":
        return float((y - y.mean(0)).square().sum(1).mean() / 2)
    shares = torch.bincount(y).double() / len(y)
    return float(-(shares * shares.clamp_min(1e-300).log()).sum())


def constant_inputs(data: Data) -> ConstantInputs | None:
    """Features with one value in all of train; None where samples are images, whose borders often have one."""
    x = data.train.x
    if x.ndim != 2 or x.dtype.kind != "f" or data.picture is not None or unit_of(x) is not None:
        return None
    constant = np.flatnonzero((x == x[0]).all(0))
    others = (data.test.x[:, constant] != x[0, constant]).any(0)
    names = data.features or [f"feature {place}" for place in range(x.shape[1])]
    return ConstantInputs(
        features=x.shape[1],
        constant=len(constant),
        varying_in_test=int(others.sum()),
        names=[str(names[place]) for place in constant[:NAMED]],
    )


# The order of the classes.


def with_class_order(doctor: Doctor, data: Data, train: Outcome) -> Doctor:
    """The doctor's report with what the answers to all train samples say about the order of the classes."""
    order = ordered(data, train)
    if order is None:
        return doctor
    other = doctor.preferred
    if order.moved and other is not None and other.error is not None:  # one cause, not two: the one that mends more
        if 1 - order.right_if_moved < other.error:
            doctor = replace(doctor, better=None)
        else:
            order = replace(order, moved=[], right_if_moved=order.right, cure="")
    return replace(doctor, class_order=order)


def ordered(data: Data, train: Outcome) -> ClassOrder | None:
    """Whether the classes are in the order of the outputs; None without classes, or with too many of them."""
    names = data.classes
    if train.wrong is None or names is None or len(names) > MOST_CLASSES:
        return None
    train = train.by_position
    answers = train.scores.argmax(1) if train.scores.shape[1] > 1 else (train.scores[:, 0] >= 0).astype(np.int64)
    stored = [str(place) for place in range(len(names))] if data.numbered else names
    return class_order(np.asarray(train.labels, np.int64), answers, names, stored)


# What arrives inside the network.


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
