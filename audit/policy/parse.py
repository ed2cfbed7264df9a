"""Reads a policy: the `[policy]` table of a gen-audit.toml, or of `[tool.gen-audit]` in a pyproject.toml.

A table is a rule, and its name is the path of what it is about; quoted or not makes no difference:

    [policy.gap.error_gap]
    max = 0.05
    inconclusive = "warn"
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from audit.errors import AuditError, UsageError
from audit.findings.rules import RULES
from audit.measures import KNOWN_PATHS, Report
from audit.policy import Bound, Consequence, Level, Policy, Rule, Verdict
from audit.report.blocks import CHECK_IDS, PARITY
from audit.settings.config import POLICY, ConfigFile, read_document

PERCENTILE = "max_percentile"
LIMITS: tuple[Bound, ...] = ("max", "min", "max_regression", "is")
CHOICES = {
    "level": get_args(Level),
    "inconclusive": get_args(Consequence),
    "not_measurable": get_args(Consequence),
    "no_baseline": get_args(Consequence),
    "fails_at": ("note", "watch", "concern"),
}
CONSEQUENCES = ("level", "inconclusive", "not_measurable", "no_baseline")
DEFAULT = Path(__file__).parent / "default.toml"


def read_policy(path: Path) -> Policy:
    """The policy that a file holds, or a sentence that says what is wrong with it."""
    table = policy_table(path)
    if table is None:
        raise UsageError(f"{path}: has no [policy] table; `gen-audit init` writes one to start from.")
    return parse_policy(table, str(path))


def policy_in_force(named: Path | None, files: Iterable[ConfigFile]) -> Policy:
    """The policy named by the user, else the first among the configuration files, else the default.

    One that lies with the data is refused, not passed over: somebody relies on it, or wants the gate opened.
    """
    if named is not None:
        return read_policy(named)
    for file in files:
        if policy_table(file.path) is None:
            continue
        if file.place == "data":
            raise UsageError(
                f"{file.path}: holds a [policy], and rules that come with the data do not judge the model by "
                f"themselves; pass --policy {file.path} if they are yours, or remove them."
            )
        return read_policy(file.path)
    return default_policy()


def default_policy() -> Policy:
    """The rules that apply where no policy is given: those that `gen-audit init` writes."""
    return parse_policy(policy_table(DEFAULT) or {}, "the default policy")


def policy_table(path: Path) -> Mapping[str, Any] | None:
    """The `[policy]` table of a file as it stands; None where it has none."""
    table = read_document(path).get(POLICY)
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{path}: policy is {table!r}, not a table; write rules as [policy.gap.error_gap].")
    return table


def parse_policy(table: Mapping[str, Any], where: str) -> Policy:
    """Rules from the nested tables of TOML."""
    tables = list(_tables(table, (), where))
    if not tables:
        raise UsageError(f"{where}: [policy] has no rule; `gen-audit init` writes some to start from.")
    for place, (path, _) in enumerate(tables):
        if path in [earlier for earlier, _ in tables[:place]]:
            raise UsageError(f"{where}: [policy.{path}] stands there twice; write all its limits into one table.")
    rules = tuple(rule for path, keys in tables for rule in _rules(path, keys, f"{where}: [policy.{path}]"))
    for rule in rules:
        check_rule(rule, f"{where}: [policy.{rule.path}]")
    return Policy(rules, where)


def _tables(table: Mapping[str, Any], path: tuple[str, ...], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table that holds keys of its own, or nothing at all, with the path that its name spells."""
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    keys = {name: value for name, value in table.items() if name not in inner}
    if keys and not path:
        raise UsageError(
            f"{where}: [policy] {next(iter(keys))!r} stands outside a rule; write it under [policy.<path>]."
        )
    if path and (keys or not inner):
        yield ".".join(path), keys
    for name, value in inner.items():
        yield from _tables(value, (*path, name), where)


def _rules(path: str, keys: Mapping[str, Any], where: str) -> Iterator[Rule]:
    """One rule for each limit in a table."""
    kind = path.split(".")[0]
    allowed = {"check": (), "finding": ("fails_at",)}.get(kind, (*LIMITS, PERCENTILE, "inconclusive", "no_baseline"))
    _check_keys(keys, (*allowed, "level", "not_measurable"), where)
    common = {name: keys[name] for name in CONSEQUENCES if name in keys}
    if kind == "check":
        yield Rule(path, "status", **common)
    elif kind == "finding":
        yield Rule(path, "fails_at", keys.get("fails_at", "watch"), **common)
    else:
        yield from _limits(path, keys, common, where)


