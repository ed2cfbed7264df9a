"""Train labels that disagree with their neighbours: leave-one-out votes, a rule, and the rate beyond chance.

X = share of train labels that are outvoted by another; Y = the same for test samples among their train neighbours. If
test labels are right and a share r of train labels is moved to any other of C classes, X = r (1 − Y/(C−1)) + (1 − r) Y.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audit.maths.resample import interval
from audit.maths.shares import clearly_above, wilson
from audit.measures.hygiene.block import Neighbour, SpaceTried, Suspect, SuspectedMislabels
from audit.measures.hygiene.candidates import NEIGHBOURS
from audit.measures.hygiene.neighbours import Search
from audit.measures.hygiene.samples import DOMINANCE, FEATURES, Samples, Tried, Votes, judge

Array = NDArray[np.float64]
ASKED = 10_000  # train labels that are voted on, at most: the interval of a share of so many is two points wide
SUSPECTS = 50  # that the report lists
BESIDE = 5  # nearest neighbours that it names for each of them
RULE = (
    f"A train label is suspect where at least half of its {NEIGHBOURS} nearest neighbours agree on one other label, "
    f"and at least {DOMINANCE} times as many as have the given one."
)
OF_POSITIONS = "The labels are those of positions: the neighbours of a whole sample cannot vote on them."
NO_LABELS = "The targets of a regression are not labels: those of neighbours differ by nature."
FEW = f"Fewer than {2 * NEIGHBOURS} train samples: a vote of {NEIGHBOURS} neighbours would be a vote of everyone."
NO_SPACE = "The inputs are whole numbers such as tokens, and the network has no features of its own to compare them by."
BLIND = (
    "The neighbours do not foretell labels clearly better than always naming the commonest class would: their vote on "
    "train labels means nothing."
)
DISTORTED = (
    "The neighbours are taken among the network's own features, where train samples sit closer to their given labels "
    "than new samples would: wrong labels that the network has memorised are missed, and no rate can be told."
)
FEW_EACH = (
    f"Classes have fewer than {NEIGHBOURS} train samples in the mean: with its own sample left out, a class loses "
    "a good part of its votes, so that train labels are outvoted more often than test labels though none is wrong."
)
NO_YARDSTICK = "Every test sample is itself in train: nothing tells how often neighbours disagree by chance."


def suspected_mislabels(samples: Samples) -> SuspectedMislabels:
    """Train labels that their neighbours contradict, in the space whose neighbours foretell test labels best."""
    why = _no_vote(samples)
    if why is not None:
        return _no_list([], why)
    tried = samples.label_space
    spaces = [
        SpaceTried(
            name=one.space.name,
            agreement=one.agreement,
            agreement_ci95=None if one.agreement is None else wilson(one.agreement, len(samples.fresh)),
        )
        for one in samples.tried
    ]
    asked = asked_about(len(samples.y), samples.audit.settings.seed).to(samples.device)
    votes = leave_one_out(tried.search, samples.y, samples.place, asked)
    if _blind(samples, tried, votes):
        return _no_list(spaces, BLIND)
    n, count = len(asked), int(votes.suspect.sum())
    chance, rate, ci = _beyond_chance(samples, tried, votes)
    return SuspectedMislabels(
        asked=n,
        count=count,
        share=count / n,
        share_ci95=wilson(count / n, n),
        expected_by_chance=chance,
        expected_by_chance_ci95=None if chance is None else _times(n, wilson(chance / n, len(samples.fresh))),
        estimated_rate=rate,
        estimated_rate_ci95=ci,
        space=tried.space.name,
        spaces=spaces,
        neighbours=NEIGHBOURS,
        rule=RULE,
        suspects=_suspects(samples, tried, votes, asked),
        caveat=_caveat(samples, tried, chance),
    )


def _no_vote(samples: Samples) -> str | None:
    """Why labels are not voted on; None where they are."""
    if not samples.classes:
        return OF_POSITIONS if samples.tagged else NO_LABELS
    if len(samples.y) < 2 * NEIGHBOURS:
        return FEW
    return None if samples.tried else NO_SPACE


def _beyond_chance(
    samples: Samples, tried: Tried, votes: Votes
) -> tuple[float | None, float | None, tuple[float, float] | None]:
    """Suspects that chance explains, and the rate of wrong labels beyond it, by the same vote on fresh test samples."""
    if tried.around_test is None or tried.space.name == FEATURES or _few_each(samples):
        return None, None, None
    on_test = judge(tried.around_test.votes, samples.y_test[samples.fresh])
    chance = len(votes.own) * _share(on_test.suspect)
    settings = samples.audit.settings
    train, test = ((part.outvoted, len(part.own)) for part in (votes, on_test))
    return chance, *wrong_rate(train, test, len(samples.names), settings.bootstrap, settings.seed)


def _caveat(samples: Samples, tried: Tried, chance: float | None) -> str | None:
    """Why no rate of wrong labels can be told, where none can."""
    if tried.space.name == FEATURES:
        return DISTORTED
    return FEW_EACH if _few_each(samples) else NO_YARDSTICK if chance is None else None


def _few_each(samples: Samples) -> bool:
    """Whether classes are so small that a vote without the own sample is not like one of all."""
    return len(samples.y) < NEIGHBOURS * len(torch.unique(samples.y))


def _blind(samples: Samples, tried: Tried, votes: Votes) -> bool:
    """Whether the vote is not better, by its 95 % interval, than always naming the commonest class."""
    fresh = tried.agreement is not None
    agreement = tried.agreement if tried.agreement is not None else 1 - votes.outvoted
    y = samples.y_test[samples.fresh] if fresh else samples.y
    commonest = float(torch.bincount(y).max()) / len(y)
    return not clearly_above(agreement, len(y) if fresh else len(votes.own), commonest)


def _suspects(samples: Samples, tried: Tried, votes: Votes, asked: Tensor) -> list[Suspect]:
    places = torch.nonzero(votes.suspect)[:, 0].cpu().numpy()
    top, own, label, y = (part.cpu().numpy() for part in (votes.top, votes.own, votes.label, samples.y))
    places = places[np.lexsort((places, own[places], -top[places]))][:SUSPECTS]
    rows = asked.cpu().numpy()[places]
    beside = _beside(samples, tried, rows)
    return [
        Suspect(
            index=int(samples.train_index[row]),
            label=samples.names[int(y[row])],
            neighbours_label=samples.names[int(label[place])],
            agreement=float(top[place]),
            own=float(own[place]),
            neighbours=[
                Neighbour(index=int(samples.train_index[near]), label=samples.names[int(y[near])]) for near in nearest
            ],
        )
        for place, row, nearest in zip(places, rows, beside, strict=True)
    ]


def _beside(samples: Samples, tried: Tried, rows: NDArray[np.int64]) -> list[list[int]]:
    """Positions of the nearest other train inputs of each row, nearest first."""
    index = torch.from_numpy(rows).to(samples.device)
    around = tried.search.around(tried.space.train, index, samples.place[index])
    return [nearest[:BESIDE] for nearest in around.nearest.tolist()]


def _no_list(spaces: list[SpaceTried], why: str) -> SuspectedMislabels:
    return SuspectedMislabels(spaces=spaces, neighbours=NEIGHBOURS, rule=RULE, skipped=why)


def _times(n: int, ends: tuple[float, float]) -> tuple[float, float]:
    return n * ends[0], n * ends[1]


def _share(flags: Tensor) -> float:
    return float(flags.double().mean())


# The votes of the others on train labels, and the share of labels that they show to be wrong.


def asked_about(n: int, seed: int) -> Tensor:
    """Positions of the train samples whose labels are voted on: all n of them, or `ASKED` drawn at random."""
    if n <= ASKED:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:ASKED].sort().values


def leave_one_out(search: Search, y: Tensor, place: Tensor, asked: Tensor) -> Votes:
    """Votes of the others on the labels of the train samples `asked` [q]; y [n], place [n] among the voters."""
    own, which = torch.unique(place[asked], return_inverse=True)
    around = search.around(search.space.train, search.voters.rows[own], own, near=False)
    votes, given = around.votes[which], y[asked]
    votes[torch.arange(len(given), device=y.device), given] -= 1  # its own ballot
    return judge(votes, given)


def wrong_rate(
    train: tuple[float, int], test: tuple[float, int], classes: int, draws: int, seed: int
) -> tuple[float | None, tuple[float, float] | None]:
    """The rate r with its 95 % interval, from X and Y and the number of samples behind each.

    None where the vote foretells nothing, so that the equation has no solution. X and Y are drawn from their posterior
    under Jeffreys' prior: unlike a bootstrap it also knows that 0 of 40 is not 0.
    """
    rng = np.random.default_rng(seed)
    X, Y = (rng.beta(n * share + 0.5, n * (1 - share) + 0.5, draws) for share, n in (train, test))
    value = float(_solve(np.array([train[0]]), np.array([test[0]]), classes)[0])
    return (value, interval(_solve(X, Y, classes))) if np.isfinite(value) else (None, None)


def _solve(X: Array, Y: Array, C: int) -> Array:
    """The r = (X − Y) / (1 − Y C/(C−1)) within 0 and 1; NaN where the vote is no better than guessing."""
    room = 1 - Y * C / (C - 1)
    return np.where(room > 0, np.clip((X - Y) / np.where(room > 0, room, 1.0), 0.0, 1.0), np.nan)
