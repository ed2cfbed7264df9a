"""What twins are made from: the audited network to be trained anew, its samples, and its train loss as the target."""

from __future__ import annotations

import copy
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from audit.data.dataset import Data, Split
from audit.errors import ModelError
from audit.maths.blocks import blocks
from audit.model.base import Model, as_fed
from audit.network.hooks import hooked, is_fixed_batch_norm, scores
from audit.run.pipeline import Prepared, Sources, prepare
from audit.run.progress import Progress
from audit.run.setup import tempered
from audit.settings import Settings
from audit.twins import About, Recipe
from audit.twins.outcomes import all_scores, losses
from audit.twins.stack import Stacked, chain_of
from audit.twins.training import Architecture, Lesson, Samples, Trained, unknown_layers

PROBED = 8  # samples that a chain of dense layers, or a tail of them, is recognised on


@dataclass(frozen=True)
class Problem:
    """One audited model and its data, ready for training."""

    model: Model
    data: Data  # as the audit sees them: perhaps a part of the train samples
    task: str
    settings: Settings
    architecture: Architecture
    train: Samples  # all of them
    positions: NDArray[np.int64]  # of the train samples in the split as stored
    test: Samples
    test_positions: NDArray[np.int64]
    target: float  # the model's mean loss on all train samples
    tail: bool = False  # the architecture is the dense tail, the samples are the model's own features

    def about(self, recipe: Recipe | None) -> About:
        """By what these twins are found again."""
        task = cast(Literal["classification", "binary", "regression"], self.task)
        return About(
            architecture=_digest(self.architecture.network),
            data=self.data.sha256,
            task=task,
            target=self.target,
            tail=self.tail,
            recipe=recipe,
        )

    def twin(self, trained: Trained, factor: float) -> Model:
        """A trained network in the place of the model's own, its scores multiplied by the factor."""
        network = copy.deepcopy(self.architecture.network)
        network.load_state_dict(trained.tensors, strict=False)
        return tempered(replace(self.model, network=network.eval().requires_grad_(False)), factor)

    def taught(self, lesson: Lesson) -> Data:
        """The audit's data with the labels that a network was taught."""
        if lesson.labels is None:
            return self.data
        split = self.data.train
        place = {position: row for row, position in enumerate(self.positions.tolist())}
        rows = [place[position] for position in _positions(split).tolist()]
        labels = lesson.labels[rows].numpy().astype(split.y.dtype)
        return replace(self.data, train=replace(split, y=labels.reshape(split.y.shape)))


def set_problem(sources: Sources, settings: Settings, progress: Progress, tail: bool = False) -> Problem:
    """Loads the model and reads its data: for the audit, and all train samples for training where these are more.

    With `tail`, only the dense layers before the scores are to be trained, on what the rest of the network makes.
    """
    ready = prepare(sources, settings, progress)
    whole = ready
    if ready.data.train.total > len(ready.data.train):
        whole = prepare(sources, replace(settings, samples=0), progress)
    network = copy.deepcopy(ready.model.network).float().eval() if tail else _to_train(ready)
    train, test = (_samples(network, split, ready.task) for split in (whole.data.train, ready.data.test))
    if tail:
        found = tail_of(network, train.x, ready.model.path.name)
        train, test = (replace(samples, x=found.features(samples.x)) for samples in (train, test))
        architecture = found.architecture
    else:
        architecture = Architecture(network, chain_of(network, train.x[:PROBED]))
    own: Stacked = {name: value.detach() for name, value in architecture.network.named_parameters()}
    f = all_scores(architecture.network, Trained(Lesson(0, torch.empty(0)), own), train.x)
    target = float(losses(f, train.y, ready.task).mean())
    model = replace(ready.model, reference=None, preparation=None)  # the file's runtime has done its part
    return Problem(
        model=model,
        data=ready.data,
        task=ready.task,
        settings=settings,
        architecture=architecture,
        train=train,
        positions=_positions(whole.data.train),
        test=test,
        test_positions=_positions(ready.data.test),
        target=target,
        tail=tail,
    )


def _to_train(ready: Prepared) -> nn.Module:
    """A copy of the network in float32, all of whose layers have a start that is known."""
    model = ready.model
    if model.input.batch is not None:
        raise ModelError(
            f"{model.path.name}: insists on batches of {model.input.batch} samples, so it cannot be trained anew; "
            "export it with a free batch size."
        )
    network = with_live_norms(copy.deepcopy(model.network).float()).eval()
    if unknown := unknown_layers(network):
        raise ModelError(
            f"{model.path.name}: nobody can tell how {', '.join(unknown[:3])} {'was' if len(unknown) == 1 else 'were'} "
            "initialised, so the network cannot be trained anew; train its tail with --frozen-trunk, or give "
            "make_twins your own training function."
        )
    return network


