"""Count how often a report is right where the truth is known: about the test split, and about twice the data.

Run it in the development environment: `python samples/count_twins.py`; about fifteen minutes on one thread of a CPU, or
for one part alone, such as `inputs`, less: the others stay as they were recorded. The counts go to
`samples/twin_rates.json`, which the definition cards quote. Every seed divides the samples anew. Twins are trained and
judged by the tool's own code, with the recipe of the bundled networks; nothing inside them is measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import torch
from count_findings import rounded, samples
from numpy.typing import NDArray
from torch import nn
from train import HERE, perceptron

from audit.measures.hygiene.duplicates import row_ids
from audit.measures.hygiene.measure import compare_inputs
from audit.twins import About, Recipe, Twin, TwinSet
from audit.twins.answers.data import curve, held_out
from audit.twins.kinds import Kind, chosen_kinds
from audit.twins.outcomes import judge
from audit.twins.stack import chain_of
from audit.twins.training import Architecture, Goal, Samples, Training

RESULT = HERE / "twin_rates.json"
RECIPE, TARGET = Recipe(rate=0.1, batch=50, epochs=1500), 2e-3
TABLE = Recipe(rate=0.1, batch=25, epochs=2000)
HALF, QUARTER, PLAIN = (chosen_kinds([name])[0] for name in ("half", "quarter", "plain"))
SPLITS = {"mnist": 4, "mnist-5": 8, "mnist-3": 8, "digits": 10, "breast-cancer": 10}  # seeds of each
CURVES = {"mnist": (1000,), "mnist-5": (400, 800), "digits": (500,)}  # train samples, doubled for the truth
TRIALS, TRUTHS = 5, 6  # of each size; networks on twice the samples
COPIED = 0.2
HONEST, CHANGED = 25, 5  # divisions whose inputs are compared as they are, and changed in every way

Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]
Change = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]  # images [n, s, s] in [0, 1]


def blurred(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean over three by three pixels."""
    wide, size = np.pad(x, ((0, 0), (1, 1), (1, 1))), x.shape[1]
    return np.mean([wide[:, i : i + size, j : j + size] for i in range(3) for j in range(3)], axis=0, dtype=np.float32)


