"""From numbers to sentences: rules that read a finished report, each with its source, its conditions and its advice.

`rule.py` says what a rule is, `rules/` holds one per file in the order of their weight, `judge.py` lets all of them
speak, `unjudged.py` says what stays open. Pure functions of a `Report`: no torch, no file, no chance.
"""

from audit.findings.judge import first_page, judge
from audit.findings.rule import LEVELS, Rule, Verdict

__all__ = ["LEVELS", "Rule", "Verdict", "first_page", "judge"]
