"""Could the gap be a matter of too little data?"""

from __future__ import annotations

from audit.findings.beside import effect, level_of
from audit.findings.conditions import broken_blocks, fits_train, gap_is_real, labels_in_doubt
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import some, unit, within
from audit.findings.steep_shares import hidden_steep_shares, spread_out
from audit.measures.gap.block import FITTED
from audit.measures.report import Report
from audit.report.numbers import number, share
from audit.report.twins import Curve

WORTHWHILE = 0.05  # of the error now, from which on a gain is worth a look


def find(report: Report) -> Observation | None:
    """From the learning curve of twins; else where the model fits train, fails more on test, and labels are fine."""
    if report.twins is not None and report.twins.curve is not None and report.twins.curve.change is not None:
        return _from_twins(report, report.twins.curve)
    if not (gap_is_real(report) and fits_train(report)) or labels_in_doubt(report):
        return None
    train, classes = report.data.train, report.data.classes or 0
    capped = f" ({number(train.samples)} of them used here)" if train.total > train.samples else ""
    each = f", about {number(round(train.total / classes))} a class," if classes and unit(report) == "sample" else ""
    return Observation(
        level="note",
        title="The model fits its train data and loses on new data: consistent with too little data",
        explanation=(
            f"{some(train.total, 'train sample')}{capped}{each} stand against "
            f"{some(report.model.parameters, 'parameter')}, and nothing here speaks against the labels."
            f"{_studied(report)} One model alone cannot show what more data would bring."
        ),
        advice=(
            "Train the same recipe on half of the train samples (`gen-audit twins` does): if the half then does "
            "clearly worse, more data is likely to pay."
        ),
        evidence=("data.train.samples", "data.train.total", "model.parameters", "gap.train_error", "gap.error_gap"),
    )


def _from_twins(report: Report, curve: Curve) -> Observation | None:
    """What twice the data would bring, off the learning curve."""
    change, now = curve.change or 0.0, curve.points[-1].test
    if curve.verdict != "helps":
        return None
    first, *_ = curve.points
    gain = f"{effect(report, change)}{within(curve.change_ci95, 'points' if _counted(report) else 'number')}"
    return Observation(
        level="watch" if -change >= WORTHWHILE * now else "note",
        title=f"More data like these would likely help: about {effect(report, change)} for twice as many",
        explanation=(
            f"Networks of this architecture have {level_of(report, first.test)} on test after training on "
            f"{some(first.train_samples, 'sample')}, and {level_of(report, now)} after "
            f"{number(curve.points[-1].train_samples)}. The curve, drawn on to twice as many, suggests {gain}."
        ),
        advice="Collect more samples of the same kind, those of the weakest class first.",
        evidence=("twins.curve.twice", "twins.curve.twice_ci95", "twins.curve.change", "twins.curve.change_ci95"),
    )


def _counted(report: Report) -> bool:
    return report.model.task != "regression"


def _studied(report: Report) -> str:
    """What fewer samples did elsewhere: left out where this gap is not in those directions, or where is not known."""
    found = [] if "duality" in broken_blocks(report) else hidden_steep_shares(report)
    if not found or any(spread_out([part]) for part in found):
        return ""
    return (
        " In the 110 networks studied for this tool fewer samples doubled the part of the gap in the steepest "
        "directions."
    )


RULE = FindingRule(
    id="few-train-samples",
    title="Too little train data",
    meaning="Whether a gap could come from too few train samples, where nothing else in the report explains it.",
    conditions=(
        "with twins: watch: twice the train samples would lower the test error beyond chance, and by "
        f"{share(WORTHWHILE)} of it or more; note: by less. Without: note: error gap above zero beyond chance, train "
        f"error ≤ {number(FITTED)}, and the labels not in doubt (see mislabelled)"
    ),
    source="With twins: their learning curve. Without: 110 networks on MNIST, 784-30-30-10, studied for this tool.",
    origin=f"{NO_LIMIT} It says what the numbers do not speak against.",
    cannot_tell="Whether more data would help, without twins; with them, whether further data will be like these.",
    find=find,
    rests_on=("gap",),
)
