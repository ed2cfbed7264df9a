"""`FindingRule`: what it is about, when it speaks, where its limits come from, and the function that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from audit.measures.report import Report
from audit.report.report import Level

NO_LIMIT = "There is no limit in it: it describes and does not judge."


@dataclass(frozen=True)
class Observation:
    """What a rule has to say about one report."""

    level: Level  # concern: a fault is shown; watch: a person should look; note: a fact without a scale; good: checked
    title: str  # one sentence
    explanation: str  # two to four sentences that stay true whatever the reader concludes
    advice: str  # what to do next, concretely
    evidence: tuple[str, ...]  # paths of the report's JSON, such as "layers[1].duality.sharp.share"


@dataclass(frozen=True)
class FindingRule:
    """One finding: its definition card and its code."""

    id: str
    title: str
    meaning: str
    conditions: str  # when it speaks, and with which level
    source: str  # paper, or what else the sentence leans on
    origin: str  # where its limits come from, with the error rate seen there
    find: Callable[[Report], Observation | None]  # None: nothing to say
    cannot_tell: str = ""
    rests_on: tuple[str, ...] = ()  # blocks of the report; where a self-check of one failed, the rule keeps silent