def _samples(network: nn.Module, split: Split, task: str) -> Samples:
    x = as_fed(network, torch.from_numpy(np.ascontiguousarray(split.x)))
    y: Tensor = torch.from_numpy(split.y.astype(np.float32 if task == "regression" else np.int64))
    return Samples(x, y, task)


def _positions(split: Split) -> NDArray[np.int64]:
    return split.index if len(split.index) else np.arange(len(split), dtype=np.int64)


def _digest(network: nn.Module) -> str:
    shapes = [(name, tuple(value.shape)) for name, value in network.named_parameters()]
    return hashlib.sha256(f"{network}{shapes}".encode()).hexdigest()


# Batch normalisation that an ONNX file holds with fixed statistics, made into a layer that learns its own.


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Over the samples and all positions of each channel, whatever the dimensions."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any will do."""


def with_live_norms(network: nn.Module) -> nn.Module:
    """The network, changed in place: it answers as before in use, and takes the batch's statistics in training."""
    if not isinstance(network, fx.GraphModule):
        return network
    for node in network.graph.nodes:
        if node.op == "call_module" and is_fixed_batch_norm(network.get_submodule(node.target)):
            operation = network.get_submodule(node.target)
            x, _, _, mean, variance = node.args
            statistics = [_constant(network, part) for part in (mean, variance)]
            network.set_submodule(node.target, _layer(operation, *statistics))
            node.args = (x,)
    network.graph.eliminate_dead_code()
    network.recompile()
    return network


def _constant(network: fx.GraphModule, node: fx.Node) -> Tensor:
    return network.get_buffer(str(node.target))


def _layer(operation: nn.Module, mean: Tensor, variance: Tensor) -> BatchNorm:
    settings = getattr(operation, "settings", {})
    layer = BatchNorm(len(mean), eps=settings.get("epsilon", 1e-5)).to(mean.dtype)
    state: dict[str, Tensor] = {"weight": operation.get_parameter("weight"), "bias": operation.get_parameter("bias")}
    state |= {"running_mean": mean, "running_var": variance, "num_batches_tracked": torch.tensor(0)}
    layer.load_state_dict(state)
    return layer.requires_grad_(False)


# The dense tail of a network on the model's own features: cheap twins for what they can answer.
#
# Their inner numbers are not those of whole twins, so they are no band; they tell what more data are worth, whether
# test is like train, whose the errors are, and what changes of the head do.


AT_ONCE = 256  # samples in one pass through the trunk


@dataclass(frozen=True)
class Tail:
    """The layers from one dense layer to the scores."""

    trunk: nn.Module  # the whole network, which stays as it is
    first: str  # path of the tail's first layer in it
    architecture: Architecture

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the first layer of the tail is given [n, features]."""
        parts = [_given(self.trunk, self.first, x[part]) for part in blocks(len(x), 1, AT_ONCE)]
        return torch.cat(parts)


@torch.no_grad()
def tail_of(network: nn.Module, x: Tensor, name: str) -> Tail:
    """The longest chain of dense layers that ends in the scores; checked on the samples x [n, …]."""
    order: list[str] = []
    leaves = [path for path, module in network.named_modules() if path and not any(True for _ in module.children())]
    with hooked(network, {path: lambda *_, path=path: order.append(path) for path in leaves}):
        scores(network, x[:PROBED])
    dense = [place for place, path in enumerate(order) if isinstance(network.get_submodule(path), nn.Linear)]
    for place in dense:
        given = _given(network, order[place], x[:PROBED])
        layers = OrderedDict((path.replace(".", "_"), network.get_submodule(path)) for path in order[place:])
        tail = nn.Sequential(layers)
        chain = chain_of(tail, given) if given.dim() == 2 else None
        if chain is not None and torch.allclose(tail(given), scores(network, x[:PROBED]), rtol=1e-4, atol=1e-4):
            return Tail(network, order[place], Architecture(tail, chain))
    raise ModelError(
        f"{name}: does not end in dense layers one behind the other, so it has no tail to be trained anew."
    )


def _given(network: nn.Module, path: str, x: Tensor) -> Tensor:
    kept: list[Tensor] = []
    with hooked(network, {path: lambda _module, inputs, _output: kept.append(inputs[0])}):
        network(x)
    return kept[-1]
