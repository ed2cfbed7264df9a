"""A folder of twins: what is kept of each, and how it is read and written. No torch.

`twins.json` is the index; `arrays/NAME.npz` has the outcomes of one twin sample by sample, `weights/NAME.safetensors`
its parameters. Every file appears in one step, the index last: an interrupted run leaves a folder that can be read, and
gone on with.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from audit.errors import UsageError, readable
from audit.report.fields import adapter_of
from audit.settings.limits import appear, found_text, memory_limited, refuse_outside
from audit.twins.checked import ANEW, CALLED, check_file, check_own, found_arrays

SCHEMA = "gen-audit/twins/1"
INDEX = "twins.json"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")  # of a twin's files: no place of another folder can be written so
AT_LEAST = {"rate": 0.0, "batch": 1, "momentum": 0.0, "decay": 0.0, "epochs": 1, "dropout": 0.0}  # of a recipe

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is trained: mini-batches of shuffled samples, until the target train loss is reached."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    rate: float = 0.1
    batch: int = 32
    momentum: float = 0.0  # of SGD
    decay: float = 0.0  # weight decay, of weights and biases alike
    start: Literal["torch", "glorot", "he"] = "torch"  # how weights are drawn before training
    epochs: int = 400  # at most
    start_factor: float = 1.0  # the drawn weights are multiplied by this
    dropout: float = 0.0  # share of a hidden layer's units that are left out of a training step
    fisher: float = 0.0  # weight β of Jia & Su's regularizer
    flat: float = 0.0  # weight of the flatness penalty

    @property
    def fault(self) -> str | None:
        """Which of its numbers no training can have."""
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            if not least <= value < math.inf or (name == "rate" and value == 0) or (name == "dropout" and value >= 1):
                return f"{name} = {value:g} is out of range"
        return None


@dataclass(frozen=True, kw_only=True)
class Twin:
    """One trained network. Errors and losses are at its temperature, so that all twins have one train loss."""

    kind: str  # plain, half, decay, …: what was changed
    family: str  # name of the recipe in which it was changed
    seed: int  # of start, order and subset
    whole: bool  # all parameters were trained; if not, the dense tail on the model's own features
    train_samples: int
    train_loss: float  # as trained, on its own train samples
    temperature: float  # factor on the scores that brings the train loss to the target; 1 where none does
    matched: bool  # whether it does: only then are there numbers
    restarts: int  # at half the rate, after it had diverged
    reached: bool  # the train loss that its kind aims at
    epochs: int  # taken
    train_error: float | None  # on its own train samples; null for regression
    test_error: float | None
    test_loss: float
    recipe: Recipe | None = None  # with the kind's change
    numbers: dict[str, float] = field(default_factory=dict)  # inner numbers by their paths in a report

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.family}-{self.kind}-{self.seed}"


@dataclass(frozen=True)
class Unseen:
    """What a twin says of train samples that it was not trained on; nothing where it has seen all."""

    rows: Whole  # [m] positions in the train split as stored
    outcomes: Floats  # [m] 1 where right, 0 where wrong; the loss for regression
    losses: Floats  # [m]
    answers: Floats  # [m] predicted class, or [m, k] predicted targets
    confidence: Floats  # [m] probability of the predicted class; empty for regression


@dataclass(frozen=True)
class TwinOutcomes:
    """What a twin does on every test sample, and on the train samples that it has not seen."""

    test: Floats  # [tests] 1 where right, 0 where wrong; the loss for regression
    test_losses: Floats  # [tests]
    unseen: Unseen
    tests: Whole = field(default_factory=lambda: np.empty(0, np.int64))  # [tests] positions in the test split as stored


@dataclass(frozen=True, kw_only=True)
class About:
    """What the twins are twins of: two folders about the same hold the same twins."""

    architecture: str  # sha256 of layers and shapes, weights left out
    data: str  # sha256
    task: Literal["classification", "binary", "regression"]
    target: float  # the audited model's train loss
    tail: bool = False  # only the dense tail is retrained
    recipe: Recipe | None = None  # the given one; None where the family was looked for

    @property
    def key(self) -> str:
        """By which twins are found again."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TwinSet:
    """All twins of one model."""

    about: About
    recipe: Recipe  # that kinds change one thing of: given, or that of the family that the model resembles
    recipe_given: bool
    family: str  # its name
    families: dict[str, Recipe]  # every recipe in which plain twins were made
    model: dict[str, float]  # the audited model's own inner numbers, measured as its twins' were
    twins: tuple[Twin, ...]
    left_out: tuple[tuple[str, str], ...]  # kinds that were not made, and why
    notes: tuple[str, ...] = ()  # what a reader should know of how they were made
    outcomes: tuple[TwinOutcomes, ...] = ()  # of each twin

    @property
    def test_outcomes(self) -> Floats:
        """[twins, tests] 1 where right, 0 where wrong; the loss for regression."""
        return np.stack([one.test for one in self.outcomes])

    @property
    def test_losses(self) -> Floats:
        """[twins, tests]."""
        return np.stack([one.test_losses for one in self.outcomes])

    def of(self, kind: str, family: str | None = None) -> tuple[Twin, ...]:
        """The twins of a kind, in the chosen family unless another is named."""
        return tuple(twin for twin in self.twins if (twin.kind, twin.family) == (kind, family or self.family))


