"""Is the model right as often as it says? For regression: do its errors on test stay within those on train?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation, above_zero, below_zero, some, unit, within
from audit.measures import Report
from audit.measures.calibration.block import Confidence, ConfidenceBin, Coverage, OutputErrors, Scaling
from audit.report import Level
from audit.report.numbers import interval, number, percent, points, share

LARGE = 0.05  # five percentage points: in one of twenty cases
WIDEST = "share-95"  # the coverage that is judged: of what 95 % of the train errors keep to
P = "calibration.test"


def find(report: Report) -> Observation | None:
    """Confidence where there is one, else the sizes of errors."""
    block = report.calibration
    if block is None:
        return None
    return _of_errors(report, block.outputs) if block.test is None else _of_confidence(report, block.test)


def _of_confidence(report: Report, test: Confidence) -> Observation | None:
    bounds, error = test.overconfidence_ci95, test.ece_ci95
    if bounds is None or error is None:
        return None
    if above_zero(bounds):
        return _off("Too sure of itself", "watch" if bounds[0] > LARGE else "note", report, test)
    if below_zero(bounds):
        return _off("Less sure than it could be", "note", report, test)
    if above_zero(error):
        return _off("Sure in the wrong places", "watch" if error[0] > LARGE else "note", report, test)
    return _fits(report, test) if max(abs(bounds[0]), abs(bounds[1])) <= LARGE else None


def _off(what: str, level: Level, report: Report, test: Confidence) -> Observation:
    told, scaling = _telling_bin(test), None if report.calibration is None else report.calibration.scaling
    words, where = (_when(told), f"{P}.bins[{test.worst_bin}]") if told else (_on_average(test), P)
    told_apart = above_zero(test.overconfidence_ci95) or below_zero(test.overconfidence_ci95)
    temperature = _temperature(scaling) if scaling is not None and told_apart else None
    return Observation(
        level=level,
        title=f"{what}: {words}",
        explanation=f"{_measured(report, test)} {temperature or _error(test)}",
        advice=f"{'Do not let' if level == 'watch' else 'Where'} decisions rest on its probabilities: {REMEDY}",
        evidence=(
            *(f"{P}.{name}" for name in ("overconfidence", "overconfidence_ci95", "ece", "ece_ci95")),
            *(f"{where}.{name}" for name in ("confidence", "accuracy", "accuracy_ci95")),
            f"{P}.ece_if_calibrated",
            *(("calibration.scaling.temperature",) if temperature else ()),
        ),
    )


REMEDY = "fit one temperature on samples that nothing is tested on."


def _fits(report: Report, test: Confidence) -> Observation:
    return Observation(
        level="good",
        title="The model is right about as often as it says",
        explanation=(
            f"{_measured(report, test)} Its expected calibration error of {percent(test.ece)} is what a perfectly "
            f"calibrated model with these confidences may show, too "
            f"({interval(test.ece_if_calibrated_ci95, 'percent')})."
        ),
        advice="Nothing to do; on data from elsewhere its probabilities may still be off.",
        evidence=tuple(f"{P}.{name}" for name in ("overconfidence", "overconfidence_ci95", "ece", "ece_if_calibrated")),
    )


def _measured(report: Report, test: Confidence) -> str:
    answered = some(test.samples, f"test {unit(report)}")
    return (
        f"On {answered} it says {percent(test.confidence)} on average and is right on "
        f"{percent(test.accuracy)}, a difference of {points(test.overconfidence)}"
        f"{within(test.overconfidence_ci95, 'points')}."
    )


def _error(test: Confidence) -> str:
    return (
        f"Its expected calibration error is {percent(test.ece)}; chance alone gives a calibrated model "
        f"{percent(test.ece_if_calibrated)}."
    )


def _temperature(scaling: Scaling) -> str | None:
    if scaling.temperature is None:
        return None
    found = f"{number(scaling.temperature)}{within(scaling.temperature_ci95)}"
    return f"Its scores divided by {found} fit these samples best."


def _telling_bin(test: Confidence) -> ConfidenceBin | None:
    """The bin that is off most, where it is off to the same side as the whole."""
    if test.worst_bin is None or not 0 <= test.worst_bin < len(test.bins):
        return None
    told, bounds = test.bins[test.worst_bin], test.overconfidence_ci95
    against = below_zero(bounds) if told.confidence > told.accuracy else above_zero(bounds)
    return None if against else told


def _when(told: ConfidenceBin) -> str:
    said, right = in_words(told.confidence, told.accuracy)
    return f"when the model says {said}, it is right in {right} cases"


def _on_average(test: Confidence) -> str:
    said, right = in_words(test.confidence, test.accuracy)
    return f"on average the model says {said} and is right in {right} cases"


def in_words(confidence: float, accuracy: float) -> tuple[str, str]:
    """What is said and what is right, with as many digits as tell them apart, and what is said from certainty.

    >>> in_words(0.8971, 0.78), in_words(0.9961, 0.9954), in_words(0.9961, 0.71), in_words(1.0, 0.9)
    (('90 %', '78 of 100'), ('99.6 %', '995 of 1,000'), ('99.6 %', '71 of 100'), ('100 %', '90 of 100'))
    """
    apart = [digits for digits in (0, 1, 2) if round(confidence, digits + 2) != round(accuracy, digits + 2)]
    digits = apart[0] if apart else 0
    base = 100 * 10**digits
    below = [f"{100 * confidence:.{more}f} %" for more in range(digits, 3) if round(confidence, more + 2) < 1]
    return below[0] if below else "100 %", f"{number(round(base * accuracy))} of {number(base)}"


# Regression.


def _of_errors(report: Report, outputs: list[OutputErrors]) -> Observation | None:
    """Judged by the output whose large errors are most frequent on test."""
    found = [
        (part.difference_ci95, place, row, part)
        for place, output in enumerate(outputs)
        for row, part in enumerate(output.coverage)
        if part.id == WIDEST and part.difference_ci95 is not None
    ]
    if not found:
        return None
    bounds, place, row, part = min(found, key=lambda each: each[0][1])
    path = f"calibration.outputs[{place}].coverage[{row}]"
    names = ("train_within", "test_within", "difference", "difference_ci95", "limit")
    evidence = tuple(f"{path}.{name}" for name in names)
    which = f" of output {number(outputs[place].output + 1)}" if report.model.outputs > 1 else ""
    if below_zero(bounds):
        return _wider(part, "watch" if bounds[1] < -LARGE else "note", which, len(found), evidence)
    near = all(abs(end) <= LARGE for ends, *_ in found for end in ends)
    return _as_wide(part, which, evidence) if near else None


def _wider(part: Coverage, level: Level, which: str, outputs: int, evidence: tuple[str, ...]) -> Observation:
    beyond, more = 1 - part.train_within, 1 - part.test_within
    show = share if share(beyond) != share(more) else percent
    looked = f" It is the worst of {number(outputs)} outputs, so that chance had as many tries." if outputs > 1 else ""
    return Observation(
        level=level,
        title=f"Errors{which} that {show(beyond)} of train samples exceed are exceeded by {show(more)} of test samples",
        explanation=(
            f"{_held(part, which)} Error bars taken from train errors are too small for such samples.{looked}"
        ),
        advice="Take error bars from samples that the model was not trained on.",
        evidence=evidence,
    )


def _as_wide(part: Coverage, which: str, evidence: tuple[str, ...]) -> Observation:
    return Observation(
        level="good",
        title="Large errors are about as frequent on test as on train",
        explanation=f"{_held(part, which)} Error bars taken from train errors hold on these samples.",
        advice="Nothing to do; on data from elsewhere errors may still be larger.",
        evidence=evidence,
    )


def _held(part: Coverage, which: str) -> str:
    return (
        f"{percent(part.train_within)} of the train samples and {percent(part.test_within)} of the test samples have "
        f"errors{which} of at most {number(part.limit)}, a difference of {points(part.difference)}"
        f"{within(part.difference_ci95, 'points')}."
    )


RULE = FindingRule(
    id="calibration",
    title="Confidence and errors",
    meaning="Whether the model is right as often as it says; for regression, whether test errors are those of train.",
    conditions=(
        "note: the 95 % interval of mean confidence minus accuracy on test excludes 0, or the expected calibration "
        "error is beyond 95 % of calibrated models; watch: that interval, or the calibration error's, beyond chance "
        f"above {number(LARGE)}; good: neither, and the interval lies within ±{number(LARGE)}. Regression: the same of "
        "the share of test errors beyond what 95 % of the train errors keep to, minus that of train"
    ),
    source="Counting; Guo et al. (2017).",
    origin=(
        "A 95 % interval, which misses one truth in twenty; five percentage points are a convention, not calibrated on "
        "networks, so that it is never a concern."
    ),
    cannot_tell="Whether decisions rest on the probabilities: where only the answers are used, they do no harm.",
    find=find,
    rests_on=("gap", "calibration"),
)
