"""`FindingRule`: what it is about, when it speaks, where its limits come from, and the function that decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from audit.maths import shares
from audit.maths.shares import balanced_accuracy, clearly_guessing, no_better_than_guessing
from audit.measures import Report
from audit.measures.gap.block import FITTED
from audit.report import Level
from audit.report.fields import Interval
from audit.report.numbers import interval, number, percent

NO_LIMIT = "There is no limit in it: it describes and does not judge."


@dataclass(frozen=True)
class Observation:
    """What a rule has to say about one report."""

    level: Level  # concern: a fault is shown; watch: a person should look; note: a fact without a scale; good: checked
    title: str  # one sentence
    explanation: str  # two to four sentences that stay true whatever the reader concludes
    advice: str  # what to do next, concretely
    evidence: tuple[str, ...]  # paths of the report's JSON, such as "layers[1].duality.sharp.share"


@dataclass(frozen=True)
class FindingRule:
    """One finding: its definition card and its code."""

    id: str
    title: str
    meaning: str
    conditions: str  # when it speaks, and with which level
    source: str  # paper, or what else the sentence leans on
    origin: str  # where its limits come from, with the error rate seen there
    find: Callable[[Report], Observation | None]  # None: nothing to say
    cannot_tell: str = ""
    rests_on: tuple[str, ...] = ()  # blocks of the report; where a self-check of one failed, the rule keeps silent


# Small pieces of sentences that several rules share.


def within(bounds: Interval, kind: str = "number") -> str:
    """The interval in brackets, or nothing where there is none."""
    return "" if bounds is None else f" (95 % interval {interval(bounds, kind)})"


def some(count: int, thing: str, things: str = "") -> str:
    """A count with its noun.

    >>> some(1, "label"), some(2, "label"), some(0, "class", "classes")
    ('1 label', '2 labels', '0 classes')
    """
    return f"{number(count)} {thing if count == 1 else things or f'{thing}s'}"


def listed(names: Sequence[str], most: int = 3, longest: int = 40) -> str:
    """The first of some names, long ones cut short.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    shown = [name if len(name) <= longest else f"{name[:longest]}…" for name in names[:most]]
    rest = [f"{number(len(names) - most)} more"] if len(names) > most else []
    parts = shown + rest
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"


def explained(r2: float | None) -> str:
    """A share of variance in words: below zero a constant answer would explain as much.

    >>> explained(0.8884), explained(-0.07)
    ('88.84 %', 'none (R² −0.07)')
    """
    return percent(r2) if r2 is None or r2 >= 0 else f"none (R² {number(r2)})"


def layer(name: str) -> str:
    """A layer's name as a sentence can hold it: a bare number, as in a sequence of layers, needs the word before it.

    >>> layer("fc1"), layer("2"), layer("net.2")
    ('fc1', 'layer 2', 'net.2')
    """
    return name if any(map(str.isalpha, name)) else f"layer {name}"


def sentence(words: str) -> str:
    """A reason from elsewhere in the report as a sentence: a capital letter, a full stop."""
    words = " ".join(words.split()) or "no reason is given"
    return f"{capital(words)}{'' if words.endswith(('.', '!', '?')) else '.'}"


def capital(words: str) -> str:
    """With a capital letter."""
    return f"{words[:1].upper()}{words[1:]}"


def label(report: Report) -> str:
    """What the right answer to a sample is called."""
    return "target" if report.model.task == "regression" else "label"


def unit(report: Report) -> str:
    """What has a right answer: a sample, or each of its positions."""
    return "position" if report.model.task == "tagging" else "sample"


def asked(report: Report, split: str) -> str:
    """How many answers a split asks for.

    Of positions it also says in how many samples: "186 train positions (in 60 samples)".
    """
    samples = (report.data.train if split == "train" else report.data.test).samples
    positions = report.gap.train_positions if split == "train" else report.gap.test_positions
    if positions is None:
        return some(samples, f"{split} sample")
    return f"{some(positions, f'{split} position')} (in {some(samples, 'sample')})"


def scores(report: Report) -> str:
    """What the numbers that a model answers with are called: only those of classes are scores."""
    word = "output" if report.model.task == "regression" else "score"
    return word if report.model.outputs == 1 else f"{word}s"


