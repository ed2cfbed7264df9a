"""What the sections say in words about the measures: true for negative gaps, missing shares and failed checks alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from audit.findings.rule import layer as called
from audit.findings.rule import sentence
from audit.measures import LayerReport, Report
from audit.measures.catalogue import CATALOGUE, KEYS_OF_LAYERS
from audit.measures.duality.block import DualityBlock, FlatPart, GapOverPairs, SharpPart
from audit.measures.fisher.block import PacBayes
from audit.measures.sensitivity.block import Bound, NetworkSensitivity
from audit.report.blocks import Check
from audit.report.conduct import PlannedStage
from audit.report.numbers import interval, number, share

Row = TypeVar("Row")
SECTIONS = {entry.key: entry.title for entry in CATALOGUE}
NO_INTERVAL = "no interval: too few pairs, or their sum is not surely above zero, so do not rest anything on this share"
STATUS = {"passed": "Passed", "failed": "Failed", "skipped": "Not possible here"}
HELD = {"passed": "Holds", "failed": "Does not hold", "skipped": "Cannot be judged"}
BOUNDS = {
    "prop-3.4": "Volume at the first layer, by sharpness",
    "prop-3.6": "Volume over all layers, by sharpness",
    "prop-3.8": "Sensitivity to the input, by sharpness",
    "prop-3.10": "Sensitivity over all layers, by sharpness",
    "prop-e.4": "Unit-free sensitivity, by adaptive sharpness",
    "eq-35": "Weighed sensitivity over all layers, by matrix-normalised sharpness",
}
CHAIN = (
    ("A", "the sensitivity itself"),
    ("B", "bounded sample by sample"),
    ("C", "averaged over samples"),
    ("D", "all parameters: the bound"),
)


def bound_name(bound: Bound) -> str:
    """What a bound is called; which input it is about is said where that is not the model's own.

    >>> bound = Bound(id="prop-3.8", left=1, right=2, log=False, holds=True, tightness=0.5, about="the input of f1, …")
    >>> bound_name(bound)
    'Sensitivity to the input of f1, by sharpness'
    """
    name, about = BOUNDS.get(bound.id, bound.id), _input(bound.about)
    return name.replace("to the input,", f"to {about},") if about else name


def chain_steps(network: NetworkSensitivity) -> list[tuple[str, float]]:
    """The steps from the sensitivity to its bound, named, with the input that they are about."""
    about = _input(network.bounds_input)
    first = f"at {about}" if about else CHAIN[0][1]
    names = dict(CHAIN) | {"A": first}
    return [(f"{letter}: {words}", getattr(network.chain, letter)) for letter, words in names.items()]


def _input(about: str) -> str:
    """The input of which layer is meant; empty for the model's own."""
    return about.split(",")[0] if about.startswith("the input of ") else ""


def failed(report: Report, section: str) -> list[Check]:
    """Checks and assumptions that a section rests on and that did not hold."""
    return [check for check in report.checks if check.status == "failed" and section in check.affects]


def decomposed(report: Report) -> list[LayerReport]:
    """Layers whose part in the gap was found."""
    return [layer for layer in report.layers if layer.duality and layer.duality.sharp]


def not_decomposed(report: Report) -> list[tuple[str, str]]:
    """Name and reason of the other layers."""
    blocks = [(layer.name, layer.duality) for layer in report.layers]
    return [
        (name, "not measured" if block is None else block.skipped or "not measured")
        for name, block in blocks
        if not (block and block.sharp)
    ]


def _split(layer: LayerReport) -> tuple[DualityBlock, SharpPart, FlatPart]:
    """The sharp and the flat part of a layer that is among the `decomposed`."""
    block = layer.duality
    assert block is not None and block.sharp is not None and block.flat is not None
    return block, block.sharp, block.flat


