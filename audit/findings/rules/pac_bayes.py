"""Does the PAC-Bayes bound say anything about this model?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.numbers import number

P = "network.fisher.pac_bayes"


def find(report: Report) -> Observation | None:
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


RULE = FindingRule(
    id="pac-bayes",
    title="PAC-Bayes bound",
    meaning="Whether the bound from the Fisher information is worth quoting for this model.",
    conditions="note: the test loss is above the bound (exceeded), or the bound above the loss of guessing (vacuous)",
    source="Jia & Su, Information-theoretic local minima characterization and regularization (2020), Theorem 1",
    origin="The bound itself, and ln C: natural marks.",
    cannot_tell="Anything about a model for which the bound holds: the volume in it is a free choice.",
    find=find,
    rests_on=("gap", "fisher"),
)
