"""Is the model fed what it was trained on, and is the test split new to it? To be settled before any number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.data.dataset import Data
from audit.data.feedings import DARKEST, FEWEST_PIXELS
from audit.maths.shares import balanced_accuracy, chance, no_better_than_guessing
from audit.measures.contract import Audit
from audit.measures.gap.measure import r_squared
from audit.measures.hygiene.block import Hygiene
from audit.measures.suite import Results
from audit.network.records import Outcome
from audit.report.conduct import Doctor
from audit.settings import Settings


def find_warnings(audit: Audit, results: Results, doctor: Doctor) -> list[str]:
    """What a reader must know before any number: a wrongly fed model, a leaked test split, a split of our making."""
    warnings = [probability_warning(audit.train_outcome), *_feeding_warnings(audit, doctor)]
    hygiene = results.measurements["hygiene"].network
    if isinstance(hygiene, Hygiene) and hygiene.leaked.void:
        warnings.append(f"The verdict is void. {hygiene.leaked.why[:1].upper()}{hygiene.leaked.why[1:]}")
    if audit.data.split_is_ours:
        warnings.append(
            "The folder had one split, and gen-audit held out a part of it: if the model was trained on all of it, the "
            "gap says nothing about new data."
        )
    return [warning for warning in warnings if warning is not None]


def _feeding_warnings(audit: Audit, doctor: Doctor) -> list[str | None]:
    """How to feed the model, where the doctor knows; else that it guesses, or may be fed raw pixels."""
    other, order = doctor.preferred, doctor.misordered
    if other is not None:
        known = f"with {other.cure}" if other.cure.startswith("--") else f"otherwise ({other.cure})"
        now = doctor.trials[0].loss
        losses = f"is {other.loss:.3g} instead of {now:.3g}"
        if other.loss >= now:  # as many right answers from numbers far too large
            losses = f"is as near to 0 ({other.loss:.2g}), with numbers of the size that its first layer is made for"
        return [
            f"The model is probably not fed as in training. Fed {known}, its mean loss on {doctor.samples} train "
            f"samples {losses}; correct that before believing any number below."
        ]
    if order is not None:
        return [
            f"The classes are probably in another order than the model's outputs: {order.right:.1%} of the train "
            f"samples are answered rightly, and {order.right_if_moved:.1%} would be with {order.cure}; correct that "
            "before believing any number below."
        ]
    pixels = None if doctor.best_as_fed else pixel_warning(audit.data, audit.settings)
    return [chance_warning(audit.train_outcome, audit.data.classes), pixels]


def pixel_warning(data: Data, settings: Settings) -> str | None:
    """A sentence where pixels seem to be fed as they are stored, which few networks are trained on."""
    x = data.train.x
    asked = any(knob is not None for knob in (settings.scale, settings.mean, settings.std))
    if asked or x.dtype.kind != "f" or x[0].size < FEWEST_PIXELS:
        return None
    if x.min() < 0 or not DARKEST < x.max() <= 255 or not np.array_equal(x, np.floor(x)):
        return None
    return (
        "The inputs look like pixels, whole numbers from 0 to 255, and are fed as they are. If the model was trained "
        "on pixels between 0 and 1, say --scale 0.00392157; if it takes them as they are, say --scale 1."
    )


def probability_warning(train: Outcome) -> str | None:
    """A sentence where the one score of a classifier is never outside 0 and 1, as a hidden sigmoid would have it."""
    if train.wrong is None or train.scores.shape[1] != 1 or not ((train.scores >= 0) & (train.scores <= 1)).all():
        return None
    return (
        "Every answer of the model lies between 0 and 1, so it is probably a probability whose final layer was not "
        "recognised; it is taken for a score, positive for the second class. Export the model with its logits, or with "
        "a plain sigmoid, before believing any number below."
    )


def chance_warning(train: Outcome, classes: Sequence[str] | None) -> str | None:
    """A sentence where the model does no better than guessing on the very data it was trained on."""
    return _regression_warning(train) if train.wrong is None else _class_warning(train, len(classes or ()))


def _class_warning(train: Outcome, outputs: int) -> str | None:
    n, train = len(train.loss), train.by_position
    labels, wrong = np.asarray(train.labels), np.asarray(train.wrong)
    classes = [labels == label for label in np.unique(labels)]
    rows = [(min(int(members.sum()), n), float(wrong[members].mean())) for members in classes]
    balanced, guess = balanced_accuracy(rows), chance(outputs)
    if not no_better_than_guessing(rows, guess):
        return None
    return (
        f"The model is no better than guessing on its own train data ({1 - wrong.mean():.1%} right, balanced over "
        f"classes {balanced:.1%}, chance {guess:.1%}). Preprocessing (scale, mean/std, channel order) or class order "
        f"is probably not what the model was trained with; correct it before believing any number below."
    )


def _regression_warning(train: Outcome) -> str | None:
    same = np.flatnonzero(np.ptp(train.targets, axis=0) == 0)
    if same.size:
        which = "" if train.targets.shape[1] == 1 else f" of output {same[0]}"
        return (
            f"All {len(train.targets)} train targets{which} are the same number, {train.targets[0, same[0]]:g}, so a "
            "constant answer makes no error and no share of their variation can be explained. Check the labels before "
            "believing any number below."
        )
    explained = r_squared(train)
    if explained is None or explained > 0:
        return None
    return (
        f"The model explains none of the variation of its own train targets (R² = {explained:.3g}, no better than "
        "always answering their mean). Preprocessing or the scale of the targets is probably not what the model was "
        "trained with; correct it before believing any number below."
    )
