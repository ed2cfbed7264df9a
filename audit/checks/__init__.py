"""Self-checks: run on the user's own model, on every audit, and printed whatever they say.

Here is what is read off the measures' own results: the papers' assumptions, and checks that the measures made on their
way; and what a second pass over the same samples shows. An assumption that fails on this model is no fault of it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor

from audit.checks.arithmetic import check_curvature, check_rescaling
from audit.measures.catalogue import CATALOGUE
from audit.measures.contract import Audit, on_few_samples
from audit.measures.duality.block import DualityBlock
from audit.measures.fisher.block import NetworkFisher
from audit.measures.gap.block import FITTED
from audit.measures.sensitivity.block import NetworkSensitivity
from audit.measures.suite import Results
from audit.measures.workload import BACKWARD, DRAWN, DRAWS, SIGNED, Demand, Sampled, Workload, curvature_operations
from audit.network import dense_only
from audit.network.record import Record
from audit.report.blocks import Check, skipped, worst
from audit.report.conduct import PlannedStage
from audit.settings import Settings
from audit.settings.limits import let_go

CANCELLED = 0.1  # at a minimum the samples' gradients cancel; noise alone leaves about 1/√n of a typical one


def run_checks(audit: Audit, results: Results) -> list[Check]:
    """Every check and assumption, in the order of the report; without a plan for more, those that cost nothing."""
    if audit.plan.stage("checks").form == "skipped":
        return [*check_reports(results), *check_assumptions(audit, results)]
    return [
        *check_reports(results),
        *check_rescaling(audit),
        check_curvature(audit),
        check_determinism(audit),
        check_single_precision(audit),
        *check_assumptions(audit, results),
    ]


# What they take, for the plan of an audit.


REPEATED = 1000  # forward passes of the self-checks, in both precisions
CHECKED = 64  # samples that the exact self-checks look at
PROBED = 35.0  # passes from a layer on: what its second derivatives take in the checks of a curved network's sample


def operations(work: Workload, _settings: Settings) -> float:
    """Of the curvature on a few samples, four times over, and of the forward passes."""
    return 4 * min(1.0, CHECKED / work.samples) * curvature_operations(work) + REPEATED * work.operations


def of_a_sample(work: Workload) -> float:
    """Operations of its backward passes and second derivatives."""
    behind = 4 * min(work.outputs, SIGNED) * BACKWARD + PROBED * work.curved * len(work.layers)
    return 4 * work.operations + behind * work.behind


def beside(_stage: PlannedStage, work: Workload) -> float:
    """Operations of the random signs that the sampled curvature is checked by."""
    return DRAWS / 2 * DRAWN * work.weights_over_tokens


DEMAND = Demand(operations, sampled=Sampled(share=0.05, least=2, most=8, each=of_a_sample), beside=beside, quick=False)


# What the papers assume of a model: read off the results, and no fault where it does not hold.


def check_assumptions(audit: Audit, results: Results) -> list[Check]:
    """Interpolation, a vanishing gradient, a piecewise-linear tail, independent gradients."""
    return [_interpolation(audit), _gradient(audit), _tails(results), _rank(results)]


def _assumption(id: str, title: str, value: float, limit: float, words: str, affects: list[str]) -> Check:
    """It holds where `value` is no larger than `limit`."""
    return Check(
        id=id,
        kind="assumption",
        title=title,
        status="passed" if value <= limit else "failed",
        value=float(value),
        tolerance=float(limit),
        explanation=words,
        affects=affects,
    )


def _interpolation(audit: Audit) -> Check:
    title, affects = "The model fits its train data", ["fisher", "flatness", "sensitivity"]
    if audit.train_outcome.wrong is None:
        why = "Regression has no natural mark of a perfect fit; see the train loss."
        return skipped("interpolation", title, why, affects, kind="assumption")
    unit = "samples" if audit.train_outcome.asked is None else "positions"
    words = f"Share of train {unit} answered wrongly. The papers study models that fit (nearly) all of them."
    return _assumption("interpolation", title, audit.train_outcome.error, FITTED, words, affects)


def _gradient(audit: Audit) -> Check:
    """‖mean g_i‖ over √(mean ‖g_i‖²), g_i the gradient of sample i's loss in all dense weights."""
    if audit.sampled is not None and not audit.plan.is_exact("flatness"):
        square_of_mean, mean_of_square, n = *audit.sampled.gradients, audit.sampled.sizes.samples
    else:
        square_of_mean, mean_of_square, n = *_gradient_squares(audit), len(audit.train)
    ratio = math.sqrt(square_of_mean / mean_of_square) if mean_of_square > 0 else 0.0
    words = (
        "Length of the mean gradient in units of a typical sample's. Near a minimum the samples' gradients cancel; "
        "far from one, curvature says little about the model that training would reach."
    )
    limit = max(CANCELLED, 2 / math.sqrt(n))
    title, affects = "The model is near a minimum", ["flatness", "fisher", "duality"]
    if audit.plan.quick:  # which looks at no other layer
        title = "The last dense layer is near a minimum"
    return _assumption("gradient-small", title, ratio, limit, words, affects)


