"""The model beside its twins, in words and rows: what the section of that name and the appendix show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from audit.findings.beside import TRIED, came_of, level_of, trained
from audit.findings.rule import capital, layer, listed, sentence, some
from audit.measures import Report
from audit.render.samples import Pictures, pictures
from audit.report.blocks import Thumbnail
from audit.report.numbers import interval, number, percent, points, share, shown
from audit.report.twins import Band, Contradicted, Curve, Remedy, Twins

BEYOND = 2.5  # half-widths of a band from its middle, up to which a row is drawn
SHOWN_BANDS = 40
PICTURED = 6
EFFECTS = {"helps": "helps", "hurts": "hurts", "no difference": "no difference", "cannot tell": "cannot tell"}
REASONS = {"shifted": "unlike train, and harder", "easier": "easier than train", "same": "like train"}


@dataclass(frozen=True)
class Row:
    """One number in half-widths of its band: −1 and 1 are its ends."""

    name: str
    value: float
    plain: list[float]
    other: list[float]  # of the kind that the model resembles, where that is not the plain one
    words: str
    place: str


def opening(report: Report, twins: Twins) -> str:
    """What was made, and how."""
    whole = "networks of its architecture" if twins.whole else "copies of its dense tail, on the model's own features,"
    how = "by the recipe given" if twins.recipe_given else "by the ordinary recipe that it resembles most"
    return (
        f"{some(twins.made, 'network')}: {whole} trained anew on its own train samples down to its own train loss of "
        f"{number(twins.target)}, {how} ({twins.recipe}), as usual and with one thing changed at a time. Beside them "
        f"the numbers of this report have a scale.{_searched(twins)}"
    )


def _searched(twins: Twins) -> str:
    """How many of all served the search for the recipe; the picture of the kinds leaves them out."""
    others = sum(row.made for row in twins.kinds if row.family != twins.family)
    if not others:
        return ""
    why = "" if twins.recipe_given else ", made in the search for the one that the model resembles most"
    return f" Of them {number(others)} {'is' if others == 1 else 'are'} of other recipes{why}."


def first_page(report: Report, twins: Twins) -> str:
    """The three answers that a reader needs first, as sentences."""
    return " ".join(filter(None, (_chance(report, twins), _likeness(twins, brief=True), _like_train(twins))))


def _like_train(twins: Twins) -> str:
    found = twins.held_out
    return f"Test is {REASONS[found.verdict]}." if found is not None and found.verdict in REASONS else ""


def answers(report: Report, twins: Twins) -> list[tuple[str, str]]:
    """Question and answer, as sentences; those that were not asked are left out."""
    found = [
        ("As good as it can be here?", _chance(report, twins)),
        ("Inside?", _inside(twins)),
        ("What does it look like?", _likeness(twins)),
        ("More data?", _more_data(report, twins.curve)),
        ("Is test like train?", _held_out(report, twins)),
        ("Whose errors?", _errors(report, twins)),
        ("Whose labels?", _labels(twins)),
        ("Another training?", _remedies(report, twins)),
    ]
    return [(question, answer) for question, answer in found if answer]


def _chance(report: Report, twins: Twins) -> str:
    band = twins.test
    if band is None:
        return ""
    low, high = (level_of(report, max(0.0, end)) for end in (band.low, band.high))
    where = {
        "inside": "as good as its architecture and data allow here",
        "below": "better than they are",
        "above": "worse than they are, so that the fault is likely in its training, not in the data",
    }[band.place]
    what = "has a test loss" if report.model.task == "regression" else "errs"
    at = "of" if report.model.task == "regression" else "on"
    return (
        f"Trained once more, this architecture {what} {at} {low} to {high} of test ({band.twins} networks, 95 %); this "
        f"model {at} {level_of(report, band.value)}: {where}."
    )


def _inside(twins: Twins) -> str:
    if not twins.numbers:
        return "" if twins.whole else "Networks of which only the tail was trained have no band for inner numbers."
    outside = [band for band in twins.numbers if band.place != "inside"]
    count = f"{number(twins.inside)} of {some(len(twins.numbers), 'inner number')}"
    if not outside:
        return f"{count} lie where ordinary trainings of this architecture on these data have theirs."
    told = [f"{called(band)} ({band.place})" for band in outside]
    return f"Outside the band: {listed(told, 5, 90)}. {count} lie inside."


def called(band: Band) -> str:
    """A number with its layer."""
    return band.name if band.layer is None else f"{band.name} of {layer(band.layer)}"


def _likeness(twins: Twins, brief: bool = False) -> str:
    found = twins.likeness
    if found is None or found.hit_rate is None:
        return sentence(found.skipped) if found is not None and found.skipped else ""
    ends = (
        "" if found.hit_rate_ci95 is None else f", {share(found.hit_rate_ci95[0])} to {share(found.hit_rate_ci95[1])}"
    )
    right = f"{number(found.hits)} of {number(found.asked)} networks whose training is known"
    hits = f"Told in this way, {right} come out right ({share(found.hit_rate)}{ends})."
    if brief and found.kind is not None:
        like = "an ordinary training" if found.kind == "plain" else f"one trained {trained(found.kind)}"
        return f"From inside it resembles {like} most; told in this way, {right} come out right."
    if found.far and found.kind is None:
        return f"From inside it resembles none of the kinds of networks trained here: it lies too far from all. {hits}"
    if found.kind is None:
        return f"Which kind of training it resembles cannot be told: several are about as near. {hits}"
    like = "an ordinary training" if found.kind == "plain" else f"a network trained {trained(found.kind)}"
    away = " It lies farther off than these from each other, as another recipe would bring it." if found.far else ""
    return f"From inside it resembles {like} most; next comes {_kind(found.next)}.{away} {hits}"


def _kind(name: str | None) -> str:
    return "an ordinary training" if name == "plain" else f"one trained {trained(name or '')}"


def _more_data(report: Report, curve: Curve | None) -> str:
    if curve is None or curve.change is None:
        return sentence(curve.skipped) if curve is not None and curve.skipped else ""
    error = report.model.task != "regression"
    kind = "points" if error else "number"
    change = points(curve.change) if error else number(curve.change)
    ends = "" if curve.change_ci95 is None else f" ({interval(curve.change_ci95, kind)})"
    told = "" if curve.verdict == "helps" else " That may be none at all: whether more data would help cannot be told."
    what = "the test error" if error else "the test loss"
    return f"Twice the train samples would change {what} by about {change}{ends}.{told}"


def _held_out(report: Report, twins: Twins) -> str:
    found = twins.held_out
    if found is None or found.held_out is None or found.test is None:
        return sentence(found.why) if found is not None and found.why else ""
    told = _like_train(twins) or sentence(found.why or "cannot tell")
    what = "have a loss of" if report.model.task == "regression" else "err on"
    return (
        f"{told} Networks trained on one half of the train samples {what} {level_of(report, found.held_out)} of the "
        f"other half and {level_of(report, found.test)} of test."
    )


def _errors(report: Report, twins: Twins) -> str:
    found = twins.errors
    if found is None or found.skipped or not found.wrong:
        return ""
    own = (
        ""
        if found.own_expected is None
        else f" (one of the others has {number(round(found.own_expected, 1))} such in the mean)"
    )
    return (
        f"Of its {some(found.wrong, 'mistake')} on test, {number(found.shared)} are made by half or more of the "
        f"networks trained anew, too, {number(found.hard_count)} by all of them: hard samples, or wrong labels. "
        f"{number(found.own_count)} are this model's own{own}; {number(found.saved_count)} it alone gets right."
    )


def _labels(twins: Twins) -> str:
    found = twins.labels
    if found is None or found.skipped or not found.looked_at:
        return ""
    both = (
        "" if found.both is None else f"; of these, {number(found.both)} are suspects of their nearest neighbours, too"
    )
    return (
        f"{some(found.contradicted, 'train label')} of {number(found.looked_at)} ({percent(found.share)}) are "
        f"contradicted with confidence by all networks that have not seen the sample{both}."
    )


def _remedies(report: Report, twins: Twins) -> str:
    if not twins.remedies:
        return ""
    helped = [remedy for remedy in twins.remedies if remedy.verdict == "helps"]
    if not helped:
        names = listed([TRIED.get(remedy.kind, remedy.kind) for remedy in twins.remedies], 8)
        return f"Nothing that was tried is shown to help ({names})."
    return f"{capital(came_of(report, helped[0]))}."


def strips(report: Report, twins: Twins) -> list[tuple[str, list[float], str]]:
    """Rows of the picture of test errors: the kinds of the model's family, in the order of their worth."""
    rows = [row for row in twins.kinds if row.family == twins.family and row.test]
    return [(row.name, row.test, _drawn(len(row.test), row.made)) for row in rows]


