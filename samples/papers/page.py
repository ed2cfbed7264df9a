"""The page of the documentation, written from the record alone: its words are in `study.md.j2`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from papers.claims import short
from papers.record import table_from
from papers.statistics import CANNOT_TELL, DOES_NOT, HOLDS, Table
from papers.tables import markdown, minus, none, of_fisher, of_flatness, of_sensitivity

VERDICTS = (HOLDS, DOES_NOT, CANNOT_TELL)
MINIATURES = (none, of_fisher, of_flatness, of_sensitivity)
FIGURES: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("fig-3.svg", "Small equivalent of Fig. 3: learning rate above, batch below; bars are standard deviations"),
        ("fig-4.svg", "Small equivalent of Fig. 4: weight decay above, scale of the start below"),
        ("others.svg", "Dropout, size of the train data, wrong labels (Figs S6 and S7)"),
    ),
    (),
    (("correlations.svg", "Measures against the loss gap: each point a network, coloured by what was changed"),),
    (),
)
MINUTES = 15


def page(record: Mapping[str, Any]) -> str:
    """All of it, as Markdown."""
    words = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    table = table_from(record)
    papers = [
        {"title": title, "figures": FIGURES[place], "tables": list(MINIATURES[place](table)), "claims": rows_of(claims)}
        for place, (title, claims) in enumerate(record["claims"].items())
    ]
    known = {
        **_counts(record, table),
        "papers": papers,
        "summary": _summary(record),
        "not_held": _not_held(record),
        "minutes": MINUTES,
    }
    return words.get_template("study.md.j2").render(known)


def _counts(record: Mapping[str, Any], table: Table) -> dict[str, Any]:
    setting = record["columns"].index("setting")
    helped = Counter(name for name, reached in zip(table.setting, table["reached"], strict=True) if not reached)
    made = Counter(row[setting] for row in record["networks"])
    lost = made - Counter(table.setting)
    return {
        "networks": len(record["networks"]),
        "settings": len(record["settings"]),
        "seeds": max(made.values()),
        "train_loss": f"{record['what']['train_loss']:g}",
        "lost": lost.total(),
        "lost_in": _listed(lost),
        "helped": helped.total(),
        "helped_in": _listed(helped),
        "draws": f"{record['what']['draws']:,}",
        "decayed_epochs": record["what"]["decayed_epochs"],
    }


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} of {name.replace('=', ' ')}" for name, count in counts.items())


def _summary(record: Mapping[str, Any]) -> str:
    counted = {title: Counter(claim["verdict"] for claim in claims) for title, claims in record["claims"].items()}
    rows = [(title, *(str(counts[verdict]) for verdict in VERDICTS)) for title, counts in counted.items()]
    total = sum(counted.values(), Counter[str]())
    return markdown(("claims of", *VERDICTS), [*rows, ("all", *(str(total[verdict]) for verdict in VERDICTS))])


def _not_held(record: Mapping[str, Any]) -> str:
    """What does not hold, in one list: the first that a reader asks for."""
    found = [
        f"- {claim['says']} ({title.partition(',')[0]}, {claim['where']})."
        for title, claims in record["claims"].items()
        for claim in claims
        if claim["verdict"] == DOES_NOT
    ]
    return "\n".join(["What does not hold of these networks:", "", *found]) if found else "Nothing was refuted."


def rows_of(claims: Sequence[Mapping[str, Any]]) -> str:
    """The claims of a paper, as a table."""
    rows = [(f"**{one['verdict']}**", one["says"], one["where"], seen(one), minus(one["claimed"])) for one in claims]
    return markdown(("verdict", "claim", "source", "seen", "claimed"), rows)


def seen(claim: Mapping[str, Any]) -> str:
    """The number with its interval, and what is behind it."""
    detail = f"; {claim['detail']}" if claim["detail"] else ""
    if claim["ci95"] is None:
        return f"{round(claim['value'] * claim['networks'])} of {claim['networks']} networks{minus(detail)}"
    trained, words = claim["trained"], ""
    if trained and trained["verdict"] != claim["verdict"]:
        words = f"; *by training alone* {minus(_interval(trained))}: **{trained['verdict']}**"
    return f"{claim['what']} {minus(_interval(claim) + detail)}{words}"


def _interval(found: Mapping[str, Any]) -> str:
    value, low, high = map(short, (found["value"], *found["ci95"]))
    return f"{value} [{low}, {high}]"
