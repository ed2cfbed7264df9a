"""The gate: a table of rules, a finished report, and what the one says about the other. Never wakes torch.

`rules.py` says what a policy and a verdict are, `parse.py` reads rules from TOML or takes them from a program and
refuses those that no report could be held against, `baseline.py` compares with an earlier report, `judge.py` decides.
"""

from audit.policy.judge import judge
from audit.policy.parse import default_policy, policy_in_force, read_policy
from audit.policy.rules import Policy, Rule, RuleResult, Verdict

__all__ = ["Policy", "Rule", "RuleResult", "Verdict", "default_policy", "judge", "policy_in_force", "read_policy"]
