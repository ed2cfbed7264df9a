"""What networks trained anew say: which training the model looks like, are its errors ordinary, which advice helped."""

from __future__ import annotations

from audit.findings.beside import TRIED, came_of, effect, how_made, level_of, trained, tried
from audit.findings.rule import FindingRule, Observation, listed
from audit.measures import Report
from audit.report.numbers import number, share
from audit.report.twins import Band, Likeness, Remedy, Twins

# Which kind of training does the inside of the model look like?


RELIABLE = 0.75  # share of the twins told to be of a kind that must be of it
SURE = 0.8  # probability of the kind, from which on a person should look
FAULTS = ("quiet", "large-start", "small-start", "wrong-labels", "loud", "decay")
EVIDENCE = (
    *("twins.likeness.kind", "twins.likeness.sureness", "twins.likeness.hit_rate", "twins.likeness.hit_rate_ci95"),
    "twins.likeness.asked",
)


def find_resembles(report: Report) -> Observation | None:
    """Speaks where the model resembles one kind, or none at all."""
    twins = report.twins
    found = None if twins is None else twins.likeness
    if twins is None or found is None or found.skipped or found.hit_rate is None:
        return None
    if found.kind is None:
        return _unlike(twins, found) if found.far else None
    return _plain(twins, found) if found.kind == "plain" else _of_kind(report, twins, found)


def _of_kind(report: Report, twins: Twins, found: Likeness) -> Observation:
    reliable = (found.hit_rate_of_kind or 0.0) >= RELIABLE and (found.sureness or 0.0) >= SURE
    kind = found.kind or ""
    return Observation(
        level="watch" if reliable and kind in FAULTS else "note",
        title=f"From inside it resembles networks trained {trained(kind)}",
        explanation=(
            f"By its inner numbers alone, the test error left aside, it is nearest to the twins that were trained "
            f"{trained(kind)}, of those that were made; next is {found.next or 'none'}. {_hits(found)}{_away(found)} "
            f"The others were trained {how_made(twins)}. It is a likeness, no proof of how the model was trained."
        ),
        advice=_advice(report, kind),
        evidence=EVIDENCE,
    )


def _advice(report: Report, kind: str) -> str:
    """What its owner can look at; where the same was tried as a remedy, what came of it."""
    remedy = tried(report, kind)
    if kind == "decay" and remedy is not None:
        return f"If weight decay was not meant to be so strong, look at it: {came_of(report, remedy)}."
    other = {"quiet": "loud", "large-start": "small-start"}.get(kind)
    remedy = None if other is None else tried(report, other)
    look = {
        "quiet": "Look at learning rate and batch size",
        "large-start": "Look at how the weights are initialised, and at the scale of the inputs",
        "small-start": "Look at how the weights are initialised",
        "wrong-labels": "Look at the train labels",
        "decay": "Look at the weight decay",
        "loud": "Look at learning rate and batch size",
    }.get(kind, f"Look at {TRIED.get(kind, 'this part of the training')}")
    return f"{look}{'' if remedy is None else f'; {came_of(report, remedy)}'}."


def _plain(twins: Twins, found: Likeness) -> Observation:
    inside = f"{number(twins.inside)} of {number(len(twins.numbers))}"
    return Observation(
        level="good",
        title="From inside it looks like an ordinary training",
        explanation=(
            f"{inside} of its inner numbers lie where networks trained anew {how_made(twins)} have theirs, and of all "
            f"kinds that were made it is nearest to these{_or_others(twins)}. {_hits(found)}{_away(found)}"
        ),
        advice="Nothing to do here; faults that were not made as twins would not be seen this way.",
        evidence=EVIDENCE[:1] + EVIDENCE[2:],
    )


def _unlike(twins: Twins, found: Likeness) -> Observation:
    inside = f"{number(twins.inside)} of {number(len(twins.numbers))}"
    return Observation(
        level="watch" if 2 * twins.inside < len(twins.numbers) else "note",
        title="From inside it resembles none of the networks that were made",
        explanation=(
            f"It lies farther from every kind than these lie from their own; {inside} of its inner numbers lie inside "
            f"their band. {_hits(found)} Its training is likely unlike the recipe used here ({twins.recipe})."
        ),
        advice="Give the recipe that it was trained with (--recipe), so that the networks beside it are its like.",
        evidence=("twins.likeness.far", *EVIDENCE[2:]),
    )


def _or_others(twins: Twins) -> str:
    return "" if twins.recipe_given else ", or to those of another ordinary recipe that was tried"


def _away(found: Likeness) -> str:
    """What is said of a kind that the model is nearer to than any other kind is, and yet outside."""
    if not found.far:
        return ""
    return (
        " It lies farther from them than they lie from each other, as another recipe than the inferred one would bring "
        "it; give the recipe (--recipe) to be surer."
    )


def _hits(found: Likeness) -> str:
    ends = (
        "" if found.hit_rate_ci95 is None else f", {share(found.hit_rate_ci95[0])} to {share(found.hit_rate_ci95[1])}"
    )
    return (
        f"Asked of {number(found.asked)} networks whose training is known, each left out in its turn, the same rule "
        f"was right for {number(found.hits)} ({share(found.hit_rate)}{ends}); a model that differs from them in more "
        "than one thing is told less surely."
    )


