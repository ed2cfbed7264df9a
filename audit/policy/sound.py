"""Refuses a rule that could never be judged, before any audit is made: unknown names and limits of the wrong kind."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from audit.blocks.checks import CHECK_IDS, PARITY
from audit.errors import UsageError
from audit.policy.paths import check_path, kinds_of
from audit.policy.rules import Rule


def check_rule(rule: Rule, where: str) -> None:
    """A sentence that begins with `where` unless some report could be held against this rule."""
    if any("*" in part and part != "*" for part in rule.path.split(".")):
        raise UsageError(f'{where}: "*" stands for each member and stands alone; name one, or write "*".')
    kind, _, id = rule.path.partition(".")
    if kind == "check":
        _check_id(id, (PARITY, *CHECK_IDS), kind, where)
    elif kind == "finding":
        from audit.findings.rules import RULES

        _check_id(id, [known.id for known in RULES], kind, where)
    else:
        check_path(rule.path, where)
        _check_limit(rule, where)


def _check_id(id: str, known: Iterable[str], kind: str, where: str) -> None:
    if id != "*" and id not in known:
        near = difflib.get_close_matches(id, sorted(known), n=1, cutoff=0.0)[0]
        raise UsageError(f"{where}: there is no {kind} {id!r}; the nearest one is {near!r}.")


def _check_limit(rule: Rule, where: str) -> None:
    """Numbers take max, min and max_regression; words, true and false take `is`."""
    kinds = kinds_of(rule.path)
    if "any" in kinds or rule.level == "off":
        return
    if rule.bound != "is":
        if "number" not in kinds:
            raise UsageError(f"{where} {rule.bound}: {rule.path} is no number; use `is`.")
    elif not kinds & {"word", "boolean"}:
        raise UsageError(f"{where} is = {rule.limit!r}: {rule.path} is a number; give max or min.")
    elif isinstance(rule.limit, str) and "word" not in kinds:
        raise UsageError(f"{where} is = {rule.limit!r}: {rule.path} is true or false, without quotation marks.")
    elif isinstance(rule.limit, bool) and "boolean" not in kinds:
        raise UsageError(f"{where} is = {str(rule.limit).lower()}: {rule.path} is a word; put one in quotation marks.")
