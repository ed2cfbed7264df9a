"""Is the model fed what it was trained on, and is the test split new to it? To be settled before any number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.blocks.hygiene import Hygiene
from audit.measure import Audit
from audit.outcome import Outcome
from audit.regression import r_squared
from audit.suite import Results

STANDARD_ERRORS = 3.0  # how far above chance the train accuracy must be to count as learnt


def find_warnings(audit: Audit, results: Results) -> list[str]:
    """What a reader must know before any number: a guesser, a leaked test split, a split of our own making."""
    warnings = [chance_warning(audit.train_outcome, audit.data.classes)]
    hygiene = results.measurements["hygiene"].network
    if isinstance(hygiene, Hygiene) and hygiene.leaked.void:
        warnings.append(f"The verdict is void. {hygiene.leaked.why[:1].upper()}{hygiene.leaked.why[1:]}")
    if audit.data.split_is_ours:
        warnings.append(
            "The folder had one split, and gen-audit held out a part of it: if the model was trained on all of it, the "
            "gap says nothing about new data."
        )
    return [warning for warning in warnings if warning is not None]


def chance_warning(train: Outcome, classes: Sequence[str] | None) -> str | None:
    """A sentence where the model does no better than guessing on the very data it was trained on."""
    return _regression_warning(train) if train.wrong is None else _class_warning(train, len(classes or ()))


def _class_warning(train: Outcome, outputs: int) -> str | None:
    """Balanced accuracy, the mean over classes of the share answered right, is 1/C for any guess, however skewed."""
    labels, wrong = np.asarray(train.labels), np.asarray(train.wrong)
    present = np.unique(labels)
    recalls = np.array([1 - wrong[labels == label].mean() for label in present])
    counts = np.array([(labels == label).sum() for label in present])
    balanced, chance = float(recalls.mean()), 1 / max(outputs, 2)
    standard_error = np.sqrt((chance * (1 - chance) / counts).sum()) / len(present)  # of a guesser
    if balanced > chance + STANDARD_ERRORS * standard_error:
        return None
    relabelled = _best_relabelling(train)
    hint = (
        f" If each predicted class is renamed to the label it meets most, {relabelled:.0%} are right: the class order "
        "is probably wrong (set `classes`)."
        if relabelled > 2 * chance and relabelled > 0.5
        else ""
    )
    return (
        f"The model is no better than guessing on its own train data ({1 - wrong.mean():.1%} right, balanced over "
        f"classes {balanced:.1%}, chance {chance:.1%}). Preprocessing (scale, mean/std, channel order) or class order "
        f"is probably not what the model was trained with; correct it before believing any number below.{hint}"
    )


def _best_relabelling(train: Outcome) -> float:
    """Accuracy if every predicted class were called by the label it meets most."""
    scores, labels = train.scores, np.asarray(train.labels)
    predicted = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] >= 0).astype(int)
    right = sum(np.bincount(labels[predicted == label]).max() for label in np.unique(predicted))
    return float(right / len(labels)) if len(np.unique(predicted)) > 1 else 0.0


def _regression_warning(train: Outcome) -> str | None:
    explained = r_squared(train)
    if explained is None or explained > 0:
        return None
    return (
        f"The model explains none of the variation of its own train targets (R² = {explained:.3g}, no better than "
        "always answering their mean). Preprocessing or the scale of the targets is probably not what the model was "
        "trained with; correct it before believing any number below."
    )
