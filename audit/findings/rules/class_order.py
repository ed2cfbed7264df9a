"""Do the labels mean the model's outputs in another order?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import listed
from audit.measures.report import Report
from audit.report.numbers import number, percent


def find(report: Report) -> Observation | None:
    """Speaks where some classes answer for each other in a circle; not where a preprocessing explains more."""
    doctor = report.doctor
    order = None if doctor is None or doctor.preferred is not None else doctor.misordered
    if order is None:
        return None
    return Observation(
        level="concern",
        title=f"The classes {listed(order.moved)} probably stand in another order than the model's outputs",
        explanation=(
            f"{percent(order.right)} of {number(order.samples)} train samples are answered rightly, and "
            f"{percent(order.right_if_moved)} would be if these classes took each other's places. Classes that merely "
            "look alike are not mistaken for each other more often than they are told apart. Until that is settled no "
            "other number here is about your model as you use it."
        ),
        advice=f"Say {order.cure}, and audit again. Nothing was changed by this audit.",
        evidence=tuple(
            f"doctor.class_order.{key}" for key in ("samples", "moved", "right", "right_if_moved", "p_value", "cure")
        ),
    )


RULE = FindingRule(
    id="class-order",
    title="Order of the classes",
    meaning="Whether labels mean the model's outputs in the order in which it was trained.",
    conditions=(
        "concern: in the best one-to-one assignment of labels to answers, found on every second train sample of each "
        "class, some classes form a circle, each answered as the next; and on the other samples two thirds or more of "
        "the answers by the next or the own class are by the next, beyond a fair coin (sign test, at most 0.001 over "
        "all circles)"
    ),
    source="Counting; best assignment: Kuhn (1955), Munkres (1957).",
    origin=(
        "0.001, by a test on samples that the circle was not found on; two thirds are a convention. On networks "
        "trained for it (samples/doctor_rates.json) it spoke for 0 of 60 fed as in training, and in 156 of 156 cases "
        "with two, three or all classes moved."
    ),
    cannot_tell="Classes of so few samples that chance cannot be ruled out, and order among more than 2,000 classes.",
    find=find,
)