def _gradient_squares(audit: Audit) -> tuple[float, float]:
    """‖mean g_i‖² and mean ‖g_i‖², over all train samples."""
    mean_of_square = 0.0
    n = len(audit.train)
    sums = {layer.name: audit.weight(layer) * 0 for layer in dense_only(audit.layers)}
    for record in audit.train:
        for name in sums:
            x, delta = record.layers[name].x.double(), record.layers[name].delta
            sums[name] += delta.flatten(0, 1).T @ x.flatten(0, 1)
            squares = (delta @ delta.mT) * (x @ x.mT)  # ‖Σ_t δ_t x_tᵀ‖² = Σ_{tt′} (δ_t·δ_t′)(x_t·x_t′)
            mean_of_square += float(squares.sum()) / n
    return sum(float((total / n).square().sum()) for total in sums.values()), mean_of_square


def _tails(results: Results) -> Check:
    curved = [name for name, tail in results.tails.items() if tail.curved]
    named = f" Curved behind: {', '.join(curved)}." if curved else ""
    exact = all(tail.curvature == "exact" for tail in results.tails.values())
    kept = "Their Hessian is exact all the same" if exact else "Of their Hessian the Gauss–Newton part is measured"
    words = (
        f"Layers behind which the network is curved. {kept}; but S(θ) is then no longer the trace of a Hessian.{named}"
    )
    title = "The network is piecewise linear behind each dense layer"
    return _assumption("piecewise-linear", title, len(curved), 0, words, ["sensitivity"])


def _rank(results: Results) -> Check:
    title, affects = "The samples' gradients are linearly independent", ["fisher"]
    measured = results.measurements.get("fisher")
    network = None if measured is None else measured.network
    if not isinstance(network, NetworkFisher) or network.subsets == 0:
        return skipped("gram-full-rank", title, "There is no Fisher determinant here.", affects, kind="assumption")
    singular = network.singular_subsets
    words = f"Subsets, of {network.subsets}, whose determinant is zero; they are left out of γ̂."
    return _assumption("gram-full-rank", title, singular, 0, words, affects)


# Checks that the measures made on their way: read off their blocks.


CLOSES = 1e-9


def check_reports(results: Results) -> list[Check]:
    """Duality, decomposition and bounds."""
    return [*_duality(results), _bounds(results)]


def _duality(results: Results) -> list[Check]:
    exact = ("duality-exact", "A test sample's input change equals its weight change")
    closes = ("decomposition-closes", "The directions' contributions add up to the measured gap")
    orthonormal = ("basis-orthonormal", "The directions are orthogonal and of unit length")
    measured = results.measurements.get("duality")
    blocks: dict[str, DualityBlock] = {} if measured is None else dict(measured.layers)
    kept = {name: block for name, block in blocks.items() if block.skipped is None and block.gap is not None}
    if not kept:
        why = "No layer has an activity–weight decomposition; the section on where the gap comes from says why."
        return [skipped(*which, why, ["duality"]) for which in (exact, closes, orthonormal)]
    equal = {name: block for name, block in kept.items() if not block.approximate}
    closing = max(_closing_error(block) for block in kept.values())
    off = max(block.basis_orthonormality or 0.0 for block in kept.values())
    layers = _counted(len(kept))
    return [
        _exactness(*exact, equal, [name for name in kept if name not in equal]),
        worst(
            *closes, closing, CLOSES, f"Largest relative distance of the sum from the gap, over {layers}.", ["duality"]
        ),
        worst(*orthonormal, off, 1e-8, f"Largest entry of |EᵀE − 1| over {layers}.", ["duality"]),
    ]


