"""Was the model taught wrong labels, do equal inputs have different answers, are test samples almost train samples?"""

from __future__ import annotations

from collections.abc import Sequence

from audit.findings.rule import NO_LIMIT, FindingRule, Observation, gap_is_real, label, labels_in_doubt, some, within
from audit.findings.rules.steep import SteepShare, hidden_steep_shares, spread_out, told
from audit.measures import Report
from audit.measures.hygiene.block import Suspect, SuspectedMislabels
from audit.report.numbers import number, percent, share

# Was the model taught wrong labels?


LABELS = "hygiene.suspected_mislabels"
NAMED = 8  # suspects that the advice names


def find_mislabelled(report: Report) -> Observation | None:
    """Neighbours that disagree; a concern where the gap also has the shape that wrong labels gave."""
    if report.hygiene is None or not labels_in_doubt(report):
        return None
    labels = report.hygiene.suspected_mislabels
    learnt = hidden_steep_shares(report) if gap_is_real(report) else []
    shaped = spread_out(learnt)
    reading = _shape(learnt) if shaped else _no_shape(report, learnt)
    places = range(min(NAMED, len(labels.suspects)))
    return Observation(
        level="concern" if shaped else "watch",
        title=f"About {share(labels.estimated_rate)} of the train labels {_how_surely(labels)} wrong",
        explanation=f"{_neighbours(report, labels)} {reading}",
        advice=(
            "Check the labels listed under failures and suspects, correct or drop what is wrong, and train again. The "
            "most suspect (position in train, given label, label of most neighbours): "
            f"{', '.join(map(_named, labels.suspects[:NAMED]))}."
            if labels.suspects
            else "Draw a hundred train samples at random and check their labels by hand; correct what is wrong."
        ),
        evidence=(
            *(f"{LABELS}.{key}" for key in ("count", "expected_by_chance", "estimated_rate", "estimated_rate_ci95")),
            *(path for part in learnt for path in (part.path, f"layers[{part.place}].duality.sharp.elbow")),
            *(f"{LABELS}.suspects[{place}].index" for place in places),
        ),
    )


def _how_surely(labels: SuspectedMislabels) -> str:
    """The rate's own interval is above zero; where the rule's count is not beyond chance, the two do not agree."""
    usual = labels.expected_by_chance_ci95
    return "may be" if usual is not None and labels.count is not None and labels.count <= usual[1] else "are probably"


def _no_shape(report: Report, found: Sequence[SteepShare]) -> str:
    if not gap_is_real(report):
        return (
            "These samples do not show that the model is wrong more often on test than on train, so nothing says that "
            "it has learnt them by heart."
        )
    if not found:
        return "Whether the model has learnt them by heart cannot be told: its gap could not be split here."
    return (
        "The gap does not have the shape that it had in networks that learnt wrong labels by heart, so this model may "
        "not have learnt them."
    )


def _neighbours(report: Report, labels: SuspectedMislabels) -> str:
    chance = (
        ""
        if labels.expected_by_chance is None
        else f"; if they were as right as the test labels, about {number(round(labels.expected_by_chance))}"
        f"{within(labels.expected_by_chance_ci95)} would be"
    )
    samples = report.data.train.samples
    asked = labels.asked or samples
    drawn = "" if asked == samples else f" drawn at random from {number(samples)}"
    return (
        f"{number(labels.count)} of {number(asked)} train labels{drawn} are contradicted by most of their most similar "
        f"samples{chance}. {_rate(labels)}"
    )


def _rate(labels: SuspectedMislabels) -> str:
    rate = f"{percent(labels.estimated_rate)} wrong labels{within(labels.estimated_rate_ci95, 'percent')}"
    if _how_surely(labels) == "are probably":
        return f"That points to {rate}."
    return (
        "That many may be chance; but over all samples, neighbours outvote labels more often in train than in test, "
        f"which points to {rate}."
    )


def _shape(found: Sequence[SteepShare]) -> str:
    smooth = " and without a clear border" if not any(part.elbow for part in found) else ""
    return (
        f"The gap is spread over very many directions{smooth}: {told(found[0])}. That is consistent with labels learnt "
        "by heart, one by one, as in the source study."
    )


def _named(suspect: Suspect) -> str:
    return f"{suspect.index} ({suspect.label}, neighbours {suspect.neighbours_label})"


