"""Labels as stored, in a neutral form: int64 or float64 numbers, or indices into class names; no task assumed yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from audit.data.dataset import Array, Rows
from audit.errors import DataError


class UnnamedClasses(DataError):
    """Labels that an order of classes leaves out."""

    def __init__(self, labels: tuple[str, ...], where: str) -> None:
        self.subject = f"{where}: the labels {listed(labels)}"
        super().__init__(f"{self.subject} are missing from --classes; name every class, in order.")


@dataclass(frozen=True)
class Labels:
    """The labels of both splits as stored, and the folder to name when they make no sense."""

    train: Array
    test: Array
    names: tuple[str, ...] | None
    path: Path
    notes: tuple[str, ...] = ()

    @property
    def both(self) -> tuple[Array, Array]:
        """Train and test, in this order."""
        return self.train, self.test

    @property
    def values(self) -> list[int]:
        """The distinct whole numbers among them."""
        return [int(value) for value in np.unique(np.concatenate(self.both))]

    @property
    def whole(self) -> bool:
        """Whether all of them are integers."""
        return is_whole(self.train) and is_whole(self.test)


def neutral(raw: Array, where: str) -> Array:
    """Labels [n] or [n, k] as int64, float64 or text; a lone second axis is dropped."""
    labels = raw.reshape(len(raw)) if raw.size == len(raw) else raw
    if labels.ndim not in (1, 2):
        raise DataError(
            f"{where}: labels have shape {raw.shape}; expected one label, or one row of targets, per sample."
        )
    kind = labels.dtype.kind
    if kind in "biu":
        if labels.size and labels.max() > np.iinfo(np.int64).max:
            raise DataError(f"{where}: holds the label {labels.max()}, which is too large; number classes from 0.")
        return labels.astype(np.int64)
    if kind == "f":
        return _finite(labels.astype(np.float64), where)
    if kind == "U" and labels.ndim == 1:
        return labels
    if kind == "S" and labels.ndim == 1:
        return np.char.decode(labels, "utf-8", "replace")
    raise DataError(
        f"{where}: labels of type {labels.dtype} and shape {labels.shape} are neither numbers nor class names."
    )


def _finite(labels: Array, where: str) -> Array:
    bad = np.flatnonzero(~np.isfinite(labels).reshape(len(labels), -1).all(1))
    if bad.size:
        which = f"the label of sample {bad[0]} (counted from 0)"
        raise DataError(f"{where}: {which} is NaN or infinite; correct or remove it.")
    return labels


def to_indices(
    train: Array, test: Array, declared: tuple[str, ...] | None, wanted: tuple[str, ...] | None, where: str
) -> tuple[Array, Array, tuple[str, ...] | None, list[str]]:
    """Class names become indices, in the order of `--classes`, else of the layout, else sorted.

    Plain numbers stay what they are unless `--classes` names them.
    """
    text = train.dtype.kind == "U" or test.dtype.kind == "U"
    if wanted is None and not text:
        return train, test, None, []
    if wanted is not None and not text and train.ndim == test.ndim == 2 and _are_tags(train, test, len(wanted)):
        return train, test, wanted, [f"Classes are in the order given: {listed(wanted)}."]
    if train.ndim == test.ndim == 2 and is_one_hot(train) and is_one_hot(test):
        train, test = train.argmax(1), test.argmax(1)
    if train.ndim > 1 or test.ndim > 1:
        raise DataError(
            f"{where}: --classes needs one label per sample, but the labels have {train.shape[-1]} columns."
        )
    names = np.unique(np.concatenate([_as_text(train), _as_text(test)]))
    if wanted is not None:
        return _in_wanted_order(train, test, names, wanted, where)
    order = declared if declared is not None else class_order(str(name) for name in names)
    return _look_up(_as_text(train), order), _look_up(_as_text(test), order), order, [_order_note(order)]


def _in_wanted_order(
    train: Array, test: Array, names: Array, wanted: tuple[str, ...], where: str
) -> tuple[Array, Array, tuple[str, ...], list[str]]:
    if len(set(wanted)) != len(wanted):
        raise DataError(f"--classes: {max(wanted, key=wanted.count)!r} is named twice; name each class once.")
    odd = sorted(set(names.tolist()) - set(wanted))
    note = [f"Classes are in the order given: {listed(wanted)}."]
    if not odd:
        return _look_up(_as_text(train), wanted), _look_up(_as_text(test), wanted), wanted, note
    numbers = [labels for labels in (train, test) if labels.dtype.kind != "U" and is_whole(labels)]
    if len(numbers) == 2 and all(labels.min() >= 0 and labels.max() < len(wanted) for labels in numbers):
        return train.astype(np.int64), test.astype(np.int64), wanted, note
    raise UnnamedClasses(tuple(odd), where)


def names_labels(labels: Array, classes: tuple[str, ...]) -> bool:
    """Whether labels as stored are among these names; else they are places in them."""
    return labels.dtype.kind == "U" or (labels.ndim == 1 and set(np.unique(_as_text(labels)).tolist()) <= set(classes))


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted as text, as ImageFolder and LabelEncoder do; but as numbers where every name is one, so 2 before 10."""
    unique = set(names)
    if all(name.isdecimal() for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique))


