"""The kinds of twins: what each changes, and the question that it answers. A new kind is one line.

from audit.twins.kinds import Kind, KINDS
hot = Kind("hot", "ten times the rate", "Would a higher rate help?", 4, recipe=lambda r: replace(r, rate=10 * r.rate))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from audit.errors import UsageError
from audit.twins import Recipe
from audit.twins.training import Architecture, Lesson, Samples

WRONG = 0.1  # share of the labels that `wrong-labels` moves
QUIETER = 8
DECAY = {"sgd": 1e-3, "adam": 1e-3, "adamw": 0.1}  # AdamW's acts on the weights themselves, times the rate


def same(recipe: Recipe) -> Recipe:
    """The recipe as it is."""
    return recipe


def all_samples(samples: Samples, seed: int) -> Lesson:
    """Every train sample with its own label."""
    return Lesson(seed, torch.arange(len(samples.x)))


def always(architecture: Architecture, samples: Samples) -> str | None:
    """No reason why not."""
    return None


@dataclass(frozen=True)
class Kind:
    """One change of the usual training."""

    name: str
    change: str
    question: str
    count: int  # how many are made unless told otherwise
    recipe: Callable[[Recipe], Recipe] = same
    lesson: Callable[[Samples, int], Lesson] = all_samples  # given the seed
    target: float = 1.0  # times the audited model's train loss
    settles: bool = False  # classifiers go on until they come to rest: the change takes longer than the target does
    own_rate: bool = False  # a stable rate is looked for anew: the change may not bear that of the recipe
    scaled: Callable[[Recipe, float], Recipe] | None = None  # the change so many times as strong: until the target fits
    work: float = 1.0  # of training, about, in that of a plain twin: a budget counts with it
    measured: bool = True  # inside: only where its train samples are those of the audit
    remedy: bool = False  # a change that an owner could train by; the others are faults, or parts of the data
    refused: Callable[[Architecture, Samples], str | None] = always  # why it cannot be made


def part(share: int) -> Callable[[Samples, int], Lesson]:
    """One of `share` equal parts; `share` seeds in a row divide all samples among them."""

    def lesson(samples: Samples, seed: int) -> Lesson:
        shuffled = torch.randperm(len(samples.x), generator=torch.Generator().manual_seed(seed // share))
        size = len(shuffled) // share
        return Lesson(seed, shuffled[seed % share * size :][:size].sort().values)

    return lesson


def wrong_labels(samples: Samples, seed: int) -> Lesson:
    """A tenth of the labels moved to another class, each other class equally likely; targets change places."""
    generator = torch.Generator().manual_seed(seed)
    n, y = len(samples.y), samples.y.clone()
    chosen = torch.randperm(n, generator=generator)[: round(WRONG * n)]
    if samples.task == "regression":
        y[chosen] = samples.y[chosen.roll(1)]
    else:
        classes = max(2, int(samples.y.max()) + 1)
        y[chosen] = (y[chosen] + torch.randint(1, classes, chosen.shape, generator=generator)) % classes
    return Lesson(seed, torch.arange(n), y)


def quieter(recipe: Recipe) -> Recipe:
    """Rate ÷ batch eight times smaller, by the batch."""
    return replace(recipe, batch=QUIETER * recipe.batch, epochs=QUIETER * recipe.epochs)


def louder(recipe: Recipe) -> Recipe:
    """Rate ÷ batch twice as large, by the batch where it can be halved."""
    return replace(recipe, batch=recipe.batch // 2) if recipe.batch > 3 else replace(recipe, rate=2 * recipe.rate)


def decayed(recipe: Recipe) -> Recipe:
    """Weight decay where there was none, ten times as much where there was some."""
    return replace(recipe, decay=10 * recipe.decay or DECAY[recipe.optimizer])


def no_place_for_dropout(architecture: Architecture, samples: Samples) -> str | None:
    """Dropout goes behind the functions between dense layers; elsewhere nobody has said where."""
    if architecture.chain is not None and architecture.chain.functions:
        return None
    return "the network as loaded has no place for dropout"


def no_chain(architecture: Architecture, samples: Samples) -> str | None:
    """Regularizers are written for stacks of dense layers."""
    if architecture.chain is not None and len(architecture.chain.layers) > 1:
        return None
    return "regularizers are tried on chains of dense layers alone; audit.train has them for any network"


def too_few(least: int) -> Callable[[Architecture, Samples], str | None]:
    """A part of so few samples teaches nothing."""

    def refused(architecture: Architecture, samples: Samples) -> str | None:
        return None if len(samples.x) >= least else f"{len(samples.x)} train samples are too few to divide"

    return refused


def _times(**factors: float) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, **{name: factor * getattr(recipe, name) for name, factor in factors.items()})


def _with(**values: float) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, **values)  # type: ignore[arg-type]


HALF, QUARTER = too_few(16), too_few(32)

KINDS: tuple[Kind, ...] = (
    Kind("plain", "nothing", "What does chance in training change?", 8),
    Kind(
        "half",
        "half of the train samples",
        "Would more data help?",
        6,
        _times(epochs=2),  # the same number of steps
        part(2),
        work=0.8,
        measured=False,
        refused=HALF,
    ),
    Kind(
        "quarter",
        "a quarter of the train samples",
        "Would more data help?",
        6,
        _times(epochs=4),
        part(4),
        work=0.6,
        measured=False,
        refused=QUARTER,
    ),
    Kind("quiet", "rate ÷ batch 8 times smaller", "Was the training too smooth?", 4, quieter, work=5.0),
    Kind(
        "decay",
        "weight decay",
        "Would weight decay help?",
        4,
        decayed,
        settles=True,
        scaled=lambda recipe, factor: replace(recipe, decay=factor * recipe.decay),
        work=2.0,
        remedy=True,
    ),
    Kind(
        "large-start",
        "first weights 3 times larger",
        "Was the start too large?",
        4,
        _times(start_factor=3, epochs=3),
        own_rate=True,
        work=2.5,
    ),
    Kind("wrong-labels", "a tenth of the labels moved", "Are labels wrong?", 4, lesson=wrong_labels, work=2.0),
    Kind(
        "small-start",
        "first weights 3 times smaller",
        "Was the start too small?",
        4,
        _times(start_factor=1 / 3),
        work=1.2,
        remedy=True,
    ),
    Kind("loud", "rate ÷ batch twice as large", "Would noisier training help?", 4, louder, work=1.5, remedy=True),
    Kind("shorter", "to ten times the train loss", "Was it trained too long?", 4, target=10.0, work=0.7, remedy=True),
    Kind(
        "longer",
        "to a tenth of the train loss",
        "Was it trained too short?",
        4,
        _times(epochs=10),
        target=0.1,
        work=4.0,
        remedy=True,
    ),
    Kind(
        "fisher",
        "Jia & Su's regularizer, late",
        "Would it help?",
        4,
        _with(fisher=50.0),
        work=6.0,
        refused=no_chain,
        remedy=True,
    ),
    Kind(
        "flat",
        "a penalty on κ_τ, late",
        "Would a flatter place help?",
        4,
        _with(flat=0.1),
        work=4.0,
        refused=no_chain,
        remedy=True,
    ),
    Kind(
        "dropout",
        "a fifth of the hidden units left out at random",
        "Would dropout help?",
        4,
        _with(dropout=0.2),
        work=2.0,
        refused=no_place_for_dropout,
        remedy=True,
    ),
)
"""In order of worth: what a budget takes first."""


def chosen_kinds(names: Iterable[str] | None, extra: Iterable[Kind] = ()) -> tuple[Kind, ...]:
    """The kinds of these names, in order of worth; all where there are no names. Own kinds are always among them."""
    known = {kind.name: kind for kind in (*KINDS, *extra)}
    if names is None:
        return tuple(known.values())
    asked = [name.strip() for name in names]
    for name in asked:
        if name not in known:
            raise UsageError(f"--kinds: there is no kind {name!r}; the kinds are {', '.join(known)}.")
    return tuple(kind for kind in known.values() if kind.name in asked or kind.name not in {k.name for k in KINDS})


def held_out(samples: Samples, lesson: Lesson) -> Tensor:
    """Rows of the samples that a lesson leaves out [m]."""
    seen = torch.zeros(len(samples.x), dtype=torch.bool)
    seen[lesson.rows] = True
    return (~seen).nonzero()[:, 0]