RESEMBLES = FindingRule(
    id="resembles",
    title="Likeness to a kind of training",
    meaning="Whether the model resembles one kind of the networks that were trained anew, by its inner numbers alone.",
    conditions=(
        "with twins, and a kind of probability 0.5 or more: watch: a kind that is a fault or a strong change, told "
        f"with probability {number(SURE)} or more, and {share(RELIABLE)} of the twins told to be of it are, or farther "
        "from all kinds than twins from their own, with most numbers outside their band; note: else, or far from all "
        "with most inside; good: the plain kind. With an inferred recipe, a kind also where the model is far from it "
        "but nearer to it than any other kind is"
    ),
    source="A linear discriminant with shrunken correlations (Schäfer & Strimmer 2005), tried twin by twin.",
    origin="0.8 and three quarters are conventions; the hit rate is counted on this very problem.",
    cannot_tell="How the model was really trained, nor anything of kinds that were not made.",
    find=find_resembles,
    rests_on=("duality", "flatness"),
)


# Is the model as good as its architecture and its data allow? Beside networks that were trained anew.


def find_twin_errors(report: Report) -> Observation | None:
    """Speaks wherever there is a band for the test error."""
    twins = report.twins
    band = None if twins is None else twins.test
    if twins is None or band is None:
        return None
    what = "test_loss" if report.model.task == "regression" else "test_error"
    evidence = tuple(f"twins.{what}.{key}" for key in ("value", "mean", "low", "high", "twins"))
    return (_worse if band.place == "above" else _fine)(report, twins, band, evidence)


def _worse(report: Report, twins: Twins, band: Band, evidence: tuple[str, ...]) -> Observation:
    return Observation(
        level="watch",
        title="Behind networks of its architecture that were trained anew on the same data",
        explanation=(
            f"{_measured(report, twins, band)} This model has {level_of(report, band.value)}. The same data and the "
            "same architecture allow more, so that the fault is likely in this model's training."
        ),
        advice=f"Train it again {how_made(twins)}, with another seed, and compare (`gen-audit compare`).",
        evidence=evidence,
    )


def _fine(report: Report, twins: Twins, band: Band, evidence: tuple[str, ...]) -> Observation:
    better = band.place == "below"
    return Observation(
        level="good",
        title=(
            "Better on test than networks of its architecture trained anew on the same data"
            if better
            else "As good on test as its architecture and its data allow"
        ),
        explanation=(
            f"{_measured(report, twins, band)} This model has {level_of(report, band.value)}"
            f"{'' if better else ': another seed would change it no more than that'}."
        ),
        advice="Training it once more in the same way is not likely to pay; other data or another architecture may.",
        evidence=evidence,
    )


def _measured(report: Report, twins: Twins, band: Band) -> str:
    low, high = (level_of(report, max(0.0, end)) for end in (band.low, band.high))
    what = "have a test loss" if report.model.task == "regression" else "are wrong on a share of test"
    return (
        f"{band.twins} networks trained anew {how_made(twins)}, down to the model's own train loss, {what} of "
        f"{level_of(report, band.mean)}; one more would lie between {low} and {high}, in 95 of 100 cases."
    )


TWIN_ERRORS = FindingRule(
    id="beside-twins",
    title="Beside networks trained anew",
    meaning="Whether the model does on test what networks of its architecture do that are trained anew on its data.",
    conditions="with twins: watch: above their 95 % prediction interval; good: inside or below",
    source="Student's prediction interval; the networks were made for this model, see twins in the JSON.",
    origin="95 %: by chance alone one model in forty lies above, a natural limit.",
    cannot_tell="Whether another recipe would do better than all of them, unless it was among the kinds made.",
    find=find_twin_errors,
)


# Advice that was tried: what other trainings did to the test error of this architecture on these data.


def find_tried_advice(report: Report) -> Observation | None:
    """Speaks wherever a change of the training was tried."""
    tried = [] if report.twins is None else report.twins.remedies
    if not tried:
        return None
    helped = [(place, remedy) for place, remedy in enumerate(tried) if remedy.verdict == "helps"]
    return _helped(report, helped, tried) if helped else _nothing(report, tried)


def _helped(report: Report, helped: list[tuple[int, Remedy]], tried: list[Remedy]) -> Observation:
    place, best = helped[0]
    others = [_called(remedy) for remedy in tried if remedy.verdict != "helps"]
    rest = f" Also tried, without a gain that could be shown: {listed(others, 8)}." if others else ""
    return Observation(
        level="note",
        title=f"Tried here and found to help: {listed([_called(remedy) for _, remedy in helped], 4)}",
        explanation=(
            f"Networks of this architecture were trained on these data as usual and with one change at a time; "
            f"{came_of(report, best)}.{rest} Each gain is of these networks on these test samples, by which it was "
            "chosen, too."
        ),
        advice=f"Try {_called(best)} when you train again ({best.change}), and compare on new samples.",
        evidence=(f"twins.remedies[{place}].effect", f"twins.remedies[{place}].ci95"),
    )


def _nothing(report: Report, tried: list[Remedy]) -> Observation:
    best = tried[0]
    return Observation(
        level="note",
        title="Nothing that was tried in training is shown to help",
        explanation=(
            f"Networks of this architecture were trained on these data as usual and with one change at a time: "
            f"{listed([_called(remedy) for remedy in tried], 8)}. The best of these changed the test error by "
            f"{effect(report, best.effect)}, which chance among so many explains."
        ),
        advice="Do not expect much of another recipe; look at the data and the architecture first.",
        evidence=("twins.remedies[0].effect", "twins.remedies[0].ci95"),
    )


def _called(remedy: Remedy) -> str:
    return TRIED.get(remedy.kind, remedy.kind)


TRIED_ADVICE = FindingRule(
    id="tried-advice",
    title="Advice that was tried",
    meaning="Whether changes of the training that were tried on networks of this architecture helped.",
    conditions="note, with twins of a kind that an owner could train by",
    source="Counting: the same architecture, data and train loss, with one change at a time.",
    origin=(
        "A change helps where its 95 % interval, widened for all changes that were tried, lies below zero: a natural "
        "limit."
    ),
    cannot_tell="What the same change does to another recipe or another size of the network.",
    find=find_tried_advice,
)