def _are_tags(train: Array, test: Array, classes: int) -> bool:
    """Whether rows [n, k] hold one of `classes` classes for each position, or a negative number for none."""
    both = train, test
    if not all(is_whole(labels) and labels.max() < classes for labels in both):
        return False
    return not all(is_one_hot(labels) for labels in both)


def is_whole(labels: Array) -> bool:
    """Whether every number is an integer, whatever its type."""
    return labels.dtype.kind in "biu" or bool((labels == np.floor(labels)).all())


def is_one_hot(labels: Array) -> bool:
    """Whether every row of [n, k] is zeros with a single one."""
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())


def _as_text(labels: Array) -> Array:
    if labels.dtype.kind == "f" and is_whole(labels) and np.abs(labels).max(initial=0) < 2**63:
        labels = labels.astype(np.int64)
    return labels.astype(str)


def _look_up(labels: Array, order: tuple[str, ...]) -> Array:
    place = {name: index for index, name in enumerate(order)}
    return np.array([place[name] for name in labels.tolist()], dtype=np.int64)


def _order_note(order: tuple[str, ...]) -> str:
    note = f"Classes in the order of the outputs: {listed(order)}"
    as_text = tuple(sorted(order))
    if order == as_text or not all(name.isdecimal() for name in order):
        return f"{note}."
    return f"{note}; as text they would sort {listed(as_text)}: if the model was trained so, say it with --classes."


def listed(names: tuple[str, ...], most: int = 12) -> str:
    """Names in a row, shortened where they are many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(labels: Labels, unit: str = "sample") -> Labels:
    """Refuse a lone class; note classes that train, or train alone, does not show."""
    names, seen, tested = labels.names or (), np.unique(labels.train), np.unique(labels.test)
    if len(seen) < 2:
        raise DataError(
            f"{labels.path}: every train label is {names[int(seen[0])]!r}; an audit needs at least two classes."
        )
    absent = [names[index] for index in range(len(names)) if index not in seen]
    unseen = [names[int(index)] for index in tested if index not in seen]
    notes = list(labels.notes)
    if absent:
        notes.append(f"No train {unit} has the class {listed(tuple(absent))}.")
    if unseen:
        notes.append(f"Test {unit}s have the class {listed(tuple(unseen))}, which no train {unit} has.")
    if len(tested) < 2:
        notes.append(f"Every test label is {names[int(tested[0])]!r}.")
    return replace(labels, notes=tuple(notes))


# Which samples are used: stratified by label, seeded, in their stored order, the same on every machine.
#
# Every sample draws one raw 64-bit number and the smallest of each class are taken. Raw draws of a bit generator are
# promised never to change between NumPy versions; `Generator.choice` and `shuffle` are not.


MOVED = 100  # one sample in so many, at most, may go to classes that their share alone would leave without any


def sample(labels: Array, size: int, seed: int, stream: str, task: str = "auto", *, every_class: bool = False) -> Rows:
    """`size` positions, ascending; each class gets its share of them, rounded up or down, on request at least one."""
    if size >= len(labels):
        return np.arange(len(labels), dtype=np.int64)
    draws = _draws(seed, stream)
    codes, counts = strata(labels, task)
    quota = (apportion_to_all if every_class else apportion)(counts, size, draws.random_raw(len(counts)))
    order = np.lexsort((draws.random_raw(len(labels)), codes))  # class by class, each in its drawn order
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < quota[codes[order]]]).astype(np.int64)


def _draws(seed: int, stream: str) -> np.random.PCG64:
    """Its own stream for each purpose, so that one cap does not shift another."""
    return np.random.PCG64(np.random.SeedSequence([seed % 2**64, *stream.encode()]))


def strata(labels: Array, task: str = "auto") -> tuple[Rows, Rows]:
    """The stratum of each sample and the size of each; one stratum for targets that are not classes."""
    lone = np.zeros(len(labels), np.int64), np.array([len(labels)], np.int64)
    if task == "regression":
        return lone
    if labels.ndim == 2:
        if not is_one_hot(labels):
            return lone
        labels = labels.argmax(1)
    elif labels.dtype.kind == "f" and not is_whole(labels):
        return lone
    values, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if 2 * len(values) > len(labels):  # values that hardly repeat are quantities, not classes
        return lone
    return codes.reshape(-1).astype(np.int64), counts.astype(np.int64)


def apportion(counts: Rows, size: int, ties: Array) -> Rows:
    """Shares of `size` in proportion to `counts`, by largest remainder; `ties` decides between equal remainders."""
    total = int(counts.sum())
    quota, remainder = np.divmod(counts * size, total)
    upwards = np.lexsort((ties, -remainder))[: size - int(quota.sum())]
    quota[upwards] += 1
    return np.asarray(quota, np.int64)


def apportion_to_all(counts: Rows, size: int, ties: Array) -> Rows:
    """As `apportion`, with one for each that would get none; without, where that would move more than 1 % of `size`.

    Beyond that, the losses of rare classes, or of integer targets that are no classes, would weigh too much in a mean.
    """
    proportional = apportion(counts, size, ties)
    quota, lone = proportional, proportional == 0
    while lone.sum() * MOVED <= size:
        quota = np.ones_like(counts)
        quota[~lone] = apportion(counts[~lone], size - int(lone.sum()), ties[~lone])
        if quota.all():
            return quota
        lone |= quota == 0
    return proportional
