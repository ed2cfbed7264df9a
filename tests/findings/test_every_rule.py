"""What holds for every rule, on every report: a new rule is picked up by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from mutations import SEEDS, example, mutated, plain

from audit.findings import add_findings, first_page
from audit.findings.rules import RULES
from audit.measures import Report
from audit.render.cards import find_cards
from audit.report import LEVELS, Finding

CLAIMS = re.compile(
    r"\b(causes?d?|due to|leads? to|led to|proves?d?|results? (in|from)|improve[sd]?|reduce[sd]?|shr[ai]nks?|"
    r"guarantees?|means that the model)\b",
    re.IGNORECASE,
)
HEDGES = ("suggests", "consistent with", "in the source study", "can be chance", "likely")
NO_WORDS = re.compile(r"\b(nan|NaN|None|null|inf|Infinity)\b")
SENTENCE_END = re.compile(r"[.?!](?= [A-Z0-9`]|$)")

many = settings(max_examples=100, deadline=None)


def test_ids_are_unique_and_fit_a_policy_and_a_path() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", id) for id in ids)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_card_that_says_when_it_speaks_and_where_its_limits_come_from(rule: Any) -> None:
    (card,) = find_cards(f"findings.{rule.id}")
    assert (card.id, card.formula, card.source) == (f"findings.{rule.id}", rule.conditions, rule.source)
    assert rule.origin in card.variant
    assert rule.meaning.endswith(".") and rule.meaning.startswith(("Whether", "How", "In which"))
    assert set(re.findall(r"\b(?:concern|watch|note|good)\b", rule.conditions)), "the conditions name no level"
    assert re.search(r"\d|limit|fact|natural|convention|counted", rule.origin, re.IGNORECASE)


@many
@given(seed=SEEDS)
def test_whatever_the_numbers_are_the_findings_are_sound(seed: int) -> None:
    judged = add_findings(mutated(seed))
    document = plain(judged)
    for finding in judged.findings:
        check_words(finding)
        for path, value in finding.evidence.items():
            assert value is not None and at(document, path) == value, path
    check_order(judged.findings)
    for question in judged.not_judged:
        assert question.what and question.why.endswith((".", "!", "?"))
        assert not NO_WORDS.search(f"{question.what} {question.why}")


def test_no_rule_is_idle() -> None:
    """Every rule speaks on some report, with every level that its conditions name: the tests here do reach it."""
    spoken = {(finding.id, finding.level) for seed in range(1500) for finding in add_findings(mutated(seed)).findings}
    named = {(rule.id, level) for rule in RULES for level in LEVELS if re.search(rf"\b{level}\b", rule.conditions)}
    assert spoken == named


@many
@given(seed=SEEDS)
def test_sentences_about_the_gap_follow_its_sign(seed: int) -> None:
    report = mutated(seed)
    found = {finding.id: finding for finding in add_findings(report).findings}
    gap = report.gap
    bounds = gap.error_gap_ci95 if gap.error_gap is not None else gap.loss_gap_ci95
    if "gap" in found:
        title = found["gap"].title
        assert ("more often than" in title or "is further off than" in title) == (bounds is not None and bounds[0] > 0)
        assert ("less" in title) == (bounds is not None and bounds[1] < 0)
    from_the_gap = () if report.twins is not None else ("few-train-samples",)  # twins have a learning curve
    for id in ("steep-gap", "flat-gap", "gap-layers", *from_the_gap):
        assert id not in found or (bounds is not None and bounds[0] > 0), id
    if "underfit" in found and gap.train_error is not None:
        assert gap.train_error > 0.01
    assert not {"steep-gap", "flat-gap"} <= set(found)
    assert not {"flat-gap", "mislabelled"} <= set(found)


@many
@given(seed=SEEDS)
def test_judging_twice_changes_nothing(seed: int) -> None:
    once = add_findings(mutated(seed))
    assert add_findings(once) == once


@pytest.mark.parametrize("name", ["example", "regression"])
def test_an_audit_with_nothing_left_out_fills_the_first_page_and_is_read_back_as_written(name: str) -> None:
    judged = add_findings(example(name))
    assert 3 <= len(first_page(judged.findings)) <= 6
    assert Report.from_json(judged.to_json()) == judged


def check_words(finding: Finding) -> None:
    text = f"{finding.title}. {finding.explanation} {finding.advice}"
    assert finding.title and not finding.title.endswith("."), finding.id
    assert not NO_WORDS.search(text), text
    assert "{" not in re.sub(r"\{value\}", "", text), text
    assert finding.explanation.endswith((".", "?")) and finding.advice.endswith("."), finding.id
    assert 2 <= len(SENTENCE_END.findall(finding.explanation)) <= 5, finding.explanation
    for sentence in re.split(r"(?<=[.?!]) ", text):
        if CLAIMS.search(sentence):
            assert any(hedge in sentence.lower() for hedge in HEDGES), sentence


def from_twins(finding: Finding) -> bool:
    return finding.level == "watch" and any(path.startswith("twins.") for path in finding.evidence)


def check_order(findings: list[Finding]) -> None:
    levels = [LEVELS.index(finding.level) for finding in findings]  # type: ignore[arg-type]
    assert levels == sorted(levels)
    for level in range(len(LEVELS)):
        of_level = [finding for finding, own in zip(findings, levels, strict=True) if own == level]
        places = [(not from_twins(finding), place(finding.id)) for finding in of_level]
        assert places == sorted(places)
    shown = [finding for finding in findings if finding.first_page]
    assert shown == first_page(findings) and len(shown) <= 6
    hidden = [finding for finding in findings if not finding.first_page]
    assert len(shown) == 6 or not any(finding.level in ("concern", "watch", "good") for finding in hidden)


def place(id: str) -> int:
    return [rule.id for rule in RULES].index(id)


def at(document: Any, path: str) -> Any:
    """What stands at a path of the JSON, found without gen-audit's own lookup."""
    for step in re.sub(r"\[(\d+)\]", r".\1", path).split("."):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document
