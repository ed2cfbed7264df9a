"""Are the data in order? Loops over pairs of samples, from the inputs as fed and what the last layer is given."""

from __future__ import annotations

import math
from collections import Counter

from references import hygiene as loops
from references.hygiene import Row
from references.whole.neighbours import Space, best, chosen, spaces_of
from references.whole.problem import Block, Problem, mean

NEAREST = 10
LISTED = 50


def wilson(share: float, n: int) -> list[float]:
    """The two p with (share − p)² = z² p (1 − p) / n, by bisection."""
    z = 1.959963984540054

    def beyond(p: float) -> bool:
        return (share - p) ** 2 > z * z * p * (1 - p) / n

    ends = []
    for inside, outside in ((share, 0.0), (share, 1.0)):
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if beyond(middle) else (middle, outside)
        ends.append(inside)
    return ends


def hygiene(p: Problem) -> Block:
    train, test = ([tuple(x.flatten().tolist()) for x in each] for each in (p.x, p.x_test))
    y, y_test = (list(map(tuple, each.reshape(len(each), -1).tolist())) for each in (p.y, p.y_test))
    across, within, within_test = loops.duplicates(train, test)
    in_train, conflicting = loops.conflicts(train, y, test, y_test)
    spaces = spaces_of(p, train, test)
    found: Block = {
        "duplicates_across_splits": across,
        "duplicates_within_train": within,
        "duplicates_within_test": within_test,
        "conflicting_labels": in_train + conflicting,
        "conflicts": {"within_train": in_train, "across_splits": conflicting},
        "leaked": _leak(p, list(zip(train, y, strict=True)), list(zip(test, y_test, strict=True))),
    }
    found["near"] = _near(p, spaces)
    found["near_duplicates"] = len(found["near"]["pairs"]) if "pairs" in found["near"] else None
    if p.task == "regression":
        return {**found, "class_balance": {"train": None}, "suspected_mislabels": {"count": None, "space": None}}
    return {**found, "class_balance": _balance(p), "suspected_mislabels": _suspected(p, spaces)}


def _leak(p: Problem, train: list[tuple[Row, Row]], test: list[tuple[Row, Row]]) -> Block:
    """Copies with their label; the values of these data are too fine to repeat by chance."""
    copied = [pair in train for pair in test]
    natural = mean([float(train.count(pair) > 1) for pair in train])
    share = mean(list(map(float, copied)))
    found: Block = {
        "copies": sum(copied),
        "share": share,
        "share_ci95": wilson(share, len(test)),
        "coincidences": 0,
        "repeated_within_train": natural,
        "repeated_within_train_ci95": wilson(natural, len(train)),
        "unexplained_share": share,
        "unexplained_share_ci95": wilson(share, len(test)),
        "searched": 1.0,
        "estimated_share": share,
        "without_copies": None,
    }
    if any(copied) and not all(copied):
        left = [k for k, copy in enumerate(copied) if not copy]
        losses, own = p.losses(p.x_test, p.y_test), mean(p.losses(p.x, p.y))
        gap = mean(losses[left]) - own
        found["without_copies"] = {"samples": len(left), "loss_gap": gap, "loss_gap_shift": gap - mean(losses) + own}
        if p.task != "regression":
            wrong, own = p.wrong(p.x_test, p.y_test), mean(p.wrong(p.x, p.y))
            found["without_copies"]["error_gap"] = mean(wrong[left]) - own
            found["without_copies"]["error_gap_shift"] = mean(wrong[left]) - mean(wrong)
    return found


def _balance(p: Problem) -> Block:
    classes = range(max(2, p.scores(p.x[:1]).shape[1]))
    train, test = (Counter(each.tolist()) for each in (p.y, p.y_test))
    present = [train[label] for label in classes if train[label]]
    return {
        "train": {str(label): train[label] for label in classes},
        "test": {str(label): test[label] for label in classes},
        "missing_in_train": [str(label) for label in classes if not train[label]],
        "missing_in_test": [str(label) for label in classes if not test[label]],
        "ratio": max(present) / min(present),
        "difference": sum(abs(train[c] / len(p.y) - test[c] / len(p.y_test)) for c in classes) / 2,
    }