def _limits(path: str, keys: Mapping[str, Any], common: Mapping[str, Any], where: str) -> Iterator[Rule]:
    if PERCENTILE in keys:  # of a number that stands beside its twins
        yield Rule(f"{path}.percentile", "max", *_limit("max", keys[PERCENTILE], where), **common)
        if not any(bound in keys for bound in LIMITS):
            return
    given = [bound for bound in LIMITS if bound in keys]
    if not given and common.get("level") != "off":
        raise UsageError(f"{where} sets no limit; give it {', '.join(LIMITS[:-1])} or {LIMITS[-1]}.")
    for bound in given or LIMITS[:1]:
        limit, relative = _limit(bound, keys.get(bound), where) if given else (None, False)
        yield Rule(path, bound, limit, relative, **common)


def _limit(bound: Bound, value: Any, where: str) -> tuple[float | str | bool, bool]:
    """The limit, and whether it is a share of the baseline's number."""
    if bound == "is":
        if not isinstance(value, (bool, str)):
            raise UsageError(
                f'{where} is = {value!r}: "is" takes a word, true or false; for a number give max and min.'
            )
        return value, False
    if isinstance(value, (int, float)) and abs(value) > sys.float_info.max:
        raise UsageError(f"{where} {bound}: the number is too large.")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value):
        return float(value), False
    share = re.fullmatch(r"(\d{1,9}\.?\d*|\.\d+) *%", value, re.ASCII) if isinstance(value, str) else None
    if bound == "max_regression" and share:
        return float(share[1]) / 100, True
    hint = ', or a share of the baseline\'s as "10%"' if bound == "max_regression" else ""
    raise UsageError(f"{where} {bound} = {value!r} is not a number{hint}.")


def _check_keys(keys: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key, value in keys.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.0)[0]
            raise UsageError(f"{where} has no key {key!r}; the nearest one is {near!r}.")
        if key in CHOICES and value not in CHOICES[key]:
            raise UsageError(f"{where} {key} = {value!r} is not one of {', '.join(CHOICES[key])}.")


# Refuses a rule that could never be judged, before any audit is made: unknown names and limits of the wrong kind.


def check_rule(rule: Rule, where: str) -> None:
    """A sentence that begins with `where` unless some report could be held against this rule."""
    if any("*" in part and part != "*" for part in rule.path.split(".")):
        raise UsageError(f'{where}: "*" stands for each member and stands alone; name one, or write "*".')
    kind, _, id = rule.path.partition(".")
    if kind == "check":
        _check_id(id, (PARITY, *CHECK_IDS), kind, where)
    elif kind == "finding":
        _check_id(id, [known.id for known in RULES], kind, where)
    else:
        KNOWN_PATHS.check(rule.path, where)
        _check_limit(rule, where)


def _check_id(id: str, known: Iterable[str], kind: str, where: str) -> None:
    if id != "*" and id not in known:
        near = difflib.get_close_matches(id, sorted(known), n=1, cutoff=0.0)[0]
        raise UsageError(f"{where}: there is no {kind} {id!r}; the nearest one is {near!r}.")


def _check_limit(rule: Rule, where: str) -> None:
    """Numbers take max, min and max_regression; words, true and false take `is`."""
    kinds = KNOWN_PATHS.kinds_of(rule.path)
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


# Policies as a program writes them, and what it catches when a release fails one.


PolicyLike = Policy | Mapping[str, Any] | Path | str | None


def as_policy(policy: PolicyLike) -> Policy:
    """A policy as it is, from a file, from rules such as `{"gap.error_gap": {"max": 0.05}}`, or the default."""
    if policy is None:
        return default_policy()
    if isinstance(policy, Mapping):
        return parse_policy(policy, "policy")
    if isinstance(policy, (str, Path)):
        return read_policy(Path(policy))
    if not isinstance(policy, Policy):
        raise UsageError(f"policy: {policy!r} is none; give a Policy, a file, or rules in a dictionary.")
    for rule in policy.rules:
        check_rule(rule, f"policy: [policy.{rule.path}]")
    return policy


def as_baseline(baseline: Report | None) -> Report | None:
    """The earlier report, or a sentence for what is none, such as the name of its file."""
    if baseline is not None and not isinstance(baseline, Report):
        raise UsageError(f"baseline: {baseline!r} is no Report; Report.from_json(text) makes one of a report.json.")
    return baseline


class PolicyFailed(AuditError):
    """A release that its policy does not let through; `report` and `verdict` say why."""

    exit_code = 1

    def __init__(self, report: Report, verdict: Verdict) -> None:
        self.report, self.verdict = report, verdict
        failed = verdict.that("fail")
        named = "; ".join(f"{result.id}: {result.sentence}" for result in failed)
        super().__init__(f"{report.model.path}: fails {len(failed)} of {len(verdict.results)} rules: {named}.")