def pairs_sentence(report: Report) -> str:
    """What the gap over pairs is, and how it stands to the gap on the first page."""
    over_pairs, gap = report.network.duality, report.gap.loss_gap
    assert over_pairs is not None and over_pairs.gap is not None  # the page asks only then
    found = over_pairs.gap
    direction = "more" if found > 0 else "less" if found < 0 else "neither more nor less"
    amount = f"{number(abs(found))} {direction}" if found else direction
    asked, tests = over_pairs.asked, report.data.test.samples
    some = f" (of {number(asked)} test samples, drawn at random)" if asked and asked < tests else ""
    return (
        f"On average over {number(over_pairs.pairs)} pairs{some} a test sample costs {amount} than its train partner. "
        f"This gap over pairs need not equal the loss gap of {number(gap)}: it counts only those train samples that "
        "are nearest to a test sample."
    )


def split_sentence(layer: LayerReport) -> str:
    """How much comes from the sharp directions, and whether there is a border at all."""
    block, sharp, flat = _split(layer)
    ci = block.ci95
    steepest = f"the {number(sharp.count)} steepest directions" if sharp.count != 1 else "the steepest direction"
    if sharp.share is None:
        reason = f" ({block.share_skipped})" if block.share_skipped else ""
        what = (
            f"{steepest} and all the others add {number(sharp.contribution)} and {number(flat.contribution)}; "
            f"shares would mislead here{reason}"
        )
    else:
        within = f"95 % interval {interval(ci.sharp_share, 'share')}" if ci.sharp_share else NO_INTERVAL
        what = f"{share(sharp.share)} ({within}) comes from {steepest}, {share(flat.share)} from all the others"
    return f"{what}. {_border(sharp)}"


def split_summary(report: Report, most: int = 6) -> str:
    """The split of the first layers in one line, for a comment."""
    over_pairs, layers = report.network.duality, decomposed(report)
    if over_pairs is None:
        return "not part of this audit."
    if over_pairs.gap is None or not layers:
        return "no layer's part could be found; report.json says why."
    parts = []
    for layer in layers[:most]:
        _, sharp, flat = _split(layer)
        sizes = (sharp.contribution, flat.contribution)
        one, other = map(number, sizes) if sharp.share is None else map(share, (sharp.share, flat.share))
        border = "" if sharp.elbow else ", no clear border"
        parts.append(f"{called(layer.name)}: {one} sharp, {other} flat{border}")
    rest = [f"{number(len(layers) - most)} more layers in report.json"] if len(layers) > most else []
    return f"{'; '.join(parts + rest)}."


def checks_summary(report: Report, kind: str) -> str:
    """How many checks, or assumptions, failed, and which, in one line."""
    every = [check for check in report.checks if check.kind == kind]
    own = [check for check in every if check.status != "skipped"]
    broken = [check.title for check in own if check.status == "failed"]
    if not every:
        return "not part of this audit."
    untold = f"; {number(len(every) - len(own))} could not be looked at" if len(own) < len(every) else ""
    if not broken:
        verdict = "failed" if kind == "check" else "found broken"
        return f"none of {number(len(own))} {verdict}{untold}."
    verdict = "failed" if kind == "check" else "not met"
    return f"{number(len(broken))} of {number(len(own))} {verdict}: {'; '.join(broken)}{untold}."


def _border(sharp: SharpPart) -> str:
    if sharp.elbow:
        drop = "to zero" if sharp.ratio is None else f"by a factor of {number(sharp.ratio)}"
        return f"Behind {'it' if sharp.count == 1 else 'them'} the steepness drops {drop}: a clear border."
    note = sharp.note or "there is no clear border"
    return f"{note[0].upper()}{note[1:]}."


def samples_sentence(over_pairs: GapOverPairs, shown: int) -> str:
    """How much of the whole difference sits in the samples that are shown."""
    listed = len(over_pairs.samples)
    part = over_pairs.samples_share
    partners = "Each test sample is held against the train sample most like it, its partner."
    if part is None:
        return f"{partners} Test costs no more than train, so no sample can be said to carry a share of it."
    more = " (more than all of it, since other test samples cost less than their partners)" if part > 1 else ""
    which = f"the first {shown} are shown" if shown < listed else "all are shown"
    return (
        f"{partners} The {number(listed)} that cost most above it, of {number(over_pairs.pairs)}, make up "
        f"{share(part)} of the whole difference{more}; {which}."
    )


