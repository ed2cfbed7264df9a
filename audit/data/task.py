"""What the labels mean once the model's outputs are known: classes, two classes on one output, quantities, or tags."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.data.dataset import Array, Data, Split
from audit.data.labels import Labels, counted, is_one_hot, is_whole, listed
from audit.errors import DataError


def resolve_task(data: Data, outputs: int, head: str, task: str, per_position: int | None = None) -> tuple[str, Data]:
    """The task, and the data with y as that task wants it: int64 classes [n], or float64 targets [n, outputs].

    `task` is "auto" or the user's word. Two classes on one output become 0 and 1. Of a model with scores for each of
    `per_position` classes at every position, int64 classes [n, T], -100 where there is none.
    """
    stored = Labels(data.train.y, data.test.y, data.classes, data.path)
    if per_position is not None:
        return "tagging", _with(data, tags(data, stored, outputs // per_position, per_position, task))
    if task == "tagging":
        raise DataError(
            f"{data.path}: --task tagging needs a model with an output [n, positions, classes], but this one gives "
            f"{outputs} numbers for a sample; leave --task out."
        )
    labels = _decoded(stored, outputs, task)
    found = recognise(labels, outputs, head) if task == "auto" else task
    if found == "regression":
        return found, _with(data, _targets(labels, outputs, head))
    if found == "binary":
        return found, _with(data, _two_classes(labels, outputs))
    return found, _with(data, _classes(labels, outputs))


def recognise(labels: Labels, outputs: int, head: str) -> str:
    """The task that labels and outputs together speak for."""
    if labels.names is not None:
        return "binary" if outputs == 1 else "classification"
    if labels.train.ndim == 2 or not labels.whole:
        return "regression"
    if outputs > 1:
        return "classification"
    values = labels.values
    if head.startswith("sigmoid") or len(values) == 1 or values in ([0, 1], [-1, 1]):
        return "binary"
    if len(values) == 2:
        raise DataError(
            f"{labels.path}: the labels are {values[0]} and {values[1]} and the model has one output; "
            f"say --classes {values[0]},{values[1]} for two classes, or --task regression for quantities."
        )
    return "regression"


def _decoded(labels: Labels, outputs: int, task: str) -> Labels:
    """One-hot rows become class indices, unless they are to be regressed on."""
    if labels.train.ndim == 1 or task == "regression" or not all(is_one_hot(y) for y in labels.both):
        return labels
    width = labels.train.shape[1]
    if width != outputs and (width, outputs) != (2, 1):
        raise DataError(f"{labels.path}: labels are one-hot over {width} classes but the model has {outputs} outputs.")
    note = f"Labels were one-hot rows over {width} classes."
    return replace(labels, train=labels.train.argmax(1), test=labels.test.argmax(1), notes=(note,))


def _classes(labels: Labels, outputs: int) -> Labels:
    """Indices below the number of outputs, with the missing ones noted."""
    if outputs == 1:
        raise DataError(
            f"{labels.path}: --task classification needs several outputs but the model has one; use --task binary."
        )
    labels = _indices(labels, "classification")
    if labels.names is not None and len(labels.names) != outputs:
        raise DataError(
            f"{labels.path}: the labels name {len(labels.names)} classes ({listed(labels.names, 6)}) but the model has "
            f"{outputs} outputs; name the class of every output, in order, with --classes."
        )
    low, high = labels.values[0], labels.values[-1]
    if low < 0 or high >= outputs:
        raise DataError(_beyond(labels, outputs))
    names = labels.names or tuple(str(index) for index in range(outputs))
    return counted(replace(labels, names=names))


def _beyond(labels: Labels, outputs: int) -> str:
    """Which label does not fit the outputs, and what is probably meant."""
    values = labels.values
    odd = next(value for value in values if not 0 <= value < outputs)
    problem = (
        f"{labels.path}: has the label {odd} but the model has {outputs} outputs, so labels go from 0 to {outputs - 1}"
    )
    if len(values) <= outputs and values[0] == 1 and values[-1] == outputs:
        return f"{problem}; if they count from 1, say --classes {','.join(str(v) for v in range(1, outputs + 1))}."
    if len(values) == outputs:
        return f"{problem}; if they are names, say --classes {','.join(str(value) for value in values)}."
    return f"{problem}; correct the labels, or check that this is the right model."


def _two_classes(labels: Labels, outputs: int) -> Labels:
    """Labels 0 and 1 on one output, from 0/1, −1/1 or two names."""
    if outputs != 1:
        raise DataError(
            f"{labels.path}: --task binary needs one output but the model has {outputs}; use --task classification."
        )
    labels = _indices(labels, "binary")
    if labels.names is not None and len(labels.names) != 2:
        raise DataError(_too_many(labels, f"{len(labels.names)} classes ({listed(labels.names, 6)})"))
    values = labels.values
    if labels.names is not None or set(values) <= {0, 1}:
        return counted(replace(labels, names=labels.names or ("0", "1")))
    if set(values) == {-1, 1}:
        note = "Labels -1 and 1 are the classes 0 and 1 of the output."
        train, test = ((y > 0).astype(np.int64) for y in labels.both)
        return counted(replace(labels, train=train, test=test, names=("-1", "1"), notes=(*labels.notes, note)))
    if len(values) > 2:
        raise DataError(_too_many(labels, f"the labels {listed(tuple(str(value) for value in values), 6)}"))
    found = " and ".join(str(value) for value in values)
    raise DataError(f"{labels.path}: two classes must be 0 and 1 but the labels are {found}; name them with --classes.")


def _too_many(labels: Labels, found: str) -> str:
    return f"{labels.path}: the model has one output, which tells two classes apart, but there are {found}."


def _indices(labels: Labels, task: str) -> Labels:
    """Labels [n] as int64, or the sentence why they are no classes."""
    if labels.train.ndim == 2:
        raise DataError(f"{labels.path}: --task {task} needs one class per sample but the rows of y are not one-hot.")
    for y in labels.both:
        if not is_whole(y):
            odd = y[y != np.floor(y)][0]
            raise DataError(
                f"{labels.path}: --task {task} needs whole labels but one is {odd:g}; use --task regression."
            )
    if len(labels.values) == 1:
        value = labels.values[0]
        name = value if labels.names is None else labels.names[value]
        raise DataError(f"{labels.path}: every label is {str(name)!r}; an audit needs at least two classes.")
    return replace(labels, train=labels.train.astype(np.int64), test=labels.test.astype(np.int64))


def _targets(labels: Labels, outputs: int, head: str) -> Labels:
    """Quantities as float64 [n, outputs]."""
    if head != "none":
        raise DataError(
            f"{labels.path}: the model ends in {head.replace('_', '-')}, so its outputs are class probabilities, "
            "but the labels are quantities rather than one class per sample."
        )
    if labels.names is not None:
        raise DataError(
            f"{labels.path}: --task regression needs numbers but the labels are names ({listed(labels.names, 6)})."
        )
    train, test = (y.reshape(len(y), -1).astype(np.float64) for y in labels.both)
    if train.shape[1] != outputs:
        raise DataError(
            f"{labels.path}: each sample has {train.shape[1]} target(s) but the model has {outputs} output(s)."
        )
    return replace(labels, train=train, test=test)


def _with(data: Data, labels: Labels) -> Data:
    train, test = _relabelled(data.train, labels.train), _relabelled(data.test, labels.test)
    return replace(data, train=train, test=test, classes=labels.names, notes=(*data.notes, *labels.notes))


def _relabelled(split: Split, y: Array) -> Split:
    return replace(split, y=y)


# Labels of a model that answers at every position: one class for each, or none.


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
