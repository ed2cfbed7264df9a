"""Is the network that is audited the network in the file? Checked on the user's own samples before any other number."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from audit.errors import BudgetError, ModelError, out_of_memory
from audit.model.base import Model, Part, Reference, as_fed, batches, first_line, float_type
from audit.model.torch import bounded

Array = NDArray[np.generic]
Answers = NDArray[np.float64]
Precise = Callable[[Array], Answers]
"""A network's scores [n, C] for samples."""

SAMPLES = 64
TRIED_FIRST = 2  # samples, by the clock: nothing of the model may have run before
TRIED_TWICE = 16  # of them, run again to see whether chance or company changes an answer
ELEMENTS = 2**21
"""Input numbers per trial: large images are tried with fewer samples."""

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 2e-2}
"""Allowed difference, as a share of the largest output, by the precision of the file's weights.

The network is run in float64, so the difference is the rounding of the file's own runtime: a few to some hundred units
in the last place of a deep network's answer (float32: 6e-8 each, float16: 5e-4). A wrong conversion is off by far more.
"""
PROBABILITIES = ("softmax", "sigmoid", "sigmoid_pair")
UNITS = 8
"""A probability next to 0 comes from sums and tables near 1, so it is right to this many rounding units of 1 only,
however small it is: 1e-6 in float32."""
STEADY = 1e-9
"""Two runs of the same network in float64 may differ by the order of their sums, not by more."""
MAGNIFIED = 20.0
"""So many times what rounding does to the network itself is still rounding, as it is for an ordinary network (1e-6 to
1e-4): runtimes add up in different orders. One real file is off by 1.6e-4 in onnxruntime's single precision, 15 times
what single precision does to it here, and by 2e-7 where onnxruntime is made to compute in double."""
COUPLED = (
    "the answer for one sample depends on the other samples of its batch, so samples cannot be audited one by one; "
    "export it in inference mode, with the statistics of BatchNorm fixed and each sequence a sample of its own."
)


@dataclass(frozen=True)
class Parity:
    """How far the audited network, its head put back on, is from the file's own runtime."""

    against: str
    samples: int
    batch_sizes: tuple[int, ...]
    max_abs_diff: float
    max_rel_diff: float  # max_abs_diff as a share of the largest output
    tolerance: float  # what max_abs_diff may be
    widened: bool = False  # whether that is more than usual, since this network magnifies rounding


def check_parity(model: Model, x: Array, raw: Array | None = None, network: Precise | None = None) -> Parity:
    """Compare network and reference on the first samples of x, all at once and one alone; stop where they disagree.

    `raw` are the samples that the model's own preprocessing made x from: the reference is the whole file, with it.
    `network`: in double precision, where there is one already; a large one leaves no room for a second.
    """
    if model.reference is None:
        raise ValueError("there is no reference to compare with")
    samples, network = _first(x), network or in_double(model)
    sizes = (model.input.batch,) if model.input.batch else tuple(dict.fromkeys((len(samples), 1)))
    precision = _precision(model.network)
    share = usual = TOLERANCES[precision]
    floor = _floor(model.head, precision)
    largest, scale = 0.0, 0.0
    for size in sizes:
        batch = samples if model.input.batch else samples[:size]
        expected = _expected(model, model.reference, batch if raw is None else raw[: len(batch)])
        answers = network(batch)
        differences, size_scale = _differences(model, answers, expected)
        if not np.all(differences <= max(share * size_scale, floor)):
            share = max(share, _rounding_share(model, batch, answers))
        _require(model, differences, max(share * size_scale, floor), size_scale, size)
        largest, scale = max(largest, float(differences.max())), max(scale, size_scale)
    allowed = max(share * scale, floor)
    return Parity(model.reference_name, len(samples), sizes, largest, largest / scale, allowed, share > usual)


def _floor(head: str, precision: torch.dtype) -> float:
    """What rounding alone does to a probability, be all of them next to 0; nothing where outputs have no such scale."""
    return UNITS * torch.finfo(precision).eps if head in PROBABILITIES else 0.0


def _rounding_share(model: Model, x: Array, precise: Answers) -> float:
    """What rounding alone may do to this network, as a share of the largest output, up to the coarsest tolerance.

    Some networks magnify it, such as one that takes a variance as E[x²] - E[x]². How much is seen by running the very
    same network in the precision of its file.
    """
    rounded = _precise(model, torch.promote_types(float_type(model.network), torch.float32))(x)
    exact, single = (model.answer(torch.from_numpy(scores)).numpy() for scores in (precise, rounded))
    share = float(np.abs(exact - single).max() / np.abs(exact).max())
    return min(MAGNIFIED * share, max(TOLERANCES.values())) if np.isfinite(share) else 0.0


def check_behaviour(model: Model, x: Array, network: Precise | None = None) -> None:
    """Stop at a network whose answer to a sample depends on chance or on the other samples of the batch."""
    samples, network = _first(x, TRIED_TWICE), network or in_double(model)
    with bounded(model.network):
        network(samples[:TRIED_FIRST])
    first, second = network(samples), network(samples)
    if not _steady(first, second):
        raise ModelError(
            f"{model.path}: the model answers differently when asked twice, so no number about it would hold; "
            "export it in inference mode, without dropout or random operators."
        )
    company = samples.copy()
    company[1::2] = _others(samples[1::2], model.input.parts)
    if not _steady(first[::2], network(company)[::2]):
        raise ModelError(f"{model.path}: {COUPLED}")


