"""What the theory can say here: sensitivity, volume, units that never act, the PAC-Bayes bound."""

from __future__ import annotations

import math

from audit.findings.beside import usual
from audit.findings.rule import NO_LIMIT, FindingRule, Observation, listed, scores, within
from audit.findings.rule import layer as called
from audit.measures import LayerReport, Report
from audit.report import Level
from audit.report.numbers import number, percent, share

# How strongly can a small change of the input move the answer?


S = "network.sensitivity"
BOUND = "prop-3.8"
WHOLE = "the model's input"  # what the bound is about, unless no dense layer is fed by it


def find_sensitive(report: Report) -> Observation | None:
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


SENSITIVE = FindingRule(
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
    find=find_sensitive,
    rests_on=("sensitivity",),
)


# Does the network collapse or blow up small regions around the samples?


LARGEST = 700.0  # beyond it e^x leaves the range of numbers


def find_volume(report: Report) -> Observation | None:
    """Collapsed on all samples, on some, or how far a small region is stretched."""
    block = report.network.sensitivity
    if block is None or not report.layers or report.model.outputs < 2:
        return None
    centred, dimensions = _space(report)
    flat, samples = getattr(block, f"rank_deficient_samples{centred}"), report.layers[0].samples
    if flat and samples:
        return _collapsed(report, flat, samples)
    log_volume = getattr(block, f"mean_log_volume{centred}")
    if log_volume is None or abs(log_volume / dimensions) > LARGEST:
        return None
    factor = math.exp(log_volume / dimensions)
    stretched, scale = factor > 1, "on how sure the model is" if centred else "on those of the targets"
    return Observation(
        level="note",
        title=f"Small changes of the input come out {'larger' if stretched else 'smaller'} in the {scores(report)}",
        explanation=(
            f"In {_typical(dimensions)} in which the answer can change, a small change of the input comes out "
            f"{number(factor)} times as large. The number depends on the units of the input and {scale}, so that "
            f"nobody can say from it alone whether it is high or low. {usual(report, f'mean_log_volume{centred}')}"
        ),
        advice="Use it to compare models that were trained on the same data to the same train loss; for nothing else.",
        evidence=(f"{S}.mean_log_volume{centred}", f"{S}.mean_log_volume{centred}_ci95", "model.outputs"),
    )


def _space(report: Report) -> tuple[str, int]:
    """Which volume is about the answer, and its dimensions: a shift of all scores changes targets, but no class."""
    outputs = report.model.outputs
    return ("", outputs) if report.model.task == "regression" else ("_centred", outputs - 1)


def _typical(dimensions: int) -> str:
    return "the one direction" if dimensions == 1 else f"a typical one of the {number(dimensions)} directions"


def _collapsed(report: Report, flat: int, samples: int) -> Observation:
    centred, dimensions = _space(report)
    everywhere = flat >= samples
    narrow = [layer.name for layer in report.layers if min(layer.in_features, layer.out_features) < dimensions]
    lost = "classes then cannot be told apart" if centred else "targets then only change together"
    level: Level = "watch" if everywhere and not narrow else "note"
    which = "all" if everywhere else f"{percent(flat / samples)} of the"
    built = (
        f" Layer {narrow[0]} has fewer inputs or outputs than that, so the architecture itself allows no more."
        if narrow
        else ""
    )
    return Observation(
        level=level,
        title=f"Around {which} train samples the answer cannot move in every direction",
        explanation=(
            f"On {number(flat)} of {number(samples)} train samples a small change of the input reaches fewer than the "
            f"{number(dimensions)} directions in which the {scores(report)} could differ: the local volume is zero "
            f"there.{built} Some {lost} by small changes, which may be just what the model has learnt."
        ),
        advice=(
            "Look for units that never act and for classes that the model never answers; both can look like this."
            if centred
            else "Look for units that never act and for targets that follow from each other; both can look like this."
        ),
        evidence=(f"{S}.rank_deficient_samples{centred}", f"{S}.mean_rank", "layers[0].samples", "model.outputs"),
    )


VOLUME = FindingRule(
    id="volume",
    title="Local volume",
    meaning="Whether the network collapses, shrinks or stretches small regions around the train samples.",
    conditions=(
        "watch: on every train sample the centred scores' Jacobian has a rank below C−1 though each measured layer is "
        "wide enough; note: on some; else, as a note, the mean stretch e^(mean_log_volume_centred / (C−1)). "
        "Regression: the scores as they are, with their number in place of C−1"
    ),
    source="A simple connection from loss flatness to compressed representations in neural networks (2024), Eq. 7",
    origin=f"Rank is counted, not judged. For the stretch: {NO_LIMIT[0].lower()}{NO_LIMIT[1:]}",
    cannot_tell="Whether a compressed representation is good for unseen data: the source study finds both.",
    find=find_volume,
    rests_on=("sensitivity",),
)


# Are there units that never act?


RARE = 0.01  # of the train samples


def find_dead_units(report: Report) -> Observation | None:
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


DEAD_UNITS = FindingRule(
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
    find=find_dead_units,
    rests_on=("sensitivity",),
)


# Does the PAC-Bayes bound say anything about this model?


P = "network.fisher.pac_bayes"


def find_pac_bayes(report: Report) -> Observation | None:
    """Speaks where the bound is broken by the test loss, or says nothing."""
    fisher = report.network.fisher
    bound = None if fisher is None else fisher.pac_bayes
    if bound is None or not (bound.exceeded or bound.vacuous):
        return None
    if bound.exceeded:
        title = "The PAC-Bayes bound does not hold here and must not be quoted as a promise"
        seen = f"The measured test loss of {number(report.gap.test_loss)} is above the bound of {number(bound.bound)}"
    else:
        title = "The PAC-Bayes bound says nothing about this model"
        seen = f"The bound of {number(bound.bound)} is above the loss of guessing, which any model meets"
    return Observation(
        level="note",
        title=title,
        explanation=(
            f"{seen}. The theorem is for a bounded loss and a strict minimum, and it leaves the size of a "
            "neighbourhood open, which had to be chosen. That is a limit of the theorem, not a fault of the model."
        ),
        advice="Quote the measured gap with its interval instead.",
        evidence=(f"{P}.bound", f"{P}.exceeded", f"{P}.vacuous", f"{P}.volume", f"{P}.delta", "gap.test_loss"),
    )


PAC_BAYES = FindingRule(
    id="pac-bayes",
    title="PAC-Bayes bound",
    meaning="Whether the bound from the Fisher information is worth quoting for this model.",
    conditions="note: the test loss is above the bound (exceeded), or the bound above the loss of guessing (vacuous)",
    source="Jia & Su, Information-theoretic local minima characterization and regularization (2020), Theorem 1",
    origin="The bound itself, and ln C: natural marks.",
    cannot_tell="Anything about a model for which the bound holds: the volume in it is a free choice.",
    find=find_pac_bayes,
    rests_on=("gap", "fisher"),
)
