"""From numbers to sentences: rules that read a finished report, each with its source, its conditions and its advice.

`rule.py` says what a rule is, `rules/` holds one per file in the order of their weight, `findings.py` lets all of them
speak and says what stays open. Pure functions of a `Report`: no torch, no file, no chance.
"""

from audit.findings.findings import add_findings, first_page
from audit.findings.rule import FindingRule, Observation

__all__ = ["FindingRule", "Observation", "add_findings", "first_page"]
