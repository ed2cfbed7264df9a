"""Are the samples prepared as in training?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation
from audit.findings.sentences import layer
from audit.measures.report import Report
from audit.report.doctor import WIDE, Trial
from audit.report.numbers import number, percent


def find(report: Report) -> Observation | None:
    """Speaks where another preprocessing of the same samples suits the model much better."""
    doctor = report.doctor
    other = None if doctor is None else doctor.preferred
    if doctor is None or other is None:
        return None
    now, place = doctor.trials[0], doctor.better
    return Observation(
        level="concern",
        title="The samples are probably not prepared as in training",
        explanation=(
            f"The model was tried on {number(doctor.samples)} of its train samples, prepared in {len(doctor.trials)} "
            f"ways. As they are fed, {_does(now)}; with another preprocessing ({other.name}), {_does(other)}. "
            f"{_why(report, now, other)} Until that is settled no other number here is about your model as you use it."
        ),
        advice=f"{_cure(other)} and audit again, if that is how the model was trained. This audit changed nothing.",
        evidence=(
            "doctor.samples",
            *(f"doctor.trials[{at}].{key}" for at in (0, place) for key in ("name", "loss", "fitted_loss", "error")),
            f"doctor.trials[{place}].cure",
            f"doctor.trials[{place}].p_value",
        ),
    )


def _why(report: Report, now: Trial, other: Trial) -> str:
    """What speaks for the other one: it does better, or as well though its numbers are far smaller."""
    first = report.doctor.first_layer if report.doctor is not None else None
    if other.loss < now.loss or first is None:
        return (
            "A model does best on its train samples as they were in training, so this suggests that they were prepared "
            "so."
        )
    return (
        f"As they are fed, numbers go up to {number(first.highest)} and the answers of {layer(first.name)}, the first, "
        f"spread by {number(first.spread)}, where at most about 17 is usual. A model trained on numbers so large would "
        "know next to nothing of smaller ones; this one does, so that it was probably trained on those."
    )


def _does(trial: Trial) -> str:
    wrong = "" if trial.error is None else f" and it is wrong on {percent(trial.error)}"
    return f"its mean loss is {number(trial.loss)}{wrong}"


def _cure(trial: Trial) -> str:
    return f"Say {trial.cure}" if trial.cure.startswith("--") else f"{trial.cure[:1].upper()}{trial.cure[1:]},"


RULE = FindingRule(
    id="preprocessing",
    title="Another preprocessing",
    meaning="Whether the usual normalisations, channel orders and axis orders include one that suits the model better.",
    conditions=(
        "concern: on at most 256 train samples another preprocessing has lower losses, as they are and each at its "
        "best temperature (sign or paired z test, at most 0.001 over all trials), there by at least 3 % of what the "
        "model then knows beyond a constant answer; or the loss at least halves, where as fed the best temperature is "
        "2 or more and gains 10 nats. Regression: after the best straight line instead. Or the first layer's answers "
        f"spread by more than {number(WIDE)} as fed and less with the other, which costs at most 5 % of a constant "
        "answer"
    ),
    source="Trial on the model's own train samples; temperature: Guo et al. (2017).",
    origin=(
        "Counted on networks trained for it (samples/doctor_rates.json), on which its limits were set, too: it spoke "
        "for 0 of 60 networks fed as in training, and in 298 of 324 cases of the same networks prepared otherwise. "
        "What it missed had changed few answers."
    ),
    cannot_tell="A preprocessing that is not among those tried, or one that changes little.",
    find=find,
)
