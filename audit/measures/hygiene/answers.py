"""The blocks of the hygiene report, each from what was found; or the sentence that says why there is none."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.shares import wilson
from audit.measures.hygiene.balance import class_balance
from audit.measures.hygiene.block import (
    ClassBalance,
    Conflicts,
    NearDuplicates,
    NearTwin,
    Neighbour,
    SpaceTried,
    Suspect,
    SuspectedMislabels,
    Twin,
)
from audit.measures.hygiene.ground import FEATURES, Ground
from audit.measures.hygiene.mislabels import DOMINANCE, Tried, Votes, judge, leave_one_out, wrong_rate
from audit.measures.hygiene.near import FEWEST, NearTwins, find_near_twins
from audit.measures.hygiene.neighbours import look_around
from audit.measures.hygiene.propose import NEIGHBOURS
from audit.measures.hygiene.rows import PAIRS

SUSPECTS = 50  # that the report lists
BESIDE = 5  # nearest neighbours that it names for each of them
RULE = (
    f"A train label is suspect where at least half of its {NEIGHBOURS} nearest neighbours agree on one other label, "
    f"and at least {DOMINANCE} times as many as have the given one."
)
NO_CLASSES = "There are no classes in a regression."
NO_LABELS = "The targets of a regression are not labels: those of neighbours differ by nature."
FEW = f"Fewer than {2 * NEIGHBOURS} train samples: a vote of {NEIGHBOURS} neighbours would be a vote of everyone."
NO_SPACE = "The inputs are whole numbers such as tokens, and the network has no features of its own to compare them by."
BLIND = (
    "The neighbours do not foretell labels clearly better than always naming the commonest class would: their vote on "
    "train labels means nothing."
)
TOKENS = "The inputs are whole numbers such as tokens: a distance between them means nothing."
NONE_FRESH = "Every test sample is itself in train."
FEW_DISTINCT = f"Fewer than {FEWEST} different train inputs: there is no neighbourhood to compare with."
DISTORTED = (
    "The neighbours are taken among the network's own features, where train samples sit closer to their given labels "
    "than new samples would: wrong labels that the network has memorised are missed, and no rate can be told."
)
NO_YARDSTICK = "Every test sample is itself in train: nothing tells how often neighbours disagree by chance."


def duplicate_pairs(ground: Ground) -> list[Twin]:
    """The first twins across the splits."""
    return [
        Twin(
            train=int(ground.train_index[train]),
            test=int(ground.test_index[test]),
            same_label=bool(ground.twins.train_y[train] == ground.twins.test_y[test]),
        )
        for train, test in ground.twins.pairs()
    ]


def conflicts(ground: Ground) -> Conflicts:
    """Identical inputs with different labels."""
    train, test = (np.flatnonzero(flags) for flags in (ground.twins.conflicts_in_train, ground.twins.conflicts_across))
    return Conflicts(
        within_train=len(train),
        across_splits=len(test),
        train=ground.train_index[train[:PAIRS]].tolist(),
        test=ground.test_index[test[:PAIRS]].tolist(),
    )


def balance(ground: Ground) -> ClassBalance:
    """Counts per class; nothing for regression."""
    if not ground.classes:
        return ClassBalance(skipped=NO_CLASSES)
    y, y_test = (y.cpu().numpy() for y in (ground.y, ground.y_test))
    settings = ground.audit.settings
    return class_balance(y, y_test, ground.names, settings.bootstrap, settings.seed)


def near_duplicates(ground: Ground) -> tuple[int | None, NearDuplicates]:
    """How many near twins there are, and the closest of them."""
    why = None
    if len(ground.voters.rows) < FEWEST:
        why = FEW_DISTINCT
    elif not len(ground.fresh):
        why = NONE_FRESH
    elif ground.input_space is None:
        why = TOKENS
    if why is not None or ground.input_space is None:
        return None, NearDuplicates(skipped=why)
    tried, seed = ground.input_space, ground.audit.settings.seed
    found = find_near_twins(tried, len(ground.audit.test), ground.voters, seed)
    return int(found.flags.sum()), NearDuplicates(
        space=tried.space.name,
        dimension=found.dimension if math.isfinite(found.dimension) else None,
        dimension_std=found.dimension_error if math.isfinite(found.dimension_error) else None,
        threshold=found.threshold,
        within_train=found.within_train,
        within_train_ci95=None if found.within_train is None else wilson(found.within_train, found.looked_at),
        pairs=_near_pairs(ground, found),
    )


def _near_pairs(ground: Ground, found: NearTwins) -> list[NearTwin]:
    points = torch.nonzero(found.flags)[:, 0]
    points = points[found.ratio[points].argsort(dim=0, stable=True)][:PAIRS]
    tests, trains = ground.fresh[points].tolist(), found.nearest[points].tolist()
    ratios, distances = found.ratio[points].tolist(), found.distance[points].tolist()
    return [
        NearTwin(
            train=int(ground.train_index[train]),
            test=int(ground.test_index[test]),
            same_label=bool(ground.twins.train_y[train] == ground.twins.test_y[test]),
            distance=distance,
            ratio=ratio,
        )
        for train, test, ratio, distance in zip(trains, tests, ratios, distances, strict=True)
    ]


def suspected_mislabels(ground: Ground) -> SuspectedMislabels:
    """Train labels that their neighbours contradict, in the space whose neighbours foretell test labels best."""
    why = NO_LABELS if not ground.classes else FEW if len(ground.y) < 2 * NEIGHBOURS else None
    if why is None and not ground.tried:
        why = NO_SPACE
    if why is not None:
        return _no_list([], why)
    tried = ground.label_space
    spaces = [
        SpaceTried(
            name=one.space.name,
            agreement=one.agreement,
            agreement_ci95=None if one.agreement is None else wilson(one.agreement, len(ground.fresh)),
        )
        for one in ground.tried
    ]
    votes = leave_one_out(tried.space, ground.y, ground.voters, ground.place)
    if _blind(ground, tried, votes):
        return _no_list(spaces, BLIND)
    n, count = len(ground.y), int(votes.suspect.sum())
    chance, rate, ci = _beyond_chance(ground, tried, votes)
    return SuspectedMislabels(
        count=count,
        share=count / n,
        expected_by_chance=chance,
        expected_by_chance_ci95=None if chance is None else _times(n, wilson(chance / n, len(ground.fresh))),
        estimated_rate=rate,
        estimated_rate_ci95=ci,
        space=tried.space.name,
        spaces=spaces,
        neighbours=NEIGHBOURS,
        rule=RULE,
        suspects=_suspects(ground, tried, votes),
        caveat=DISTORTED if tried.space.name == FEATURES else NO_YARDSTICK if chance is None else None,
    )


def _beyond_chance(
    ground: Ground, tried: Tried, votes: Votes
) -> tuple[float | None, float | None, tuple[float, float] | None]:
    """Suspects that chance explains, and the rate of wrong labels beyond it, by the same vote on fresh test samples."""
    if tried.around_test is None or tried.space.name == FEATURES:
        return None, None, None
    on_test = judge(tried.around_test.votes, ground.y_test[ground.fresh])
    chance = len(ground.y) * _share(on_test.suspect)
    settings = ground.audit.settings
    train, test = ((part.outvoted, len(part.own)) for part in (votes, on_test))
    return chance, *wrong_rate(train, test, len(ground.names), settings.bootstrap, settings.seed)


def _blind(ground: Ground, tried: Tried, votes: Votes) -> bool:
    """Whether the vote is not better, by its 95 % interval, than always naming the commonest class."""
    fresh = tried.agreement is not None
    agreement = tried.agreement if tried.agreement is not None else 1 - votes.outvoted
    y = ground.y_test[ground.fresh] if fresh else ground.y
    commonest = float(torch.bincount(y).max()) / len(y)
    return wilson(agreement, len(y))[0] <= commonest


def _suspects(ground: Ground, tried: Tried, votes: Votes) -> list[Suspect]:
    rows = torch.nonzero(votes.suspect)[:, 0].cpu().numpy()
    top, own, label, y = (part.cpu().numpy() for part in (votes.top, votes.own, votes.label, ground.y))
    rows = rows[np.lexsort((rows, own[rows], -top[rows]))][:SUSPECTS]
    beside = _beside(ground, tried, rows)
    return [
        Suspect(
            index=int(ground.train_index[row]),
            label=ground.names[int(y[row])],
            neighbours_label=ground.names[int(label[row])],
            agreement=float(top[row]),
            own=float(own[row]),
            neighbours=[
                Neighbour(index=int(ground.train_index[near]), label=ground.names[int(y[near])]) for near in nearest
            ],
        )
        for row, nearest in zip(rows, beside, strict=True)
    ]


def _beside(ground: Ground, tried: Tried, rows: NDArray[np.int64]) -> list[list[int]]:
    """Positions of the nearest other train inputs of each row, nearest first."""
    index = torch.from_numpy(rows).to(ground.device)
    around = look_around(tried.space, tried.space.train, index, ground.voters, ground.place[index])
    return [nearest[:BESIDE] for nearest in around.nearest.tolist()]


def _no_list(spaces: list[SpaceTried], why: str) -> SuspectedMislabels:
    return SuspectedMislabels(spaces=spaces, neighbours=NEIGHBOURS, rule=RULE, skipped=why)


def _times(n: int, ends: tuple[float, float]) -> tuple[float, float]:
    return n * ends[0], n * ends[1]


def _share(flags: Tensor) -> float:
    return float(flags.double().mean())
