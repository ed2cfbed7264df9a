"""Labels of a model that answers at every position: one class for each, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.data.dataset import Data, Split
from audit.data.labels import Labels, counted, is_whole
from audit.data.source import Array
from audit.errors import DataError

PADDING = -100  # the label that torch's cross-entropy leaves out, and what every negative label becomes


def tags(data: Data, labels: Labels, positions: int, classes: int, task: str) -> Labels:
    """Labels [n, T] of a model with scores [n, T, C] as int64, with the classes' names."""
    shape = f"the model gives scores of {classes} classes at each of {positions} positions"
    if task not in ("auto", "tagging"):
        raise DataError(f"{labels.path}: {shape}, which --task {task} does not take; leave --task out.")
    if any(y.shape[1:] != (positions,) or not is_whole(y) for y in labels.both):
        raise DataError(
            f"{labels.path}: {shape}, but {_stored(labels)}; store y as whole numbers [n, {positions}], one class for "
            f"each position and {PADDING} where there is none, or export the model with an output [n, classes]."
        )
    train, test = (np.where(y < 0, PADDING, y).astype(np.int64) for y in labels.both)
    for name, split, y in (("train", data.train, train), ("test", data.test, test)):
        _require_labels(labels, name, split, y)
    found = replace(labels, train=train, test=test)
    high = max(int(y.max()) for y in found.both)
    if high >= classes:
        raise DataError(f"{labels.path}: has the label {high} but {shape}, so labels go from 0 to {classes - 1}.")
    if labels.names is not None and len(labels.names) != classes:
        raise DataError(f"{labels.path}: --classes names {len(labels.names)} classes but {shape}; name each once.")
    return _noted(replace(found, names=labels.names or tuple(map(str, range(classes)))))


def _stored(labels: Labels) -> str:
    """What there is instead, in words."""
    y = next((y for y in labels.both if y.ndim == 1), labels.train)
    if y.ndim == 1:
        return "there is one label per sample"
    return f"the labels have shape [n, {y.shape[1]}]" if is_whole(y) else "the labels are not whole numbers"


def _require_labels(labels: Labels, name: str, split: Split, y: Array) -> None:
    """A sample without a label has no loss."""
    empty = np.flatnonzero((y < 0).all(1))
    if empty.size:
        place = int(split.index[empty[0]]) if len(split.index) else int(empty[0])
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"{labels.path}: {name} sample {place} (counted from 0){more} has no labelled position, every label being "
            "negative, so that it has no loss; label or remove it."
        )


def _noted(labels: Labels) -> Labels:
    """What there is to say of the labelled positions."""
    flat = replace(labels, train=labels.train[labels.train >= 0], test=labels.test[labels.test >= 0])
    counts = [f"{len(y):,} of {whole.size:,}" for y, whole in zip(flat.both, labels.both, strict=True)]
    note = f"Labels are one for each position: {counts[0]} positions of train and {counts[1]} of test are labelled."
    return replace(labels, notes=(note, *counted(flat, "position").notes))