def ledger(report: Report) -> Iterator[tuple[str, list[str], list[str]]]:
    """For every layer with weights: its name, what was measured of it, and what was not, with the reason."""
    for layer in report.layers:
        measured, missing = [], []
        for entry in (entry for entry in CATALOGUE if entry.key in KEYS_OF_LAYERS):
            block = getattr(layer, entry.key)
            left_out = report.plan.stage(entry.key).why or "not part of this audit"
            reason = left_out if block is None else block.skipped
            in_part = entry.in_part if block is not None else None
            if in_part or not reason:
                measured.append(entry.title)
            if reason:
                missing.append(f"{in_part[1] if in_part else entry.title}: {reason}")
        yield layer.name, measured, missing
    for other in report.passed_by:
        yield other.name, [], [other.why]


def pac_bayes_sentence(bound: PacBayes, test_loss: float) -> str:
    """What the bound is worth here."""
    if bound.exceeded:
        verdict = (
            f"The measured test loss of {number(test_loss)} is above it: the theorem's assumptions do not hold here, "
            "and the bound must not be quoted as a promise"
        )
    elif bound.vacuous:
        verdict = "It exceeds the loss of guessing, so it says nothing about this model"
    else:
        verdict = f"The measured test loss of {number(test_loss)} is below it"
    return f"The bound is {number(bound.bound)}. {verdict}."


def largest(rows: Sequence[Row], key: str, most: int) -> list[Row]:
    """The rows with the largest value of a field, largest first."""
    return sorted(rows, key=attrgetter(key), reverse=True)[:most]


# Plan and fact: what was measured how, how long it should have taken, and how long it did.


HOW = {"exact": "exact", "sampled": "sampled", "skipped": "left out"}
TITLES = {
    **{entry.key: entry.title for entry in CATALOGUE},
    "forward": "Losses and errors",
    "capture": "Capture pass, shared by the exact measures",
    "checks": "Self-checks",
}
FURTHER = "Self-checks that need a pass of their own"  # the others are read off the measures' results in any audit


@dataclass(frozen=True)
class StageRow:
    """A stage of the audit: as it was planned, and as it went."""

    title: str
    how: str
    samples: str
    predicted: float | None
    taken: float | None
    why: str


def stages(report: Report) -> list[StageRow]:
    """Every stage of the plan, and all together; empty for a report without one."""
    rows = [_stage_row(report, stage) for stage in report.plan.stages]
    if not rows:
        return []
    captured = _taken(report, "capture")
    planned = any(stage.name == "capture" for stage in report.plan.stages)
    if captured is not None and report.plan.is_exact("flatness") and not planned:
        samples = report.plan.stage("capture").looks_at(report.data.train.samples)
        rows.insert(1, StageRow(TITLES["capture"], "exact", samples, None, captured, ""))
    taken = [row.taken for row in rows if row.taken is not None]
    return [*rows, StageRow("All of these", "", "", report.plan.seconds, sum(taken) if taken else None, "")]


def measured_how(report: Report) -> str:
    """The stages that did not look at all samples, in one sentence."""
    rows = [row for row in stages(report) if row.how in ("sampled", "left out")]
    parts = [f"{row.title} {row.how}{f' on {row.samples}' if row.how == 'sampled' else ''}" for row in rows]
    return f"{'; '.join(parts)}; everything else on all train samples."


def _stage_row(report: Report, stage: PlannedStage) -> StageRow:
    done = stage.form != "skipped"
    return StageRow(
        title=FURTHER if stage.name == "checks" and not done and report.checks else TITLES.get(stage.name, stage.name),
        how=HOW[stage.form],
        samples=stage.looks_at(report.data.train.samples),
        predicted=stage.seconds if done else None,
        taken=_taken(report, stage.name) if done else None,
        why=sentence(stage.why) if stage.why else "",
    )


def _taken(report: Report, stage: str) -> float | None:
    """Seconds of a stage."""
    measures = report.timings.get("measures")
    spent = measures.get(stage) if isinstance(measures, dict) and stage in measures else report.timings.get(stage)
    return spent if isinstance(spent, (int, float)) else None
