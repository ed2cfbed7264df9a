"""Is the model as good as its architecture and its data allow? Beside networks that were trained anew."""

from __future__ import annotations

from audit.findings.beside import how_made, level_of
from audit.findings.rule import FindingRule, Observation
from audit.measures.report import Report
from audit.report.twins import Band, Twins


def find(report: Report) -> Observation | None:
    """Speaks wherever there is a band for the test error."""
    twins = report.twins
    band = None if twins is None else twins.test
    if twins is None or band is None:
        return None
    what = "test_loss" if report.model.task == "regression" else "test_error"
    evidence = tuple(f"twins.{what}.{key}" for key in ("value", "mean", "low", "high", "twins"))
    return (_worse if band.place == "above" else _fine)(report, twins, band, evidence)


def _worse(report: Report, twins: Twins, band: Band, evidence: tuple[str, ...]) -> Observation:
    return Observation(
        level="watch",
        title="Behind networks of its architecture that were trained anew on the same data",
        explanation=(
            f"{_measured(report, twins, band)} This model has {level_of(report, band.value)}. The same data and the "
            "same architecture allow more, so that the fault is likely in this model's training."
        ),
        advice=f"Train it again {how_made(twins)}, with another seed, and compare (`gen-audit compare`).",
        evidence=evidence,
    )


def _fine(report: Report, twins: Twins, band: Band, evidence: tuple[str, ...]) -> Observation:
    better = band.place == "below"
    return Observation(
        level="good",
        title=(
            "Better on test than networks of its architecture trained anew on the same data"
            if better
            else "As good on test as its architecture and its data allow"
        ),
        explanation=(
            f"{_measured(report, twins, band)} This model has {level_of(report, band.value)}"
            f"{'' if better else ': another seed would change it no more than that'}."
        ),
        advice="Training it once more in the same way is not likely to pay; other data or another architecture may.",
        evidence=evidence,
    )


def _measured(report: Report, twins: Twins, band: Band) -> str:
    low, high = (level_of(report, max(0.0, end)) for end in (band.low, band.high))
    what = "have a test loss" if report.model.task == "regression" else "are wrong on a share of test"
    return (
        f"{band.twins} networks trained anew {how_made(twins)}, down to the model's own train loss, {what} of "
        f"{level_of(report, band.mean)}; one more would lie between {low} and {high}, in 95 of 100 cases."
    )


RULE = FindingRule(
    id="beside-twins",
    title="Beside networks trained anew",
    meaning="Whether the model does on test what networks of its architecture do that are trained anew on its data.",
    conditions="with twins: watch: above their 95 % prediction interval; good: inside or below",
    source="Student's prediction interval; the networks were made for this model, see twins in the JSON.",
    origin="95 %: by chance alone one model in forty lies above, a natural limit.",
    cannot_tell="Whether another recipe would do better than all of them, unless it was among the kinds made.",
    find=find,
)
