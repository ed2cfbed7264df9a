"""`Model`: what every loader returns, whatever file it read; and samples as a network takes them."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.torch import bounded

Reference = Callable[..., np.ndarray]
"""The file's own runtime: raw inputs, one array [n, ...] each, to the raw output [n, ...] that the file declares."""

HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda f: f,
    "softmax": lambda f: f.softmax(-1),
    "log_softmax": lambda f: f.log_softmax(-1),
    "sigmoid": torch.sigmoid,
    "sigmoid_pair": lambda f: torch.cat([1 - torch.sigmoid(f), torch.sigmoid(f)], -1),
}
"""Final layers that a loader takes off, so that the audit sees the scores beneath; each maps scores to the output."""


@dataclass(frozen=True)
class Part:
    """One of several inputs in the packed row of a sample: the numbers start to stop are its, of this shape."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype  # in which the network takes it
    start: int

    @property
    def stop(self) -> int:
        """Where the next part starts."""
        return self.start + math.prod(self.shape)

    @property
    def is_mask(self) -> bool:
        """Whether it only says which numbers of the other inputs count: it has no size of its own to be changed by."""
        return self.dtype is torch.bool or "mask" in self.name.lower()

    @property
    def is_continuous(self) -> bool:
        """Whether a small change of it means something, so that the scores are differentiated in it."""
        return self.dtype.is_floating_point and not self.is_mask


@dataclass(frozen=True)
class InputSpec:
    """What the network takes: one tensor, its shape without the batch dimension (None where a size is free)."""

    name: str
    shape: tuple[int | None, ...] | None  # None: the file does not say (a state_dict)
    dtype: torch.dtype = torch.float32
    batch: int | None = None  # a batch size the file insists on; None where any size will do
    optional: bool = False  # whether the network runs without it
    parts: tuple[Part, ...] = ()  # of an input that several were packed into

    @property
    def has_distances(self) -> bool:
        """Whether distances between samples mean something: those between tokens do not."""
        whole = any(not (part.is_continuous or part.is_mask) for part in self.parts)
        return self.dtype.is_floating_point and not whole


@dataclass(frozen=True)
class Preparation:
    """Preprocessing that stands in the model's own file: raw samples [n, columns] to the network's input [n, k].

    Raw samples hold what the data hold, text and missing values included, one column for each of `kinds`.
    """

    kinds: tuple[str, ...]  # of each raw column: "text", "number" or "whole number"
    names: tuple[str, ...] | None  # of the raw columns; None where the file takes a matrix, whose columns have no names
    columns: tuple[tuple[int, str], ...] | None  # of each feature: its raw column, and what its name has behind that's
    run: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Model:
    """A network ready to audit.

    `network` maps one tensor [n, *input.shape] to scores [n, C], or [n, T·C] of T positions. It is in eval mode, none
    of its parameters requires a gradient, every dense layer in it is an `nn.Linear` submodule (used twice: one module
    called twice), and `copy.deepcopy(network).to(torch.float64)` computes everything in float64.

    With `others`, network and reference take as many tensors, in the order of `inputs`, until `pack` has made one of
    them.
    """

    network: nn.Module
    path: Path
    format: str  # "onnx", "pt2", "torchscript", "state_dict", "safetensors", "pickle"
    sha256: str
    input: InputSpec
    output: str  # the name of the audited output
    head: str = "none"  # which of HEADS was taken off
    per_position: int | None = None  # C, where the file's output is [n, T, C]: the network's scores are [n, T·C]
    opset: int | None = None
    ops: dict[str, str] = field(default_factory=dict)  # dense submodule → what the file calls it: "gemm", "matmul", …
    names: dict[str, str] = field(default_factory=dict)  # submodule → a name its user recognises, where they differ
    notes: tuple[str, ...] = ()  # sentences for the report: a head taken off, a fold found, a batch size rewritten
    classes: tuple[str, ...] | None = None  # class labels in the order of the scores, where the file names them
    factor: float = 1.0  # what the file's scores were multiplied by, to compare models at one train loss
    preparation: Preparation | None = None  # what the file does to raw samples; `reference` then takes those
    reference: Reference | None = None  # None: there is nothing independent to compare with
    reference_name: str = ""  # "onnxruntime", "torch.export", …
    others: tuple[InputSpec, ...] = ()  # further inputs that every sample has, such as an attention mask
    unused: tuple[str, ...] = ()  # inputs that the file declares and the scores do not depend on

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Everything that a sample consists of."""
        return (self.input, *self.others)

    @property
    def weights(self) -> int:
        """How many numbers its parameters hold."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def answer(self, scores: Tensor) -> Tensor:
        """The file's output for scores [n, C] or [n, T·C], the final layer put back on; a row for each sample."""
        rows = scores if self.per_position is None else scores.reshape(len(scores), -1, self.per_position)
        return HEADS[self.head](rows).flatten(1)


# Foreign code and what comes out of it: kept quiet, its errors in one line, its weights looked at.


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's own warnings and log lines, which speak of its internals, away from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """The first line of a foreign error, short enough to stand in a sentence."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(".:;")[:200]


