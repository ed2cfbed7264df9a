"""Twins by the owner's own training function: the whole of a recipe that no file could say."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from audit.errors import ModelError, UsageError
from audit.network.loss import LOSS_OF_TASK
from audit.twins.outcomes import all_scores
from audit.twins.training import Architecture, Lesson, Samples, Trained
from audit.twins.work import Change, TrainWith

OwnTraining = Callable[[int, Tensor, Tensor, Change], nn.Module]
"""Called with a seed, train samples, their labels and the change; answers with a trained network.

`change.kind` is its name, `change.recipe` has what is changed of a recipe (`decay`, `start_factor`, …), and
`change.goal.target` is the train loss to stop at. Samples and labels of `half`, `quarter` and `wrong-labels` come
changed already.
"""


def trained_by(function: OwnTraining) -> TrainWith:
    """The owner's function in the place of ours, one lesson after the other."""

    def train(architecture: Architecture, samples: Samples, change: Change, lessons: list[Lesson]) -> list[Trained]:
        return [_trained(function, architecture, samples, change, lesson) for lesson in lessons]

    return train


def _trained(
    function: OwnTraining, architecture: Architecture, samples: Samples, change: Change, lesson: Lesson
) -> Trained:
    labels = samples.y if lesson.labels is None else lesson.labels
    x, y = samples.x[lesson.rows], labels[lesson.rows]
    with torch.enable_grad():
        module = function(lesson.seed, x.clone(), y.clone(), change)
    if not isinstance(module, nn.Module):
        raise UsageError(f"train_with: answered with a {type(module).__name__}; return the trained nn.Module.")
    state = {name: value.detach().cpu().float() for name, value in module.state_dict().items()}
    missing = [name for name, _ in architecture.network.named_parameters() if name not in state]
    if missing:
        raise ModelError(
            f"train_with: the network that it returned has no {missing[0]!r}; return the audited architecture."
        )
    kept = {name for name, _ in (*architecture.network.named_parameters(), *architecture.network.named_buffers())}
    found = Trained(lesson, {name: value for name, value in state.items() if name in kept})
    f = all_scores(architecture.network, found, x)
    found.train_loss = float(LOSS_OF_TASK[samples.task].value(f, y).mean())
    found.reached = found.train_loss <= change.goal.target
    return found