@dataclass(frozen=True, kw_only=True)
class _Index:
    """`twins.json`."""

    __pydantic_config__ = {"allow_inf_nan": False}  # noqa: RUF012  # pydantic's name

    schema: str
    about: About
    recipe: Recipe
    recipe_given: bool
    family: str
    families: dict[str, Recipe]
    model: dict[str, float]
    twins: tuple[Twin, ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


def cached(about: About) -> Path:
    """Where the twins of a model are kept when nobody names a folder: in the user's cache, by content."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gen-audit" / "twins" / about.key[:32]


def read_twins(folder: Path) -> TwinSet:
    """The twins of a folder, outcomes included."""
    index = read_index(folder)
    found = found_arrays([_arrays(folder, twin) for twin in index.twins], folder)
    outcomes = tuple(_outcomes(arrays) for arrays in found)
    _check_outcomes(folder, outcomes, index.about.task)
    return _with_outcomes(index, outcomes)


def read_index(folder: Path) -> TwinSet:
    """The twins of a folder without what they do sample by sample."""
    path = folder / INDEX
    refuse_outside(path, folder, CALLED)
    text = found_text(path, f"make twins with `gen-audit twins MODEL DATA -o {folder}`")
    try:
        index: _Index = adapter_of(_Index).validate_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: is no index of twins, or damaged; make them anew in another folder.") from error
    if index.schema != SCHEMA:
        raise UsageError(f"{path}: is of schema {index.schema!r}, not {SCHEMA}; make the twins anew.")
    _check_index(path, index)
    return TwinSet(**{name: value for name, value in vars(index).items() if name != "schema"})


def _check_index(path: Path, index: _Index) -> None:
    """Refuses names that are none, the same twin twice, numbers beside none of the model's own, impossible recipes."""
    names = [twin.name for twin in index.twins]
    for name, twin in zip(names, index.twins, strict=True):
        if not NAME.fullmatch(name) or not 0 <= twin.seed < 2**63:
            raise UsageError(f"{path}: names a twin {name[:100]!r}, which is no name for its files; {ANEW}.")
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: names the same twin twice; {ANEW}.")
    if index.model and any(twin.numbers and index.model.keys().isdisjoint(twin.numbers) for twin in index.twins):
        raise UsageError(f"{path}: has twins with other numbers than the model's; {ANEW}.")
    recipes = [index.recipe, *index.families.values(), *(twin.recipe for twin in index.twins if twin.recipe)]
    for fault in filter(None, (recipe.fault for recipe in recipes)):
        raise UsageError(f"{path}: has a recipe whose {fault}; {ANEW}.")


def _check_outcomes(folder: Path, outcomes: Sequence[TwinOutcomes], task: str) -> None:
    """Refuses twins that were not judged on the same test samples, and classes that are none."""
    if len({len(one.test) for one in outcomes}) > 1:
        raise UsageError(f"{folder}: its twins were judged on different numbers of test samples; {ANEW}.")
    answers = [one.unseen.answers for one in outcomes if task != "regression"]
    if any((each != np.floor(each)).any() or (each < 0).any() for each in answers):
        raise UsageError(f"{folder}: its twins answer with what is no class; {ANEW}.")


def write_twins(folder: Path, twins: TwinSet) -> None:
    """Writes the outcomes that are not there yet, then the index."""
    _make_own(folder / "arrays")
    for twin, outcomes in zip(twins.twins, twins.outcomes, strict=True):
        if not (path := _arrays(folder, twin)).exists():
            of_test = {"test": outcomes.test, "test_losses": outcomes.test_losses, "tests": outcomes.tests}
            arrays = {**of_test, **vars(outcomes.unseen)}
            appear(path, lambda unfinished, arrays=arrays: _save_arrays(unfinished, arrays))  # type: ignore[misc]
    values = {"schema": SCHEMA, **asdict(_without_outcomes(twins))}
    del values["outcomes"]
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    appear(folder / INDEX, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def write_weights(folder: Path, twin: Twin, weights: Mapping[str, NDArray[np.generic]]) -> None:
    """Keeps the parameters of a twin, by their names in the network."""
    from safetensors.numpy import save_file  # not for those who only read the index

    _make_own(folder / "weights")
    values = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    appear(_weights(folder, twin), lambda unfinished: save_file(values, unfinished))


def read_weights(folder: Path, twin: Twin) -> dict[str, NDArray[np.generic]]:
    """The parameters of a twin."""
    from safetensors.numpy import load_file

    path = _weights(folder, twin)
    check_file(path, folder)
    with readable(UsageError, path, ANEW), memory_limited(None):
        return dict(load_file(path))


def _with_outcomes(index: TwinSet, outcomes: tuple[TwinOutcomes, ...]) -> TwinSet:
    return TwinSet(**{**vars(index), "outcomes": outcomes})


def _without_outcomes(twins: TwinSet) -> TwinSet:
    return _with_outcomes(twins, ())


def _outcomes(arrays: dict[str, NDArray[Any]]) -> TwinOutcomes:
    test, losses, tests = (arrays.pop(name) for name in ("test", "test_losses", "tests"))
    return TwinOutcomes(test, losses, Unseen(**arrays), tests)


def _save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with path.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _arrays(folder: Path, twin: Twin) -> Path:
    return folder / "arrays" / f"{twin.name}.npz"


def _weights(folder: Path, twin: Twin) -> Path:
    return folder / "weights" / f"{twin.name}.safetensors"


def _make_own(folder: Path) -> None:
    """A folder that is no link to another one."""
    check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