def check_weights(tensors: Mapping[str, Any], path: Path) -> None:
    """A model has weights, and each of them is a finite number."""
    weights = {name: value for name, value in tensors.items() if isinstance(value, Tensor)}
    if not any(value.numel() for value in weights.values()):
        raise ModelError(f"{path}: has no parameters, so there is nothing to audit; give a trained network.")
    for name, value in weights.items():
        if value.is_quantized or value.dtype in (torch.qint8, torch.quint8):
            raise ModelError(f"{path}: {name} is quantised; audit the float model it came from.")
        if value.is_complex():
            raise ModelError(f"{path}: {name} holds complex numbers; audit a model with real ones.")
        if value.layout is not torch.strided or value.is_meta or value.is_nested:
            raise ModelError(f"{path}: {name} is no plain tensor of numbers; save dense weights.")
        if not value.is_floating_point() or bool(torch.isfinite(value).all()):
            continue
        count = int((~torch.isfinite(value)).sum())
        raise ModelError(f"{path}: {name} holds {count} NaN or infinite values; train or export the model again.")


# Samples as a network takes them: its float type, its batch size, trials for sizes that a file leaves open.


FREE_SIZES = (8, 16, 32, 64, 224)
"""What to try for sizes of a sample that a file leaves open."""
SEED = 0

Samples = TypeVar("Samples", Tensor, NDArray[Any])


def float_type(network: nn.Module) -> torch.dtype:
    """The float type a network computes in: that of its weights."""
    floats = (tensor.dtype for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point())
    return next(floats, torch.float32)


def as_fed(network: nn.Module, x: Tensor) -> Tensor:
    """Samples on the network's device and in its float type; whole numbers such as tokens stay whole.

    >>> as_fed(nn.Linear(2, 1).double(), torch.ones(1, 2)).dtype, as_fed(nn.Linear(2, 1), torch.tensor([[7]])).dtype
    (torch.float64, torch.int64)
    """
    device = next((tensor.device for tensor in (*network.parameters(), *network.buffers())), x.device)
    return x.to(device, float_type(network) if x.is_floating_point() else x.dtype)


def filled(x: Samples, size: int) -> Samples:
    """Samples [n, ...] with the last one repeated until n is a multiple of `size`.

    >>> filled(np.arange(5), 4).tolist()
    [0, 1, 2, 3, 4, 4, 4, 4]
    """
    missing = -len(x) % size
    return x[np.minimum(np.arange(len(x) + missing), len(x) - 1)] if missing else x


def batches(x: Samples, size: int | None) -> Iterator[tuple[Samples, int]]:
    """Batches of exactly `size` samples (None: all at once), each with how many of its samples are not filling."""
    size = size or max(len(x), 1)
    for start in range(0, len(x), size):
        part = x[start : start + size]
        yield filled(part, size), len(part)


def reference_of(
    forward: Callable[..., Tensor], dtypes: Sequence[torch.dtype], batch: int | None, smallest: int = 1
) -> Reference:
    """`forward` from arrays to arrays, fed in the batch size it insists on, and with no fewer samples than it takes."""

    def run(*inputs: NDArray[Any]) -> NDArray[Any]:
        answers, n = [], len(inputs[0])
        for rows, count in batches(np.arange(n), batch or max(n, smallest)):
            fed = [torch.from_numpy(np.ascontiguousarray(x[rows])) for x in inputs]
            with torch.no_grad(), quiet():
                answer = forward(*(x.to(dtype) for x, dtype in zip(fed, dtypes, strict=True)))[:count]
            answers.append(answer.to("cpu", torch.promote_types(answer.dtype, torch.float32)).numpy())
        return np.concatenate(answers)

    return run


def runs(network: nn.Module, *x: Tensor) -> bool:
    """Whether a forward pass on x comes to an end, soon enough for an audit, which takes thousands of them."""
    try:
        with torch.no_grad(), quiet(), bounded(network):
            network(*x)
    except ModelError:
        raise
    except Exception:  # a user's forward may raise anything; all of it means no
        return False
    return True


def accepts(model: Model, shape: tuple[int, ...]) -> bool:
    """Whether the network takes samples of this shape."""
    declared = model.input.shape
    if declared is not None and None not in declared:
        return tuple(shape) == declared
    if declared is not None:
        if len(shape) != len(declared) or any(
            want not in (None, size) for want, size in zip(declared, shape, strict=True)
        ):
            return False
        return runs(model.network, torch.zeros((model.input.batch or 2, *shape), dtype=model.input.dtype))
    kinds = (float_type(model.network), torch.int64)
    return any(runs(model.network, torch.zeros((2, *shape), dtype=kind)) for kind in kinds)


def trial_batches(inputs: Sequence[InputSpec], count: int) -> Iterator[tuple[Tensor, ...]]:
    """Random batches of `count` samples for all inputs, one for every guess at the sizes that the file leaves open."""
    draws = torch.Generator().manual_seed(SEED)
    open_sizes = any(None in (spec.shape or ()) for spec in inputs)
    for guess in FREE_SIZES if open_sizes else FREE_SIZES[:1]:
        yield tuple(_drawn(spec, count, guess, draws) for spec in inputs)


def _drawn(spec: InputSpec, count: int, guess: int, draws: torch.Generator) -> Tensor:
    """Standard normal floats, zeros and ones for whole numbers; a mask that hides nothing."""
    sizes = (count, *(guess if size is None else size for size in spec.shape or ()))
    if "mask" in spec.name.lower():
        return torch.ones(sizes, dtype=spec.dtype)
    floats = spec.dtype.is_floating_point
    drawn = torch.randn(sizes, generator=draws) if floats else torch.randint(0, 2, sizes, generator=draws)
    return drawn.to(spec.dtype)
