"""Sets an audit up: from a loaded model and data that fit each other to the `Audit` that the measures work at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from audit.curvature.sampled import SampledCurvature, SampleSizes
from audit.curvature.spectrum import Spectra
from audit.data.dataset import Data, Split
from audit.errors import ModelError
from audit.maths.resample import TEST, TRAIN, Bootstrap
from audit.measures.contract import Audit
from audit.measures.workload import TOKEN_SHARE, LayerSizes, Workload
from audit.model.base import Model, as_fed
from audit.model.packing import continuous_only
from audit.network import Layers, PassedBy, find_layers, nothing_to_measure
from audit.network.capture import Capture
from audit.network.closed_forms import form_of
from audit.network.cost import (
    budget_bytes,
    bytes_per_sample,
    chunk_size,
    forward_cost,
    machine_speed,
    without_what_does_not_fit,
)
from audit.network.hooks import has_convolutions, scores
from audit.network.loss import loss_of
from audit.network.parameter_gradients import other_parameters
from audit.network.records import Outcome, Records
from audit.network.residual_traces import is_multilinear
from audit.network.second_derivatives import is_piecewise_linear
from audit.network.unrolled import is_recurrent
from audit.report.conduct import Plan
from audit.run.fitting import in_precision
from audit.run.plan import QUICK, make_plan
from audit.settings import Settings

PROBE = 3  # samples that the layers are watched with
TRAIN_SHARE = 0.4  # of the memory left, for the records of the train split; measures take as much again beside them
TEST_SHARE = 0.1  # … and of the test split
BOOTSTRAP_SHARE = 0.1  # … and the most of it that the counts of a bootstrap may take
SIGNED = 4  # samples of random signs to one of the input side: an ordinary backward pass is cheap
WORTHWHILE = 8  # samples at once, below which running all backward passes side by side does not pay


def plan_audit(model: Model, data: Data, task: str, settings: Settings) -> Plan:
    """What an audit of these would measure how; nothing is measured."""
    train, test = (_tensors(split, task)[0] for split in (data.train, data.test))
    example, layers = _measurable(model, train, settings, settings.quick)
    speeds = machine_speed(torch.float64), machine_speed(torch.float32)
    work = _workload(model, example[: model.input.batch], layers, (train, test))
    return make_plan(work, settings, budget_bytes(settings.memory), speeds)


def set_up_audit(model: Model, data: Data, task: str, settings: Settings, plan: Plan | None = None) -> Audit:
    """Follows the plan, or makes one; chooses device and chunk size, and runs both splits forward."""
    plan = plan or plan_audit(model, data, task, settings)
    train, test = (_tensors(split, task) for split in (data.train, data.test))
    _, layers = _measurable(model, train[0], settings, plan.quick)
    memory = budget_bytes(settings.memory)
    network = in_precision(model.network, settings, plan.arithmetic)
    standing = sum(part.numel() * part.element_size() for part in (*train, *test, *network.parameters()))
    layers, chunks = _fitted(model, network, layers, train[0], Room(memory, standing), plan)
    capture = Capture(
        network,
        layers.dense,
        loss_of(task, len(data.classes or ())),
        chunks.size,
        model.input.batch,
        chunks.side_by_side,
        to_input=plan.is_exact("sensitivity"),
    )
    counts = {TRAIN: len(train[0]), TEST: len(test[0])}
    bootstrap = _bootstrap(settings, counts, int(BOOTSTRAP_SHARE * chunks.left))
    left = chunks.left - bootstrap.bytes
    train_records = Records(capture, *train, int(TRAIN_SHARE * left), full=plan.is_exact("flatness"))
    test_records = Records(capture, *test, int(TEST_SHARE * left), full=False)
    return Audit(
        model=model,
        task=task,
        network=network,
        layers=layers.dense,
        passed_by=layers.passed_by,
        loss=capture.loss,
        data=data,
        capture=capture,
        train=train_records,
        test=test_records,
        train_outcome=Outcome.of(capture.forward(*train)),
        test_outcome=Outcome.of(test_records, "test"),
        spectra=Spectra(train_records, settings.directions, settings.seed),
        bootstrap=bootstrap,
        settings=settings,
        plan=plan,
        sampled=_sampled_curvature(capture, train, plan, settings, left),
    )


def _measurable(model: Model, x: Tensor, settings: Settings, quick: bool) -> tuple[Tensor, Layers]:
    """A few samples, and the layers that they show; of a quick audit, the last one."""
    example = _example(model.network, x, model.input.batch)
    layers = find_layers(model, example, settings.conv)
    if not layers.dense:
        raise ModelError(nothing_to_measure(model, layers, settings.conv))
    return example, _last_only(layers) if quick else layers


def _last_only(layers: Layers) -> Layers:
    *others, last = layers.dense
    return Layers((last,), (*layers.passed_by, *(PassedBy(layer.name, layer.op, QUICK) for layer in others)))


def _workload(model: Model, example: Tensor, layers: Layers, splits: tuple[Tensor, Tensor]) -> Workload:
    network, (train, test) = model.network, splits
    continuous = continuous_only(model.input, torch.ones_like(example[:1]).flatten(1))
    others = other_parameters(network, layers.dense)
    cost = forward_cost(network, example, [layer.module for layer in layers.dense])
    return Workload(
        samples=len(train),
        tests=len(test),
        outputs=scores(network, example).shape[1],
        operations=cost.operations,
        numbers=cost.numbers,
        behind=cost.behind,
        layers=tuple(LayerSizes(it.in_features, it.out_features, it.tokens, it.cut_point) for it in layers.dense),
        curved=not (is_piecewise_linear(network) or is_multilinear(network, example)),
        beyond=sum(network.get_parameter(name).numel() for name in others),
        formed=_share_without_form(network, others),
        input_numbers=int(continuous.sum()) if example.is_floating_point() else 0,
        convolves=has_convolutions(network),
        tagging=model.per_position is not None,
        recurrent=any(is_recurrent(module) for module in _holders(network, others)),
    )


def _share_without_form(network: nn.Module, names: Sequence[str]) -> float:
    """The share of the parameters whose gradients have no closed form, and that no recurrent layer holds."""
    held = zip(names, _holders(network, names), strict=True)
    other = (name for name, module in held if form_of(module) is None and not is_recurrent(module))
    formed = sum(network.get_parameter(name).numel() for name in other)
    return formed / max(1, sum(value.numel() for value in network.parameters()))


def _holders(network: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    return [network.get_submodule(name.rpartition(".")[0]) for name in names]


def _sampled_curvature(
    capture: Capture, train: tuple[Tensor, Tensor], plan: Plan, settings: Settings, room: int
) -> SampledCurvature | None:
    """What stands for full records, or for all samples' gradients, where these are too many."""
    stage, inside = plan.stage("flatness"), plan.stage("sensitivity")
    if not plan.samples_some:
        return None
    sizes = SampleSizes(
        samples=min(stage.samples or SIGNED * inside.samples, len(train[0])) or len(train[0]),
        columns=stage.columns,
        token_columns=max(1, stage.columns // TOKEN_SHARE),
        directions=settings.directions,
        room=room // 8,
    )
    return SampledCurvature(capture, *train, sizes, settings.seed)


@dataclass(frozen=True)
class Room:
    """The memory of an audit, in bytes."""

    budget: int
    standing: int  # what the model and the data take of it anyway

    @property
    def free(self) -> int:
        """What is left for the work."""
        return self.budget - self.standing


@dataclass(frozen=True)
class Chunks:
    """How samples are run through the network."""

    size: int
    side_by_side: bool  # whether the backward passes of all scores run at once
    left: int  # bytes beside one chunk


def _fitted(
    model: Model, network: nn.Module, layers: Layers, x: Tensor, room: Room, plan: Plan
) -> tuple[Layers, Chunks]:
    """The layers that fit into the room, and how their samples are run."""
    batch = model.input.batch
    example = _example(network, x, batch)
    outputs = scores(network, example[:batch]).shape[1] if plan.is_exact("flatness") else 1
    inside = plan.is_exact("sensitivity")
    layers = without_what_does_not_fit(network, example[: batch or 1], layers, outputs, room.free, inside)
    convolves = has_convolutions(network)
    side_by_side = not convolves
    per_sample = bytes_per_sample(network, example[:batch], layers.dense, outputs, side_by_side, inside)
    if side_by_side and room.free < WORTHWHILE * per_sample:
        side_by_side = False
        per_sample = bytes_per_sample(network, example[:batch], layers.dense, outputs, side_by_side, inside)
    patches = any(layer.patches is not None for layer in layers.dense)  # they outweigh the backward passes
    chunk = chunk_size(per_sample, room.budget, room.standing, in_turn=convolves and not patches)
    return layers, Chunks(chunk, side_by_side, room.free - chunk * per_sample)


def _bootstrap(settings: Settings, samples: Mapping[int, int], room: int) -> Bootstrap:
    """Keeps the counts for the samples of each stream, in this order, where these fit into `room` bytes."""
    keep: dict[int, int] = {}
    for stream, n in samples.items():
        if (sum(keep.values()) + n) * settings.bootstrap <= room:
            keep[stream] = n
    return Bootstrap(settings.bootstrap, settings.seed, keep)


def _tensors(split: Split, task: str) -> tuple[Tensor, Tensor]:
    y = split.y.astype(np.float64 if task == "regression" else np.int64)
    return torch.from_numpy(np.ascontiguousarray(split.x)), torch.from_numpy(y)


def _example(network: nn.Module, x: Tensor, batch: int | None) -> Tensor:
    return as_fed(network, x[torch.arange(2 * batch if batch else min(PROBE, len(x))) % len(x)])


# One temperature on the scores that brings the mean train loss to a wanted value: what makes curvatures comparable.
#
# Multiplying all scores by a factor changes no answer. The mean cross-entropy L(factor) is convex, L(0) = ln C is that
# of guessing and L(1) the model's own, so for every wanted loss between them exactly one factor in (0, 1) gives it.


HALVINGS = 60


class Tempered(nn.Module):
    """A network whose scores are multiplied by a factor."""

    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        """The scores times the factor."""
        scores: Tensor = self.network(x)
        return self.factor * scores


def at_train_loss(audit: Audit, wanted: float) -> Model:
    """The audited model with the factor that brings its mean train loss to `wanted`; its layers keep their names."""
    factor = find_factor(audit, wanted)
    note = f"The scores were multiplied by {factor:.6g}, so that the mean train loss is {wanted:.6g}."
    return tempered(audit.model, factor, note)


def tempered(model: Model, factor: float, *notes: str) -> Model:
    """The model with its scores multiplied by a factor; its layers keep their names."""
    paths = [path for path, _ in model.network.named_modules()]
    names = {_moved(path): model.names.get(path, path) or "(top level)" for path in paths}
    ops = {_moved(path): op for path, op in model.ops.items()}
    network = Tempered(model.network, factor).eval()
    every = (*model.notes, *notes)
    return replace(model, network=network, names=names, ops=ops, notes=every, factor=model.factor * factor)


def find_factor(audit: Audit, wanted: float) -> float:
    """The factor in (0, 1], by halving."""
    f = torch.from_numpy(audit.train_outcome.scores)
    y = torch.from_numpy(audit.train_outcome.labels)

    def loss(factor: float) -> float:
        return float(audit.loss.value(factor * f, y).mean())

    if not loss(1.0) <= wanted < loss(0.0):
        raise ModelError(
            f"{audit.model.path.name}: no softening of its scores brings its train loss of {loss(1.0):.3g} to "
            f"{wanted:.3g}; that of guessing is {loss(0.0):.3g}."
        )
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) > wanted else (low, middle)
    return high


def _moved(path: str) -> str:
    return f"network.{path}" if path else "network"