CHANGES: dict[str, Change] = {
    "moved by a fourteenth": lambda x, _: np.roll(x, max(1, x.shape[1] // 14), 2),
    "half the contrast": lambda x, _: x / 2,
    "blurred": lambda x, _: blurred(x),
    "noise of 0.2": lambda x, draw: (x + draw.normal(0, 0.2, x.shape)).astype(np.float32),
    "mirrored": lambda x, _: x[:, :, ::-1].copy(),
}


def main() -> None:
    """Counts what is asked for, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all where none is given")
    asked = parser.parse_args().parts or list(PARTS)
    torch.set_num_threads(1)
    before = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    parts = {name: list(rows()) if name in asked else before.get(name, []) for name, rows in PARTS.items()}
    lines = (
        f'"{name}": [\n' + ",\n".join(json.dumps(rounded(row)) for row in rows) + "\n]" for name, rows in parts.items()
    )
    RESULT.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def split_part() -> Iterator[dict[str, Any]]:
    """What half twins say of every division."""
    return (row for data, seeds in SPLITS.items() for seed in range(1, seeds + 1) for row in split_rows(data, seed))


def curve_part() -> Iterator[dict[str, Any]]:
    """Every forecast."""
    for data, sizes in CURVES.items():
        yield from (curve_row(data, n, seed) for n in sizes for seed in range(1, TRIALS + 1))


def input_part() -> Iterator[dict[str, Any]]:
    """How well test inputs are told from train inputs: of many honest divisions, and of some changed in every way."""
    for data in SPLITS:
        for seed in range(1, HONEST + 1):
            train, test = divided(data, seed)
            changes = ways(data, train, test, np.random.default_rng(seed)) if seed <= CHANGED else [("as it is", test)]
            for way, (x, _) in changes:
                found = compare_inputs((torch.from_numpy(train[0]), torch.from_numpy(x)), ids(train[0], x), None, seed)
                row = {"data": data, "seed": seed, "way": way, "accuracy": found.accuracy, "differ": found.differ}
                print(row, flush=True)
                yield row


def ids(x: NDArray[np.float32], x_test: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Equal where inputs are."""
    first, second = row_ids(x, x_test)
    return first, second


PARTS = {"splits": split_part, "curves": curve_part, "inputs": input_part}


def divided(data: str, seed: int) -> tuple[Arrays, Arrays]:
    """Four fifths as train, the others as test."""
    x, y = samples(data)
    order = np.random.default_rng(seed).permutation(len(x))
    cut = len(x) * 4 // 5
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


# Is test like train? An honest split, images that were changed, and copies of train.


def split_rows(data: str, seed: int) -> Iterator[dict[str, Any]]:
    """What half twins say of one division of the samples, and of its test split changed in every way."""
    train, test = divided(data, seed)
    for way, changed in ways(data, train, test, np.random.default_rng(seed)):
        twins = of_kinds([(HALF, HALF.count)], train, changed, recipe_of(data))
        found = held_out(twins)
        row = {"data": data, "seed": seed, "way": way, "verdict": found.verdict}
        print(row, flush=True)
        yield row


def ways(data: str, train: Arrays, test: Arrays, draw: np.random.Generator) -> Iterator[tuple[str, Arrays]]:
    """The test split as it is, then otherwise."""
    (x, y), copies = test, round(COPIED * len(test[1]))
    yield "as it is", test
    x_known, y_known = (np.concatenate([a[:copies], b[copies:]]) for a, b in zip(train, test, strict=True))
    yield "a fifth from train", (x_known, y_known)
    if data == "breast-cancer":
        return
    side = round(x.shape[1] ** 0.5)
    for way, change in CHANGES.items():
        yield way, (change(x.reshape(-1, side, side), draw).reshape(x.shape), y)


# What would twice the data bring? Twins on a quarter, a half and all; the truth by networks on twice as many.


def curve_row(data: str, n: int, seed: int) -> dict[str, Any]:
    """One forecast and what came true."""
    x, y = samples(data)
    order = np.random.default_rng(100 + seed).permutation(len(x))
    parts = order[:n], order[: 2 * n], order[2 * n :]
    now, twice, test = ((x[rows], y[rows]) for rows in parts)
    kinds = [(kind, kind.count) for kind in (QUARTER, HALF, PLAIN)]
    found = curve(of_kinds(kinds, now, test, recipe_of(data)), len(test[1]))
    true = [twin.test_error for twin in of_kinds([(PLAIN, TRUTHS)], twice, test, recipe_of(data)).twins if twin.reached]
    row = {"data": data, "n": n, "seed": seed, **{key: asdict(found)[key] for key in KEPT}, "true": true}
    row["points"] = [point.test for point in found.points]
    print(row, flush=True)
    return row


KEPT = ("twice", "twice_ci95", "change", "change_ci95", "verdict", "skipped")


# Twins of the tool's own making.

TRAINED: dict[Any, Any] = {}


def recipe_of(data: str) -> Recipe:
    """As `count_findings.py` has it."""
    return RECIPE if data.startswith("mnist") else TABLE


def of_kinds(kinds: list[tuple[Kind, int]], train: Arrays, test: Arrays, recipe: Recipe) -> TwinSet:
    """So many twins of each kind, judged on test."""
    on, off = (Samples(torch.from_numpy(x), torch.from_numpy(y), "classification") for x, y in (train, test))
    network: nn.Module = perceptron(on.x.shape[1], int(on.y.max()) + 1).eval().requires_grad_(False)
    architecture = Architecture(network, chain_of(network, on.x[:8]))
    twins, outcomes = [], []
    for kind, count in kinds:
        for one in trained(architecture, on, kind, count, recipe):
            judged = judge(network, one, on, off, TARGET)
            twins.append(
                Twin(
                    kind=kind.name,
                    family="given",
                    seed=one.lesson.seed,
                    whole=True,
                    train_samples=len(one.lesson.rows),
                    train_loss=one.train_loss,
                    temperature=judged.temperature,
                    matched=judged.matched,
                    restarts=one.restarts,
                    reached=one.reached,
                    epochs=one.epochs,
                    train_error=judged.train_error,
                    test_error=judged.test_error,
                    test_loss=judged.test_loss,
                )
            )
            outcomes.append(judged.outcomes)
    task: Literal["classification"] = "classification"
    about = About(architecture="", data="", task=task, target=TARGET, recipe=recipe)
    return TwinSet(
        about=about,
        recipe=recipe,
        recipe_given=True,
        family="given",
        families={"given": recipe},
        model={},
        twins=tuple(twins),
        left_out=(),
        outcomes=tuple(outcomes),
    )


def trained(architecture: Architecture, on: Samples, kind: Kind, count: int, recipe: Recipe) -> list[Any]:
    """The same networks for every test split: those of the last call are kept."""
    key = (kind.name, count, len(on.x), float(on.x.double().sum()), recipe)
    if key not in TRAINED:
        TRAINED.clear()
        lessons = [kind.lesson(on, seed) for seed in range(count)]
        TRAINED[key] = Training(architecture, on, recipe, lessons).run(Goal(TARGET))
    return TRAINED[key]  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
