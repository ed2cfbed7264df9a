"""Small pieces of sentences that several rules share."""

from __future__ import annotations

from collections.abc import Sequence

from audit.measures.report import Report
from audit.report.fields import Interval
from audit.report.numbers import interval, number, percent


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
