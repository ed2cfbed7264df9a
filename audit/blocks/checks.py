"""What the report says about the self-checks and assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from audit.fields import says

CHECK_IDS = (
    *("duality-exact", "decomposition-closes", "basis-orthonormal", "bounds-hold"),
    *("rescaling-layers", "rescaling-neurons", "hessian-probe", "determinism", "single-precision"),
    *("piecewise-linear", "interpolation", "gradient-small", "gram-full-rank"),
)
"""Every check and assumption that an audit can make."""
PARITY = "parity"  # told like a self-check, though the report keeps it with the model


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was tried on the audited model itself, or one assumption that was looked at."""

    id: str
    kind: str = says(
        "check: a number is not to be trusted where it failed; assumption: the theory is not about this model"
    )
    title: str
    status: str = says("passed, failed or skipped")
    value: float | None = says("what was measured", default=None)
    tolerance: float | None = says("what it was held against", default=None)
    explanation: str
    affects: list[str] = says("blocks of the report that rest on it", default_factory=list)


def worst(id: str, title: str, value: float, tolerance: float, explanation: str, affects: list[str]) -> Check:
    """A check that passes where `value` is at most `tolerance`; a value that is no number fails."""
    if not math.isfinite(value):
        explanation = f"{explanation} It came out as no finite number."
    return Check(
        id=id,
        kind="check",
        title=title,
        status="passed" if value <= tolerance else "failed",
        value=float(value) if math.isfinite(value) else None,
        tolerance=float(tolerance),
        explanation=explanation,
        affects=affects,
    )


def skipped(id: str, title: str, why: str, affects: list[str], kind: str = "check") -> Check:
    """A check that could not be made here, and why."""
    return Check(id=id, kind=kind, title=title, status="skipped", explanation=why, affects=affects)
