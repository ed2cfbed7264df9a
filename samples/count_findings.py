"""Train networks whose faults are known, audit them, and count how often each finding speaks up.

Run it in the development environment: `python samples/count_findings.py --work DIR`. Reports are kept in DIR, so that a
second run only judges them anew; the counts go to `samples/finding_rates.json`, which the definition cards quote. None
of the bundled networks is among them: every seed divides the samples anew, moves other labels and starts from other
weights. About 40 minutes on one thread of a CPU.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from train import HERE, Recipe, corrupt, export
from train import train as train_network

from audit.findings import add_findings
from audit.measures import Report
from audit.run.pipeline import run_audit
from audit.run.progress import Progress
from audit.settings import Settings

SEEDS = range(1, 6)
SETTINGS = Settings(bootstrap=500, widths=0, subsets=5, memory="1GB")
RESULT = HERE / "finding_rates.json"

CLEAN = Recipe("small batches, clean labels")
MNIST = {
    "clean": CLEAN,
    "wrong-5": replace(CLEAN, wrong_labels=0.05),
    "wrong-10": replace(CLEAN, wrong_labels=0.10),
    "wrong-25": replace(CLEAN, wrong_labels=0.25),
    "few": CLEAN,  # a quarter of the train samples
    "large-batch": replace(CLEAN, batch=500),
    "small-steps": replace(CLEAN, learning_rate=0.02),
    "decay": replace(CLEAN, weight_decay=1e-3, max_epochs=100),
    "short": replace(CLEAN, max_epochs=2),
    "short-wrong-25": replace(CLEAN, wrong_labels=0.25, max_epochs=5),
}
TABLE = {name: replace(MNIST[name], learning_rate=0.05) for name in ("clean", "wrong-5", "wrong-10", "wrong-25")}
FEWER_CLASSES = {name: MNIST[name] for name in ("clean", "wrong-10", "large-batch")}
CASES = {
    "mnist-3": FEWER_CLASSES,  # the digits 0, 1 and 2 only
    "mnist-5": FEWER_CLASSES,
    "mnist": MNIST,
    "digits": TABLE,
    "breast-cancer": TABLE,
}
FEW = 0.25
ENOUGH_EPOCHS = 600


@dataclass(frozen=True)
class Case:
    """One network: what it was trained on and how."""

    data: str
    recipe: str
    seed: int

    @property
    def name(self) -> str:
        """How its files are called."""
        return f"{self.data}-{self.recipe}-{self.seed}"


def main() -> None:
    """Train and audit what is missing, then find everything anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the networks, their data and reports")
    work = parser.parse_args().work
    torch.set_num_threads(1)
    rows = []
    for case in cases():
        folder = work / case.name
        if not (folder / "report.json").exists():
            audit_case(case, folder)
            print(case.name, flush=True)
        rows.append(summary(case, folder))
    write(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """The record: how many networks of each kind there are, one line for each finding, and one for each network."""
    trained = Counter(kind(row) for row in rows)
    counted = ",\n".join(f"{json.dumps(id)}: {json.dumps(levels)}" for id, levels in rates(rows).items())
    networks = ",\n".join(json.dumps(rounded(row)) for row in rows)
    parts = f'"trained": {json.dumps(trained)},\n"rates": {{\n{counted}\n}},\n"networks": [\n{networks}\n]'
    RESULT.write_text(f"{{{parts}}}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Four digits are enough to check a limit by."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def cases() -> Iterator[Case]:
    """Every network, seed by seed."""
    for seed in SEEDS:
        for data, recipes in CASES.items():
            for recipe in recipes:
                yield Case(data, recipe, seed)


def audit_case(case: Case, folder: Path) -> None:
    """Train one network, write it with its data, and leave its report there."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = CASES[case.data][case.recipe]
    x, y, x_test, y_test = divided(*samples(case.data), case.seed, FEW if case.recipe == "few" else 1.0)
    classes = int(y.max()) + 1
    given = corrupt(y, recipe.wrong_labels, classes, case.seed)
    recipe = replace(recipe, max_epochs=min(recipe.max_epochs, ENOUGH_EPOCHS))
    network, _, _ = train_network(recipe, torch.from_numpy(x), torch.from_numpy(given), classes, case.seed)
    export(network, folder / "model.onnx")
    np.savez_compressed(folder / "train.npz", x=x, y=given)
    np.savez_compressed(folder / "test.npz", x=x_test, y=y_test)
    np.save(folder / "moved", given != y)
    report = run_audit(folder / "model.onnx", folder, SETTINGS, "count findings", Progress()).report
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")


def samples(data: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All samples of a data set as rows of sensible size, and their labels."""
    if data.startswith("mnist"):
        parts = [np.load(HERE / "mnist" / f"{split}.npz") for split in ("train", "test")]
        x, y = (np.concatenate([part[key] for part in parts]) for key in ("x", "y"))
        kept = y < int(data.removeprefix("mnist").lstrip("-") or 10)
        return x[kept].reshape(kept.sum(), -1).astype(np.float32) / 255, y[kept]
    from sklearn.datasets import load_breast_cancer, load_digits

    x, y = (load_digits if data == "digits" else load_breast_cancer)(return_X_y=True)
    x = x / 16 if data == "digits" else (x - x.mean(0)) / x.std(0)
    return x.astype(np.float32), y.astype(np.int64)


def divided(x: Any, y: Any, seed: int, part: float) -> tuple[Any, Any, Any, Any]:
    """Four fifths to train on, of which `part` is used, and the rest to test on."""
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[: len(x) * 4 // 5], order[len(x) * 4 // 5 :]
    train = train[: round(part * len(train))]
    return x[train], y[train], x[test], y[test]


def summary(case: Case, folder: Path) -> dict[str, Any]:
    """What the cards may want to quote of one network."""
    report = add_findings(Report.from_json((folder / "report.json").read_text(encoding="utf-8")))
    moved = np.load(folder / "moved.npy")
    assert report.hygiene is not None
    labels = report.hygiene.suspected_mislabels
    listed = [bool(moved[suspect.index]) for suspect in labels.suspects]
    return {
        "data": case.data,
        "recipe": case.recipe,
        "seed": case.seed,
        "train_error": report.gap.train_error,
        "test_error": report.gap.test_error,
        "loss_gap": report.gap.loss_gap,
        "moved": int(moved.sum()),
        "suspects": labels.count,
        "wrong_rate": labels.estimated_rate,
        "wrong_rate_ci95": labels.estimated_rate_ci95,
        "listed": len(listed),
        "listed_and_moved": sum(listed),
        "layers": [_layer(layer) for layer in report.layers],
        "findings": {finding.id: finding.level for finding in report.findings},
    }


def _layer(layer: Any) -> dict[str, Any]:
    block = layer.duality
    if block is None or block.sharp is None:
        return {"name": layer.name}
    return {
        "name": layer.name,
        "complete": block.basis_complete,
        "elbow": block.sharp.elbow,
        "sharp": block.sharp.share,
        "sharp_count": block.sharp.count,
        "at_classes": None if block.fixed is None else block.fixed.share,
        "c": float(np.median([c for c in block.c if c is not None])) if any(c is not None for c in block.c) else None,
    }


def rates(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    """By finding and level: for each data set and recipe how many of its networks got it."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        for id, level in row["findings"].items():
            counts = found.setdefault(id, {}).setdefault(level, {})
            counts[kind(row)] = counts.get(kind(row), 0) + 1
    return found


def kind(row: dict[str, Any]) -> str:
    """Data set and recipe of a network."""
    return f"{row['data']} {row['recipe']}"


if __name__ == "__main__":
    main()