def _near(p: Problem, spaces: list[Space]) -> Block:
    """Test samples far closer to one train sample than chance would bring them."""
    inputs = [space for space in spaces if space.name != "features"]
    if not inputs or not inputs[0].fresh:
        return {"space": None, "threshold": None}
    space = best(inputs)
    rows = list(dict.fromkeys(space.train))
    k = min(NEAREST, len(rows))
    ratios, dimension = loops.near_ratios(space.train, space.test, k)
    radii = [sorted(math.dist(space.test[t], row) for row in rows)[:k] for t in space.fresh]
    logs = [math.log(r[-1] / r[(k + 1) // 2 - 1]) for r in radii]
    spread, n = mean(logs), len(p.x_test)
    deviation = math.sqrt(mean([(value - spread) ** 2 for value in logs]))
    threshold = min(1 / 3, (1 - (1 - 0.05 / n) ** (1 / (k - 1))) ** (1 / dimension))
    close = sorted((ratio, t) for ratio, t in zip(ratios, space.fresh, strict=True) if ratio < threshold)
    return {
        "space": space.name,
        "dimension": dimension,
        "dimension_std": dimension / spread * deviation / math.sqrt(len(logs)),
        "threshold": threshold,
        "within_train": _within_train(rows, threshold) if close else None,
        "pairs": [_pair(p, space, t, ratio) for ratio, t in close],
    }


def _within_train(rows: list[Row], threshold: float) -> float:
    """Share of the different train inputs with such a twin among the others."""
    close = []
    for place, row in enumerate(rows):
        radii = sorted(math.dist(row, other) for other in rows[:place] + rows[place + 1 :])[:NEAREST]
        close.append(float(radii[0] / radii[-1] < threshold))
    return mean(close)


def _pair(p: Problem, space: Space, t: int, ratio: float) -> Block:
    distances = [math.dist(space.test[t], row) for row in space.train]
    i = distances.index(min(distances))
    same = bool((p.y[i] == p.y_test[t]).all())
    return {"train": i, "test": t, "same_label": same, "distance": distances[i], "ratio": ratio}


def _suspected(p: Problem, spaces: list[Space]) -> Block:
    """Train labels that their neighbours outvote clearly, and how many of them chance explains."""
    if not spaces:
        return {"count": None, "spaces": []}
    y, y_test, space = p.y.tolist(), p.y_test.tolist(), chosen(spaces, wilson)
    tried = [
        {"name": s.name, "agreement": s.agreement, "agreement_ci95": wilson(s.agreement, len(s.fresh))} for s in spaces
    ]
    commonest = max(Counter(y_test[t] for t in space.fresh).values()) / len(space.fresh)
    if wilson(space.agreement, len(space.fresh))[0] <= commonest:
        return {"count": None, "space": None, "spaces": tried}
    voters = list(zip(space.train, y, strict=True))
    votes = [loops.votes(row, voters[:i] + voters[i + 1 :]) for i, row in enumerate(space.train)]
    suspects = [i for i, shares in enumerate(votes) if loops.suspect(shares, y[i])]
    found: Block = {"count": len(suspects), "share": len(suspects) / len(y), "space": space.name, "spaces": tried}
    listed = sorted((_suspect(i, y[i], votes[i]) for i in suspects), key=lambda s: (-s["agreement"], s["own"]))
    found["suspects"] = listed[:LISTED]
    if space.name == "features" or len(y) / len(set(y)) < 10:  # so few of a class that leaving one out tells
        return {**found, "expected_by_chance": None, "estimated_rate": None}
    on_test = [(loops.votes(space.test[t], voters), y_test[t]) for t in space.fresh]
    chance = mean([float(loops.suspect(*pair)) for pair in on_test])
    X = mean([loops.outvoted(shares, label) for shares, label in zip(votes, y, strict=True)])
    Y = mean([loops.outvoted(*pair) for pair in on_test])
    C = max(2, p.scores(p.x[:1]).shape[1])
    room = 1 - Y * C / (C - 1)
    found["estimated_rate"] = min(1.0, max(0.0, (X - Y) / room)) if room > 0 else None
    found["expected_by_chance"] = chance * len(y)
    found["expected_by_chance_ci95"] = [len(y) * end for end in wilson(chance, len(space.fresh))]
    return found


def _suspect(i: int, label: int, shares: dict[int, float]) -> Block:
    top = max(share for other, share in shares.items() if other != label)
    winner = min(other for other, share in shares.items() if other != label and share == top)
    own = shares.get(label, 0.0)
    return {"index": i, "label": str(label), "neighbours_label": str(winner), "agreement": top, "own": own}