MISLABELLED = FindingRule(
    id="mislabelled",
    title="Wrong train labels",
    meaning="Whether train labels contradict those of similar samples, and the gap looks as if they were learnt.",
    conditions=(
        "lower end of the estimated rate's 95 % interval > 0; concern where also the gap, if it is beyond chance, has "
        "clearly less than half of its size in the C steepest directions of each hidden layer (as flat-gap); else "
        "watch. The title says may be, not probably, where the labels called suspect are no more than chance explains"
    ),
    source=(
        "Feng & Tu, The activity-weight duality in feed forward neural networks (2022), section 4.3 and Fig. "
        "S7: with labels at random the flat directions dominate. Neighbours: Wilson (1972)"
    ),
    origin=(
        "Zero, with a 95 % interval. Networks trained for this rule (MNIST with 10, 5 and 3 digits, digits, breast "
        "cancer; five seeds; samples/finding_rates.json): it spoke for 2 of 60 networks with clean labels, as a "
        "concern for 0 of 60; with 25 %, 10 % and 5 % of the labels moved for 15 of 15, 24 of 25 and 11 of 15, as a"
        " concern for 10 of 15, 18 of 25 and 8 of 15. Recipes with clean labels share their data, seed by seed, so "
        "that these 2 are one case; what it missed were breast-cancer data, 455 samples of two classes. Of the "
        "labels listed, at most 50 a network, 98 %, 95 % and 90 % were truly wrong."
    ),
    cannot_tell=(
        "Whether a listed label is wrong or its sample merely odd. Labels that are wrong in test as well do not show, "
        "and test samples that are easier than train samples look like wrong train labels."
    ),
    find=find_mislabelled,
)


# Do equal inputs have different answers?


def find_conflicts(report: Report) -> Observation | None:
    """Speaks where an input is in train with two answers."""
    if report.hygiene is None or not report.hygiene.conflicting_labels:
        return None
    total, found, name = report.hygiene.conflicting_labels, report.hygiene.conflicts, label(report)
    return Observation(
        level="note",
        title=f"{some(total, 'sample has', 'samples have')} a twin in train with another {name}",
        explanation=(
            f"The inputs of {some(found.within_train, 'train sample')} and {some(found.across_splits, 'test sample')} "
            f"are in train with another {name}, so no model can be right on all of them. Either a {name} is wrong, or "
            "the input does not hold the answer."
        ),
        advice=(
            f"Look at the samples in the section on data hygiene; settle which {name} is right or add what sets them "
            "apart."
        ),
        evidence=(
            "hygiene.conflicting_labels",
            "hygiene.conflicts.within_train",
            "hygiene.conflicts.across_splits",
            "hygiene.conflicts.train",
            "hygiene.conflicts.test",
        ),
    )


CONFLICTS = FindingRule(
    id="conflicting-answers",
    title="Conflicting answers",
    meaning="Whether the same input appears in train with different labels or targets.",
    conditions="note: at least one such sample",
    source="Counting; see the card hygiene.conflicting_labels.",
    origin=NO_LIMIT,
    cannot_tell="Which of the answers is wrong.",
    find=find_conflicts,
)


# Are test samples almost train samples?


def find_near_copies(report: Report) -> Observation | None:
    """Speaks where some test sample is closer to train than chance would bring it."""
    if report.hygiene is None or not report.hygiene.near_duplicates:
        return None
    count, near = report.hygiene.near_duplicates, report.hygiene.near
    part, usual, bounds = count / max(report.data.test.samples, 1), near.within_train, near.within_train_ci95
    natural = usual is not None and part <= max(usual, bounds[1] if bounds else usual)
    twins = f"{percent(usual)} of the samples{within(bounds, 'percent')} have such a near twin"
    beside = "" if usual is None else f" Within train, {twins}."
    reading = (
        "That is no more than within train beyond chance, and no evidence of copies: dense groups of similar samples, "
        "or data that repeat by nature, bring it about, too."
        if natural
        else "That is consistent with copies that were compressed, rounded or cut, or with bursts of similar samples."
    )
    return Observation(
        level="note" if natural else "watch",
        title=(
            f"{some(count, 'test sample lies', 'test samples lie')} unusually close to a train sample"
            if natural
            else f"{some(count, 'test sample is', 'test samples are')} almost a copy of a train sample"
        ),
        explanation=(
            f"{percent(part)} of the test samples lie far closer to one train sample than chance would bring them."
            f"{beside} {reading}"
        ),
        advice="Look at the pairs in the section on data hygiene; drop from test what is the same thing twice.",
        evidence=(
            "hygiene.near_duplicates",
            "hygiene.near.within_train",
            "hygiene.near.within_train_ci95",
            "hygiene.near.threshold",
            "data.test.samples",
        ),
    )


NEAR_COPIES = FindingRule(
    id="near-copies",
    title="Near copies across the splits",
    meaning="Whether test samples are almost, but not quite, train samples.",
    conditions=(
        "at least one near duplicate; watch where they are more common in test than the upper end of the 95 % interval "
        "of their share within train, else note"
    ),
    source="Nearest-neighbour distances; see the card hygiene.near_duplicates.",
    origin="The threshold of hygiene.near_duplicates: with fresh test samples 0.05 of them would be called so in all.",
    cannot_tell="Shifted, mirrored or cropped copies are not seen.",
    find=find_near_copies,
)