def _first(x: Array, most: int = SAMPLES) -> Array:
    """As many samples as a quick check can take."""
    per_sample = max(x[:1].size, 1)
    return x[: max(2, min(most, ELEMENTS // per_sample))]


def _others(x: Array, parts: Sequence[Part] = ()) -> Array:
    """Different samples of the same kind: the samples, and the numbers of each of their inputs, in reverse."""
    if not parts:
        return np.flip(x)
    return np.concatenate([np.flip(x[:, part.start : part.stop]) for part in parts], axis=1)


def in_double(model: Model) -> Precise:
    """The network in double precision."""
    return _precise(model, torch.float64)


def _precise(model: Model, dtype: torch.dtype) -> Precise:
    """The scores computed in `dtype` [n, C], fed in the batch size that the network insists on."""
    network = copy.deepcopy(model.network).to(dtype)

    def run(x: Array) -> Answers:
        samples = torch.from_numpy(np.ascontiguousarray(x)).to(model.input.dtype)
        parts = [_scores(model, network, part)[:count] for part, count in batches(samples, model.input.batch)]
        answers: Answers = torch.cat(parts).numpy()
        return answers

    return run


def _scores(model: Model, network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    try:
        with torch.no_grad():
            scores: torch.Tensor = network(as_fed(network, x))
    except Exception as error:  # whatever the file's operators do with a batch of this size
        if out_of_memory(error):
            raise BudgetError(
                f"{model.path}: the network takes more memory for {len(x)} samples than the budget leaves; raise "
                "--memory, or audit a smaller model."
            ) from error
        raise ModelError(
            f"{model.path}: the network cannot take {len(x)} samples at once ({first_line(error)}); "
            "export the model with a free batch size."
        ) from error
    if scores.ndim != 2 or len(scores) != len(x):
        raise ModelError(
            f"{model.path}: {len(x)} samples give an answer of shape {list(scores.shape)}, not one row of scores each; "
            "export the model with an output [n, classes] and a free batch size."
        )
    return scores.to(torch.float64)


def _expected(model: Model, reference: Reference, x: Array) -> Answers:
    """What the file's own runtime answers [n, C]."""
    try:
        answer = reference(x)
    except ModelError:
        raise
    except Exception as error:  # a foreign runtime may fail in any way
        raise ModelError(
            f"{model.path}: {model.reference_name} cannot run the model ({first_line(error)}), so nothing can "
            "vouch for the converted network; export the model again."
        ) from error
    return np.asarray(answer, dtype=np.float64).reshape(len(x), -1)


def _differences(model: Model, scores: Answers, expected: Answers) -> tuple[Answers, float]:
    """Largest difference per sample [n], and the size of the largest output."""
    ours: Answers = model.answer(torch.from_numpy(scores)).numpy()
    if ours.shape != expected.shape:
        raise ModelError(
            f"{model.path}: {model.reference_name} gives {expected.shape[1]} numbers per sample and the converted "
            f"network {ours.shape[1]}; choose the output to audit with --output NAME."
        )
    if model.head == "log_softmax" and np.isneginf(expected).any():
        ours, expected = np.exp(ours), np.exp(expected)  # a probability that the file's precision rounds to zero
    if not np.isfinite(expected).all():
        sample = int(np.argmax(~np.isfinite(expected).all(axis=1)))
        raise ModelError(
            f"{model.path}: {model.reference_name} answers with NaN or infinity, first for sample {sample}; "
            "check the preprocessing of the data and the weights of the model."
        )
    scale = float(np.abs(expected).max())
    return np.abs(ours - expected).max(axis=1), scale if scale > 0 else 1.0


def _require(model: Model, differences: Answers, tolerance: float, scale: float, size: int) -> None:
    if np.all(differences <= tolerance):
        return
    sample = int(np.argmax(np.where(np.isnan(differences), np.inf, differences)))
    worst = float(differences[sample])
    raise ModelError(
        f"{model.path}: the converted network and {model.reference_name} disagree by {worst:.3g} at sample {sample} "
        f"in batches of {size} ({worst / scale:.2g} of the largest output; up to {tolerance:.3g} is rounding), so no "
        "number measured on it would be true of the file; export it again with another opset or exporter and report it."
    )


def _precision(network: nn.Module) -> torch.dtype:
    """The precision of the file's weights: the coarsest type that holds every one of them exactly."""
    weights = [weight.detach() for weight in network.parameters() if weight.is_floating_point()]
    for dtype in (torch.float16, torch.float32):
        if weights and all(torch.equal(weight.to(dtype).to(weight.dtype), weight) for weight in weights):
            return dtype
    return torch.float64 if weights else torch.float32


def _steady(first: Answers, second: Answers) -> bool:
    scale = np.abs(first[np.isfinite(first)]).max(initial=1.0)
    return bool(np.allclose(first, second, rtol=0, atol=STEADY * scale, equal_nan=True))