# What no sentence may be built on: a test split that is in train, a wrongly fed model, failed self-checks.


FOR_THEORY = ("gradient-small", "interpolation")  # checks of what the source studies assume of every model
NEEDS_DATA = "these test samples are also in the train data, so they are not unseen"
NEEDS_FEEDING = "the samples or the order of the classes are probably not as in training"
NEEDS_INPUT = "the model does no better than guessing on its own train data, so it is probably fed the wrong input"


def broken_blocks(report: Report) -> set[str]:
    """Blocks of the report that no finding may rest on: a self-check of theirs failed, or the gap is void."""
    failed = (check for check in report.checks if check.kind == "check" and check.status == "failed")
    blocks = {block for check in failed for block in check.affects}
    return blocks | ({"gap"} if why_no_gap(report) else set())


def why_no_gap(report: Report) -> str | None:
    """Why the gap says nothing about unseen data; None where it does."""
    if report.hygiene is not None and report.hygiene.leaked.void:
        return NEEDS_DATA
    if fed_otherwise(report):
        return NEEDS_FEEDING
    return NEEDS_INPUT if guesses(report) else None


def fed_otherwise(report: Report) -> bool:
    """Whether another preprocessing or another order of the classes suits the model much better."""
    doctor = report.doctor
    return doctor is not None and (doctor.preferred is not None or doctor.misordered is not None)


def guesses(report: Report) -> bool:
    """Whether the model is no better than guessing on its own train data.

    Balanced accuracy, the mean over classes of the share answered right, is 1/C for any guess, however skewed; for
    regression, always answering the mean explains nothing of the variance.
    """
    if report.model.task == "regression":
        return report.gap.train_r2 is not None and report.gap.train_r2 <= 0
    present = _trained(report)
    return bool(present) and no_better_than_guessing(present, chance(report))


def balanced_train_accuracy(report: Report) -> float | None:
    """The mean over classes of the share of train samples answered right; None without classes."""
    present = _trained(report)
    return balanced_accuracy(present) if present else None


def guesses_on_test(report: Report) -> bool:
    """Whether a classifier is no better than guessing on test, with enough samples there to see a better one."""
    rows = [(min(row.test_samples, report.data.test.samples), row.test_error) for row in report.gap.per_class]
    present = [(samples, error) for samples, error in rows if samples and error is not None]
    return bool(present) and clearly_guessing(present, chance(report))


def chance(report: Report) -> float:
    """The share of right answers, balanced over classes, of any guess."""
    return shares.chance(report.data.classes)


def _trained(report: Report) -> list[tuple[int, float]]:
    """Samples and error of each class in train; of positions, as if a sample were one piece of evidence at most."""
    rows = [(min(row.train_samples, report.data.train.samples), row.train_error) for row in report.gap.per_class]
    return [(samples, error) for samples, error in rows if samples and error is not None]


def above_zero(bounds: tuple[float, float] | None) -> bool:
    """Whether an interval lies above zero."""
    return bounds is not None and bounds[0] > 0


def below_zero(bounds: tuple[float, float] | None) -> bool:
    """Whether an interval lies below zero."""
    return bounds is not None and bounds[1] < 0


def gap_is_real(report: Report) -> bool:
    """Whether the model is worse on test than chance explains: wrong answers or, for regression, the loss."""
    gap = report.gap
    return above_zero(gap.loss_gap_ci95 if gap.error_gap is None else gap.error_gap_ci95)


def fits_train(report: Report) -> bool:
    """Whether the model answers nearly all of its train samples rightly, as those of the source studies do."""
    return report.gap.train_error is not None and report.gap.train_error <= FITTED


def labels_in_doubt(report: Report) -> bool:
    """Whether the neighbours contradict more train labels than chance explains."""
    return report.hygiene is not None and above_zero(report.hygiene.suspected_mislabels.estimated_rate_ci95)


def unfit_for_theory(report: Report) -> list[int]:
    """Places of the failed checks whether the model fits its train data and is at rest, as the source studies ask."""
    return [
        place
        for place, check in enumerate(report.checks)
        if check.id in FOR_THEORY and check.status == "failed" and None not in (check.value, check.tolerance)
    ]
