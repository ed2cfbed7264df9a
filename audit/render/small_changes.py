"""What the page says about small changes of inputs and weights, and about what the theory foretold of them."""

from __future__ import annotations

from audit.findings.rule import layer as called
from audit.measures.consequences.block import Consequence, Consequences, Theory
from audit.report.numbers import interval, number, percent, points, share

LARGEST = 0.05  # size of the changes that stand for a layer
NUMBERS = {
    "mls": ("sensitivity.mls", "MLS"),
    "sharpness": ("sensitivity.sharpness", "S(θ)"),
    "kappa_tau": ("flatness.kappa_tau", "κ_τ"),
    "rho_sigma": ("flatness.rho_sigma", "ρ_σ"),
}
QUANTITIES = {
    "score_change": "change of the scores",
    "score_change_rms": "change of the scores, root mean square",
    "loss_change": "rise of the loss",
}


def name(change: Consequence) -> str:
    """A change as a row of a table calls it."""
    size = "" if change.size is None else share(change.size)
    return {
        "input-noise": f"Noise of {size} of the spread",
        "input-worst": f"Worst change of {size}",
        "weights-rounded": "Weights in 8 bits",
        "weights-noise": f"{called(change.layer or '')}: weights off by {size}",
        "neurons-noise": f"{called(change.layer or '')}: neurons off by {size}",
    }[change.kind]


def short_name(change: Consequence) -> str:
    """… and a picture."""
    size = "" if change.size is None else share(change.size)
    if change.layer is not None:
        what = "weights" if change.kind == "weights-noise" else "neurons"
        return f"{called(change.layer)} {what} {size}"
    return {"input-noise": f"noise {size}", "input-worst": f"worst {size}"}.get(change.kind, "8-bit weights")


def whole(block: Consequences) -> list[Consequence]:
    """Changes of the input and of all weights."""
    return [change for change in block.changes if change.layer is None]


def of_layers(block: Consequences) -> list[Consequence]:
    """The largest random change of each layer's weights."""
    return [change for change in block.changes if change.kind == "weights-noise" and change.size == LARGEST]


def by_layer(block: Consequences) -> dict[str, list[Consequence]]:
    """All changes of each layer, in the order of the report."""
    found: dict[str, list[Consequence]] = {}
    for change in block.changes:
        if change.layer is not None:
            found.setdefault(change.layer, []).append(change)
    return found


def told(block: Consequences, most: int | None = None) -> list[Consequence]:
    """Changes that the theory speaks of: the largest of each kind; at most so many."""
    kinds = {(change.kind, change.layer): change for change in block.changes if change.theory is not None}
    return list(kinds.values())[:most]


def lead(block: Consequences) -> list[str]:
    """What a layman takes away, a sentence for each kind of change."""
    noise = [change for change in block.changes if change.kind == "input-noise"]
    others = [change for change in block.changes if change.kind in ("input-worst", "weights-rounded")]
    layers = of_layers(block)
    worst = max(layers, key=_cost, default=None)
    said = [_sentence(change, block) for change in (*noise[-1:], *others)]
    if worst is None:
        return said
    if _cost(worst) <= 0:
        return [*said, f"With the weights of {_any(layers)} off by {share(worst.size)} at random, it does no worse."]
    alone = f"With the weights of {called(worst.layer or '')}, the dense layer,"
    most = f"Of the dense layers, {called(worst.layer or '')} costs most: with its weights"
    what = f"{alone if len(layers) == 1 else most} off by {share(worst.size)} at random"
    return [*said, f"{what}, {_outcome(worst, block)}."]


def _any(layers: list[Consequence]) -> str:
    return called(layers[0].layer or "") if len(layers) == 1 else "any one dense layer"


def _cost(change: Consequence) -> float:
    """What a sentence tells of a change: wrong answers, or the loss where there are none."""
    return change.loss_change if change.error_change is None else change.error_change


def _sentence(change: Consequence, block: Consequences) -> str:
    what = {
        "input-noise": f"With random noise of {share(change.size)} of the spread of {block.changed_place}",
        "input-worst": (
            f"With the worst change of the length that noise of {share(change.size)} has, one step along the gradient"
        ),
        "weights-rounded": "With all weights rounded to 8 bits",
    }[change.kind]
    return f"{what}, {_outcome(change, block)}."


def _outcome(change: Consequence, block: Consequences) -> str:
    bounds = change.error_change_ci95 if change.error_change is not None else change.loss_change_ci95
    beyond = bounds is not None and (bounds[0] > 0 or bounds[1] < 0)
    chance = "" if beyond else ", which may be chance"
    if change.error is not None and change.error_change is not None:
        between = f", 95 % interval {interval(bounds, 'points')}" if bounds else ""
        return (
            f"it is wrong on {percent(change.error)} of the test samples instead of {percent(block.error)} "
            f"({points(change.error_change)}{between}){chance}"
        )
    between = f" (95 % interval {interval(bounds)})" if bounds else ""
    return (
        f"the typical error (RMSE) is {number(change.rmse)} instead of {number(block.rmse)}, and the loss changes by "
        f"{number(change.loss_change)}{between}{chance}"
    )


def card(theory: Theory) -> str:
    """Id of the card of the theory's number."""
    return NUMBERS[theory.number.rpartition(".")[2]][0]


def letter(theory: Theory) -> str:
    """The theory's number as papers write it."""
    return NUMBERS[theory.number.rpartition(".")[2]][1]


def verdict(change: Consequence) -> str:
    """How well the theory did, in plain words."""
    theory = change.theory
    assert theory is not None
    if theory.ratio is None:
        return f"Nothing was foretold: {theory.skipped or 'not measured'}."
    if theory.verdict == "as foretold":
        return f"As foretold{_allowed(change, theory)}."
    return {
        "less": "Less than foretold.",
        "more": "More than foretold: such changes reach beyond where the theory holds.",
    }.get(theory.verdict or "", "Cannot tell: the random draws differ too much from each other.")


def _allowed(change: Consequence, theory: Theory) -> str:
    """What ratios the number leaves open, where it does not say one."""
    if change.kind == "input-noise" and theory.foretold_most and theory.foretold:
        return f": from 0.8 to {number(theory.foretold_most / theory.foretold)} is allowed"
    return ": 1 would be the most" if change.kind == "input-worst" else ""
