"""Do some features of a table never vary?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed, some
from audit.measures.report import Report
from audit.report.numbers import number

SEVERAL = 2


def find(report: Report) -> Observation | None:
    """Speaks of several features, or of one that varies in test only."""
    block = None if report.doctor is None else report.doctor.constant_inputs
    if block is None or (block.constant < SEVERAL and not block.varying_in_test):
        return None
    changed = (
        f" {some(block.varying_in_test, 'of them has', 'of them have')} another value in some test sample, which the "
        "model has never seen."
        if block.varying_in_test
        else ""
    )
    return Observation(
        level="watch" if block.varying_in_test else "note",
        title=f"{number(block.constant)} of {number(block.features)} features have one value in all train samples",
        explanation=(
            f"Among them {listed(block.names)}. From a feature that never varies nothing can be learnt: it is a column "
            f"that was filled in, cut off or read wrongly, or one that is not needed.{changed}"
        ),
        advice="Check how these columns are made; if they hold nothing, leave them out and train again.",
        evidence=tuple(f"doctor.constant_inputs.{key}" for key in ("constant", "features", "varying_in_test", "names")),
    )


RULE = FindingRule(
    id="constant-inputs",
    title="Features that never vary",
    meaning="Whether features of a table have one value in all train samples.",
    conditions=(
        f"note: at least {SEVERAL} features have one value in all train samples used; watch: one of them has another "
        "value in test"
    ),
    source="Counting.",
    origin="A fact, without a limit but that several means two.",
    cannot_tell="Whether the feature varies among train samples that were not used, or in images, which are left out.",
    find=find,
)
