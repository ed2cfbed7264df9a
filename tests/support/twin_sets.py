"""Folders of twins as they could have come out: numbers and outcomes drawn from known distributions."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from audit.measures import Report
from audit.report.twins import (
    Band,
    Contradicted,
    Curve,
    CurvePoint,
    HeldOut,
    Labels,
    Likeness,
    Remedy,
    Twins,
    TwinsOfKind,
    WhoseErrors,
)
from audit.twins import About, Recipe, Twin, TwinOutcomes, TwinSet, Unseen

KEYS = (
    *(f"layers.{layer}.{end}" for layer in ("fc1", "fc2") for end in ("duality.fixed.share", "flatness.kappa_tau")),
    *("network.fisher.gamma", "network.sensitivity.mls", "network.sensitivity.mean_log_volume_centred"),
)
MEANS = {"fixed.share": 0.3, "gamma": -2000.0, "log_volume": 19.0}  # all other numbers are positive


def numbers(rng: np.random.Generator, shift: float = 0.0, spread: float = 0.05) -> dict[str, float]:
    """Inner numbers; `shift`, in spreads, tells kinds apart."""
    drawn = spread * (rng.standard_normal(len(KEYS)) + shift * np.linspace(-1, 1, len(KEYS)))
    found = {}
    for key, z in zip(KEYS, drawn, strict=True):
        mean = next((value for name, value in MEANS.items() if name in key), None)
        found[key] = 100 * np.exp(z) if mean is None else mean + z
    return {key: float(value) for key, value in found.items()}


def twin(kind: str, seed: int, wrong: float = 0.1, family: str = "given", **more: object) -> Twin:
    values = {"whole": True, "train_samples": 100, "train_loss": 0.01, "temperature": 1.0, "matched": True}
    values |= {"restarts": 0, "reached": True, "epochs": 10, "train_error": 0.0, "test_loss": 0.5, **more}
    return Twin(kind=kind, family=family, seed=seed, test_error=wrong, **values)  # type: ignore[arg-type]


def outcomes(right: np.ndarray, unseen: Unseen | None = None) -> TwinOutcomes:
    none = Unseen(*(np.empty(0, kind) for kind in (np.int64, float, float, float, float)))
    test = right.astype(np.float64)
    return TwinOutcomes(test, 1 - test, none if unseen is None else unseen, np.arange(len(test)))


def twin_set(
    twins: list[Twin],
    made: list[TwinOutcomes] | None = None,
    model: Mapping[str, float] | None = None,
    task: str = "classification",
) -> TwinSet:
    about = About(architecture="a", data="d", task=task, target=0.01, recipe=Recipe())  # type: ignore[arg-type]
    return TwinSet(
        about=about,
        recipe=Recipe(),
        recipe_given=True,
        family="given",
        families={"given": Recipe()},
        model=dict(model or {}),
        twins=tuple(twins),
        left_out=(),
        outcomes=tuple(made or [outcomes(np.ones(10)) for _ in twins]),
    )


# The block of a report, with every answer that there is.


def band(key: str, rng: random.Random, layer: str | None = None, value: float = 0.1) -> Band:
    place = rng.choice(("inside", "above", "below"))
    low, high = {"inside": (0.5, 2.0), "above": (0.2, 0.5), "below": (2.0, 3.0)}[place]
    return Band(
        key=key,
        name="a number",
        layer=layer,
        value=value,
        mean=value * (low + high) / 2,
        low=value * low,
        high=value * high,
        place=place,  # type: ignore[arg-type]
        percentile=0.4,
        twins=8,
        values=[value * low, value * high],
    )


def block(report: Report, rng: random.Random) -> Twins:
    """What twins might say of the model of a report."""
    regression = report.model.task == "regression"
    kinds = ("plain", "quiet", "decay", "large-start", None)
    kind, sure = rng.choice(kinds), rng.choice((0.99, 0.6))
    layers = [layer.name for layer in report.layers]
    ends = ("duality.fixed.share", "flatness.kappa_tau")
    return Twins(
        folder="twins",
        whole=True,
        recipe_given=rng.random() < 0.5,
        family="sgd-middle",
        recipe="SGD, rate 0.1, batches of 32, PyTorch's start",
        target=0.001,
        made=60,
        kinds=[_of_kind(name) for name in ("plain", "half", "quiet", "decay")],
        left_out={"fisher": "not asked for"},
        test_error=None if regression else band("test_error", rng, value=report.gap.test_error or 0.1),
        test_loss=band("test_loss", rng, value=abs(report.gap.test_loss) or 0.1) if regression else None,
        numbers=[
            *(band(f"layers.{layer}.{end}", rng, layer) for layer in layers for end in ends),
            *(band(f"network.{end}", rng) for end in ("sensitivity.mls", "sensitivity.mean_log_volume_centred")),
        ],
        likeness=Likeness(
            kind=kind,
            family="sgd-middle",
            next="decay",
            sureness=sure,
            far=kind is None and rng.random() < 0.5,
            asked=40,
            hits=38,
            hit_rate=0.95,
            hit_rate_ci95=(0.9, 1.0),
            hit_rate_of_kind=rng.choice((1.0, 0.5)),
            kinds=["plain", "quiet", "decay"],
            confusion=[[8, 0, 0], [0, 4, 0], [0, 1, 3]],
        ),
        curve=_curve(rng),
        held_out=HeldOut(
            held_out=0.15,
            test=0.15,
            difference=0.0,
            ci95=(-0.02, 0.02),
            samples=4000,
            twins=6,
            verdict=rng.choice(("same", "shifted", "easier", "cannot tell")),
            why="train labels in doubt account for it",
        ),
        errors=WhoseErrors(
            tests=1000, wrong=150, shared=120, hard=[3], own=[5], hard_count=70, own_count=4, saved_count=2
        ),
        labels=Labels(
            looked_at=4000,
            contradicted=20,
            share=0.005,
            both=10,
            samples=[Contradicted(index=1, label="a", told="b", twins=6, confidence=0.99)],
        ),
        remedies=_remedies(rng),
        notes=["The recipe was not given."],
    )


def _of_kind(name: str) -> TwinsOfKind:
    return TwinsOfKind(
        name=name,
        family="sgd-middle",
        change="something",
        question="Why?",
        made=4,
        reached=4,
        test=[0.1, 0.11, 0.12, 0.1],
    )


def _curve(rng: random.Random) -> Curve:
    points = [
        CurvePoint(train_samples=n, test=e, test_ci95=(e - 0.01, e + 0.01), twins=6)
        for n, e in ((1000, 0.2), (4000, 0.15))
    ]
    change = rng.choice((-0.02, -0.002))
    verdict = rng.choice(("helps", "cannot tell"))
    ends = (change - 0.001, change + (0.001 if verdict == "helps" else 0.03))
    return Curve(
        points=points, twice=0.15 + change, twice_ci95=(0.12, 0.15), change=change, change_ci95=ends, verdict=verdict
    )


def _remedies(rng: random.Random) -> list[Remedy]:
    verdict = rng.choice(("helps", "cannot tell"))
    kinds = ("decay", "loud", "longer")
    return (
        [
            Remedy(kind=kind, change="something", twins=4, effect=-0.01, ci95=(-0.02, 0.001), verdict=verdict)
            for kind in kinds
        ]
        if rng.random() < 0.8
        else []
    )