def _drawn(dots: int, made: int) -> str:
    """How many of a kind are counted; those that diverged are not."""
    return f"{made}" if dots == made else f"{dots} of {made}"


def curve_rows(report: Report, curve: Curve) -> list[tuple[str, float, tuple[float, float] | None, str]]:
    """Rows of the learning curve, what is foretold last."""
    rows = [
        (f"{number(point.train_samples)} samples", point.test, point.test_ci95, level_of(report, point.test))
        for point in curve.points
    ]
    if curve.twice is not None and curve.points:
        twice = 2 * curve.points[-1].train_samples
        rows.append((f"{number(twice)}, foretold", curve.twice, curve.twice_ci95, level_of(report, curve.twice)))
    return rows


def effect_rows(
    report: Report, remedies: Sequence[Remedy]
) -> list[tuple[str, str, int, float, tuple[float, float] | None, str]]:
    """Rows of the table of what was tried."""
    return [
        (remedy.kind, remedy.change, remedy.twins, remedy.effect, remedy.ci95, EFFECTS[remedy.verdict])
        for remedy in remedies
    ]


def band_rows(twins: Twins, measure: str) -> list[Row]:
    """The numbers of one measure, or of all, for the picture of bands."""
    chosen = [band for band in twins.numbers if f".{measure}." in f".{band.key}"]
    kind = twins.likeness.kind if twins.likeness is not None else None
    others = next((row.numbers for row in twins.kinds if (row.name, row.family) == (kind, twins.family)), {})
    return [_row(band, [] if kind == "plain" else others.get(band.key, [])) for band in chosen[:SHOWN_BANDS]]


def _row(band: Band, others: Sequence[float]) -> Row:
    log = min(band.low, band.value, *band.values, *(others or [band.value])) > 0
    low, high = _at(band.low, log), _at(band.high, log)
    half, middle = max((high - low) / 2, 1e-12), (low + high) / 2

    def there(value: float) -> float:
        return max(-BEYOND, min(BEYOND, (_at(value, log) - middle) / half))

    return Row(
        name=called(band),
        value=there(band.value),
        plain=[there(value) for value in band.values],
        other=[there(value) for value in others],
        words=shown(band.value, band.kind),
        place=band.place,
    )


def _at(value: float, log: bool) -> float:
    return math.log(value) if log else value


def looked_at(report: Report, indices: Sequence[int]) -> list[Thumbnail]:
    """Pictures of test samples, of those that the gallery has."""
    found = pictures(report)
    return [found["test", index] for index in indices if ("test", index) in found][:PICTURED]


def doubted(report: Report, samples: Sequence[Contradicted]) -> list[tuple[Contradicted, Thumbnail]]:
    """Train samples whose label twins contradict, with their pictures."""
    found: Pictures = pictures(report)
    return [(each, found["train", each.index]) for each in samples if ("train", each.index) in found][:PICTURED]