def _exactness(id: str, title: str, equal: dict[str, DualityBlock], approximate: list[str]) -> Check:
    """The equality where it is claimed; layers with a least-squares fit are named, not judged."""
    named = f" Only approximate, and not judged here: {', '.join(approximate)}." if approximate else ""
    if not equal:
        return skipped(id, title, f"No decomposed layer claims an equality.{named}", ["duality"])
    judged = max(equal.values(), key=lambda block: (block.max_residual or 0.0) / (block.tolerance or 1e-9))
    words = f"Largest |l(w*, x) − l(w, x′)| over all pairs of {_counted(len(equal))}.{named}"
    return worst(id, title, judged.max_residual or 0.0, judged.tolerance or 1e-9, words, ["duality"])


def _counted(layers: int) -> str:
    return f"the {layers} decomposed layers" if layers > 1 else "the decomposed layer"


def _closing_error(block: DualityBlock) -> float:
    rest = block.remainder.contribution if block.remainder is not None else 0.0
    terms = [*block.contribution, rest, block.mean_term or 0.0, block.target_term or 0.0]
    total, scale = sum(terms), sum(map(abs, terms))
    return abs(total - (block.gap or 0.0)) / max(scale, 1e-300)


def _bounds(results: Results) -> Check:
    which = ("bounds-hold", "Every bound of sensitivity and volume holds")
    measured = results.measurements.get("sensitivity")
    network = None if measured is None else measured.network
    judged = (
        [bound for bound in network.bounds if bound.holds is not None]
        if isinstance(network, NetworkSensitivity)
        else []
    )
    if not judged:
        return skipped(*which, "No bound could be judged on this network; the bounds table says why.", ["sensitivity"])
    broken = [bound.id for bound in judged if not bound.holds]
    named = f" Broken: {', '.join(broken)}." if broken else ""
    words = f"Bounds whose left side exceeds the right, of {len(judged)} that could be judged.{named}"
    return worst(*which, len(broken), 0, words, ["sensitivity"])


# Does the same come out twice, and does it come out in single precision too?


MORE = 256  # samples whose scores are compared in both precisions
EVERYTHING = [entry.key for entry in CATALOGUE if entry.key != "hygiene"]  # which looks at the data


def check_determinism(audit: Audit) -> Check:
    """A second capture of the same samples must give the same bits."""
    few = on_few_samples(audit)
    first, second = (list(few.capture.full(few.train.x, few.train.y)) for _ in range(2))
    different = sum(not _same_bits(a, b) for a, b in zip(first, second, strict=True))
    words = "Chunks whose scores or Jacobians differ in any bit when the same samples are captured again."
    return worst("determinism", "The same samples give the same numbers twice", different, 0, words, EVERYTHING)


def check_single_precision(audit: Audit) -> Check:
    """The scores in float32, as the model would run in production, against float64."""
    few = on_few_samples(audit, most=MORE)
    precise, rough = (_scores_in(dtype, few) for dtype in (torch.float64, torch.float32))
    let_go(few.model.weights)
    scale = max(float(precise.abs().max()), 1e-300)
    words = (
        f"Largest difference of a score between float32 and float64 over {len(few.train)} samples, relative to the "
        "largest score."
    )
    title = "Single and double precision agree"
    value = float((precise - rough).abs().max()) / scale
    return worst("single-precision", title, value, 1e-3, words, EVERYTHING)


def _scores_in(dtype: torch.dtype, few: Audit) -> Tensor:
    """Scores [n, C] of the network as it is, or of a copy in another precision."""
    own = next(few.network.parameters()).dtype == dtype
    capture = few.capture if own else replace(few.capture, network=copy.deepcopy(few.network).to(dtype))
    return torch.cat([record.f for record in capture.forward(few.train.x, few.train.y)])


def _same_bits(a: Record, b: Record) -> bool:
    layers = all(torch.equal(a.layers[name].J, b.layers[name].J) for name in a.layers)
    return torch.equal(a.f, b.f) and layers
