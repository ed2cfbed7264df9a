"""Are there units that never act?"""

from __future__ import annotations

from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import layer as called
from audit.findings.sentences import listed
from audit.measures.report import LayerReport, Report
from audit.report.numbers import number, share

RARE = 0.01  # of the train samples


def find(report: Report) -> Observation | None:
    """Speaks where a unit moves no score on any train sample."""
    layers = [(place, layer) for place, layer in enumerate(report.layers) if _units(layer)]
    units = sum(len(_units(layer)) for _, layer in layers)
    silent = {place: _units(layer).count(0) for place, layer in layers if 0 in _units(layer)}
    if not silent:
        return None
    rare = sum(0 < count < RARE * layer.samples for _, layer in layers for count in _units(layer))
    dead, where = sum(silent.values()), [f"{called(report.layers[place].name)} ({silent[place]})" for place in silent]
    seldom = f" {number(rare)} more {'does' if rare == 1 else 'do'} on fewer than 1 % of them." if rare else ""
    return Observation(
        level="note",
        title=f"{number(dead)} of {number(units)} units never {'acts' if dead == 1 else 'act'} on the train samples",
        explanation=(
            f"A small change of their value moves no {_score(report)} on any of {number(report.layers[0].samples)} "
            f"train samples: in {listed(where)}.{seldom} Behind a ReLU such units ({share(dead / units)} of all) are "
            "off throughout; behind an activation with a ceiling (ReLU6, clip) they may also be stuck at it, or jump "
            "between both ends. That alone is no fault."
        ),
        advice=(
            "A unit whose value is the same on all samples can be folded into the bias of the next layer, which makes "
            "the model smaller. If there are many, a smaller learning rate at the start, another initialisation or a "
            "leaky activation may keep units alive in the next training."
        ),
        evidence=tuple(f"layers[{place}].sensitivity.units_active" for place in silent),
    )


def _score(report: Report) -> str:
    return "output" if report.model.task == "regression" else "score"


def _units(layer: LayerReport) -> list[int]:
    return layer.sensitivity.units_active if layer.sensitivity is not None else []


RULE = FindingRule(
    id="dead-units",
    title="Dead units",
    meaning="Whether there are units of the measured layers of which no small change moves a score on a train sample.",
    conditions=(
        "note: an output of a layer of which no change moves a score on any train sample captured (units_active = 0); "
        "those that do on fewer than 1 % are counted beside them"
    ),
    source="Counting derivatives that are exactly zero, ∂f/∂z_j = 0.",
    origin=f"Zero for dead units; 1 % for rare ones is a convention. {NO_LIMIT}",
    cannot_tell=(
        "Whether they act on other data, and whether a unit that sits at an end of its activation always sits at the "
        "same one. Smooth activations (tanh, GELU) count only where their slope is rounded to zero, as that of tanh at "
        "20."
    ),
    find=find,
    rests_on=("sensitivity",),
)
