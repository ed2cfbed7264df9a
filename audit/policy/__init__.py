"""The gate: a table of rules, a finished report, and what the one says about the other. Never wakes torch.

`read.py` reads rules from TOML, `paths.py` knows what they may name, `sound.py` refuses the others, `lookup.py` finds
it in a report, `limits.py` holds an interval against a limit, `baseline.py` compares with an earlier report,
`statements.py` reads self-checks and findings, `judge.py` decides, `words.py` says so; `given.py` takes policies from a
program.
"""

from audit.policy.judge import judge
from audit.policy.parse import default_policy, policy_in_force, read_policy
from audit.policy.rules import Policy, Rule, RuleResult, Verdict

__all__ = ["Policy", "Rule", "RuleResult", "Verdict", "default_policy", "judge", "policy_in_force", "read_policy"]
