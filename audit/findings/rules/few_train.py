"""Could the gap be a matter of too little data?"""

from __future__ import annotations

from audit.findings.conditions import broken_blocks, fits_train, gap_is_real, labels_in_doubt
from audit.findings.rule import NO_LIMIT, FindingRule, Observation
from audit.findings.sentences import some, unit
from audit.findings.steep_shares import hidden_steep_shares, spread_out
from audit.measures.gap.block import FITTED
from audit.measures.report import Report
from audit.report.numbers import number


def find(report: Report) -> Observation | None:
    """Speaks where the model fits train, fails more on test, and the labels are not in doubt."""
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
            "Train the same recipe on half of the train samples and compare both test losses: if the half does clearly "
            "worse, more data is likely to pay."
        ),
        evidence=("data.train.samples", "data.train.total", "model.parameters", "gap.train_error", "gap.error_gap"),
    )


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
        f"note: error gap above zero beyond chance, train error ≤ {number(FITTED)}, and the labels not in doubt (see "
        "mislabelled)"
    ),
    source="110 networks on MNIST, 784-30-30-10, studied for this tool.",
    origin=f"{NO_LIMIT} It says what the numbers do not speak against.",
    cannot_tell="Whether more data would help: that takes a second training run.",
    find=find,
    rests_on=("gap",),
)
