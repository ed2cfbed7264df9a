"""Are there units that never act?"""

from __future__ import annotations

from audit.findings.rule import NO_LIMIT, Rule, Verdict
from audit.findings.words import layer as called
from audit.findings.words import listed
from audit.numbers import number, share
from audit.report import LayerReport, Report

RARE = 0.01  # of the train samples


def find(report: Report) -> Verdict | None:
    """Speaks where a unit moves no score on any train sample."""
    layers = [(place, layer) for place, layer in enumerate(report.layers) if _units(layer)]
    units = sum(len(_units(layer)) for _, layer in layers)
    silent = {place: _units(layer).count(0) for place, layer in layers if 0 in _units(layer)}
    if not silent:
        return None
    rare = sum(0 < count < RARE * layer.samples for _, layer in layers for count in _units(layer))
    dead, where = sum(silent.values()), [f"{called(report.layers[place].name)} ({silent[place]})" for place in silent]
    seldom = f" {number(rare)} more {'does' if rare == 1 else 'do'} on fewer than 1 % of them." if rare else ""
    return Verdict(
        level="note",
        title=f"{number(dead)} of {number(units)} units never {'acts' if dead == 1 else 'act'} on the train samples",
        explanation=(
            f"A change of their value moves no score on any of {number(report.layers[0].samples)} train samples: in "
            f"{listed(where)}.{seldom} Such units ({share(dead / units)} of all) are capacity that is not used; the "
            "model works without them, and that alone is no fault."
        ),
        advice=(
            "The model can be made smaller by leaving them out. If there are many, a smaller learning rate at the "
            "start, another initialisation or a leaky activation keeps units alive in the next training."
        ),
        evidence=tuple(f"layers[{place}].sensitivity.units_active" for place in silent),
    )


def _units(layer: LayerReport) -> list[int]:
    return layer.sensitivity.units_active if layer.sensitivity is not None else []


RULE = Rule(
    id="dead-units",
    title="Dead units",
    meaning="Whether units of the measured layers take no part in any answer to the train samples.",
    conditions=(
        "note: an output of a layer of which no change moves a score on any train sample captured (units_active = 0); "
        "those that do on fewer than 1 % are counted beside them"
    ),
    source="Counting derivatives that are exactly zero, ∂f/∂z_j = 0.",
    origin=f"Zero for dead units; 1 % for rare ones is a convention. {NO_LIMIT}",
    cannot_tell="Whether they act on other data. Smooth activations (tanh, GELU) never count as dead, however small.",
    find=find,
    rests_on=("sensitivity",),
)
