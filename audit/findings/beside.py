"""What twins say, in the words that several findings share; and what they would say where there are none."""

from __future__ import annotations

from audit.findings.rule import layer
from audit.measures import Report
from audit.report.numbers import interval, number, percent, points, shown, signed
from audit.report.twins import Band, Remedy, Twins

WOULD_TELL = (
    "Networks of this architecture, trained anew on these data, would say whether that is usual (`gen-audit twins`)."
)
CHANGES = {
    "quiet": "with small steps or large batches",
    "loud": "with large steps or small batches",
    "decay": "with weight decay",
    "large-start": "from an oversized start",
    "small-start": "from a small start",
    "wrong-labels": "on partly wrong labels",
    "longer": "for longer",
    "shorter": "for a shorter time",
    "dropout": "with dropout",
    "fisher": "with the Fisher regularizer",
    "flat": "with a flatness penalty",
}
"""How the twins of a kind were trained, behind "trained"."""
CHANCE = "showed nothing that chance among so many trials does not explain"
TRIED = {
    "decay": "weight decay",
    "loud": "larger steps or smaller batches",
    "longer": "a longer training",
    "shorter": "a shorter training",
    "dropout": "dropout",
    "fisher": "the Fisher regularizer",
    "flat": "a flatness penalty",
    "small-start": "a smaller start",
}
"""What an owner would do to train so."""


def trained(kind: str) -> str:
    """How the twins of a kind were trained, also of one that an owner made."""
    return CHANGES.get(kind, f"with the change '{kind}'")


def usual(report: Report, end: str, layers: tuple[str, ...] = ()) -> str:
    """One sentence: where a number of the model lies among its twins', by the end of its path; in these layers."""
    twins = report.twins
    found = [] if twins is None else [band for band in twins.numbers if _is(band, end, layers)]
    if not found:
        return WOULD_TELL
    outside = [band for band in found if band.place != "inside"]
    if not outside:
        return (
            f"Its {found[0].twins} plain twins, trained anew on these data, are like that, too: it is usual for this "
            "architecture here."
        )
    band = outside[0]
    where = "" if band.layer is None else f" in {layer(band.layer)}"
    return (
        f"Its plain twins, trained anew on these data, lie between {shown(band.low, band.kind)} and "
        f"{shown(band.high, band.kind)}{where}; this model lies {band.place} them, at {shown(band.value, band.kind)}."
    )


def _is(band: Band, end: str, layers: tuple[str, ...]) -> bool:
    return band.key.endswith(end) and (not layers or band.layer in layers)


def tried(report: Report, *kinds: str) -> Remedy | None:
    """What came of one of these changes of the training here; of the first that was tried."""
    found = {remedy.kind: remedy for remedy in (report.twins.remedies if report.twins is not None else [])}
    return next((found[kind] for kind in kinds if kind in found), None)


def came_of(report: Report, remedy: Remedy) -> str:
    """What came of a change, as a sentence that begins with it and has no full stop."""
    came = {"helps": "helped", "hurts": "hurt", "no difference": "made no difference", "cannot tell": CHANCE}
    return (
        f"{TRIED.get(remedy.kind, remedy.kind)} was tried here and {came[remedy.verdict]}: "
        f"{effect(report, remedy.effect)}{_ends(report, remedy)} on test, {remedy.twins} networks"
    )


def effect(report: Report, change: float) -> str:
    """A change of the test error, or of the test loss in a regression, with its sign."""
    return f"{signed(change, 3)} of the loss" if report.model.task == "regression" else points(change)


def _ends(report: Report, remedy: Remedy) -> str:
    kind = "number" if report.model.task == "regression" else "points"
    return "" if remedy.ci95 is None else f" ({interval(remedy.ci95, kind)})"


def level_of(report: Report, value: float) -> str:
    """An error on test in words, or a loss."""
    return number(value) if report.model.task == "regression" else percent(value)


def how_made(twins: Twins) -> str:
    """How the twins were trained, in a subordinate clause."""
    given = "by the given recipe" if twins.recipe_given else "by the ordinary recipe that the model resembles most"
    return f"{given} ({twins.recipe})"
