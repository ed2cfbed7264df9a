"""What twins are made from: the audited network to be trained anew, its samples, and its train loss as the target."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.data.dataset import Data, Split
from audit.errors import ModelError
from audit.model.base import Model
from audit.model.batches import as_fed
from audit.run.pipeline import Prepared, Sources, prepare
from audit.run.progress import Progress
from audit.run.temperature import tempered
from audit.settings import Settings
from audit.twins.index import About, Recipe
from audit.twins.norms import with_live_norms
from audit.twins.optimizers import Stacked
from audit.twins.outcomes import all_scores, losses
from audit.twins.stack import chain_of
from audit.twins.start import unknown_layers
from audit.twins.tail import tail_of
from audit.twins.training import Architecture, Lesson, Samples, Trained

PROBED = 8  # samples that a chain of dense layers is recognised on


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
