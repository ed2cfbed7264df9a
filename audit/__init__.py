"""gen-audit: will this model hold up on data it has not seen, and why or why not?

From Python: `from audit import audit_model`. Each name is loaded when it is first asked for, so that nothing here wakes
torch before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.api import Report as Report
    from audit.api import audit_model as audit_model
    from audit.api import make_twins as make_twins
    from audit.errors import AuditError as AuditError
    from audit.policy import Policy as Policy
    from audit.policy import Rule as Rule
    from audit.policy import Verdict as Verdict
    from audit.policy.parse import PolicyFailed as PolicyFailed

__version__ = "0.1.0"

_HOMES = {
    "AuditError": "audit.errors",
    "Policy": "audit.policy",
    "PolicyFailed": "audit.policy.parse",
    "Report": "audit.api",
    "Rule": "audit.policy",
    "Verdict": "audit.policy",
    "audit_model": "audit.api",
    "make_twins": "audit.api",
}

__all__ = [
    "AuditError",
    "Policy",
    "PolicyFailed",
    "Report",
    "Rule",
    "Verdict",
    "__version__",
    "audit_model",
    "make_twins",
]


def __getattr__(name: str) -> Any:
    """The public names, from where they live."""
    if name not in _HOMES:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
