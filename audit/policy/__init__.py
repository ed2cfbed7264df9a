"""The gate: a table of rules, a finished report, and what the one says about the other. Never wakes torch.

`read.py` reads rules from TOML, `paths.py` finds the numbers they name, `baseline.py` compares with an earlier report,
`judge.py` decides, `words.py` says so.
"""

from audit.policy.judge import judge
from audit.policy.read import default_policy, policy_in_force, read_policy
from audit.policy.rules import Policy, Rule, RuleResult, Verdict

__all__ = ["Policy", "Rule", "RuleResult", "Verdict", "default_policy", "judge", "policy_in_force", "read_policy"]
