"""How strongly can a small change of the input move the answer?"""

from __future__ import annotations

import math

from audit.findings.beside import usual
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import scores, within
from audit.measures.report import Report
from audit.report.numbers import number, share

S = "network.sensitivity"
BOUND = "prop-3.8"
WHOLE = "the model's input"  # what the bound is about, unless no dense layer is fed by it


def find(report: Report) -> Observation | None:
    """Describes; a number without a scale is not judged."""
    block = report.network.sensitivity
    if block is None or block.mls is None or block.normalized_mls is None or block.normalized_mls < 0:
        return None
    one_percent = math.sqrt(block.normalized_mls) / 100
    unit = "the target's units" if report.model.task == "regression" else "nats, in which 0.7 doubles the odds"
    places = [place for place, bound in enumerate(block.bounds) if bound.id == BOUND and bound.tightness is not None]
    return Observation(
        level="note",
        title=(
            f"The worst small change of the input, 1 % of its size, moves the {scores(report)} by about "
            f"{number(one_percent)}"
        ),
        explanation=(
            f"That is in {unit}, to first order, averaged over the train samples; a model that must react to details "
            f"needs it. For a change of length 1 it is {number(block.mls)}{within(block.mls_ci95)} on average."
            f"{_tight(report, places)} {usual(report, 'sensitivity.mls')}"
        ),
        advice=(
            "If your inputs are noisy, add noise of the size you expect and measure the error again; this number only "
            "says how far the worst direction reaches."
        ),
        evidence=(
            f"{S}.mls",
            f"{S}.mls_ci95",
            f"{S}.normalized_mls",
            *(f"{S}.bounds[{place}].{key}" for place in places for key in ("left", "right", "tightness")),
        ),
    )


def _tight(report: Report, places: list[int]) -> str:
    block = report.network.sensitivity
    if block is None or not places:
        return ""
    bound = block.bounds[places[0]]
    whole = bound.about == WHOLE
    own = "" if whole else f" For {bound.about.split(',')[0]} it is {number(bound.left)}."
    return (
        f"{own} The bound that the source study derives from the sharpness of the weights allows "
        f"{number(bound.right)}{'' if whole else ' there'}; {share(bound.tightness)} of it is used."
    )


RULE = FindingRule(
    id="sensitive-inputs",
    title="Sensitivity to the input",
    meaning="How far the worst small change of an input moves the scores, and how tight the bound by sharpness is.",
    conditions="note, wherever the scores can be differentiated by the input; 1 % of its size: √normalized_mls / 100",
    source=(
        "A simple connection from loss flatness to compressed representations in neural networks (2024), Definition "
        "3.7, Prop. 3.8, Definition F.1"
    ),
    origin=NO_LIMIT,
    cannot_tell="What changes of finite size do, and whether such changes occur in use.",
    find=find,
    rests_on=("sensitivity",),
)
