"""Every number of a whole audit, from file to JSON, against the slow way: no code in common, plain autograd."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from references.whole import Problem, whole
from twins import ARCHITECTURES, Splits, audited, data_of, task_of, trained, write_state

NETWORKS = {
    "relu": ("fc1", "fc2", "fc3"),
    "tanh": ("fc1", "fc2", "fc3"),
    "gelu_dropout": ("fc1", "fc2", "fc3"),
    "batch_norm": ("fc1", "fc2"),
    "residual": ("fc1", "fc2", "fc3"),
    "bias_free": ("fc1", "fc2"),
    "linear": ("fc",),
    "lenet": ("fc1", "fc2"),
    "tabular": ("fc1", "fc2"),
    "regression": ("fc1", "fc2"),
    "regressions": ("fc1", "fc2"),
}
SETTINGS: dict[str, Any] = {"seed": 3, "subsets": 4, "subset_size": 12, "widths": 2, "volume": 2.0, "delta": 0.1}
EXACT, ITERATED = 1e-6, 1e-3
FOUND_BY_WALKING = ("width",)
NOISE = 1e-9  # an entry below this share of its list's largest is rounding
PER_DIRECTION = ("sigma_g", "sigma_w", "c", "contribution")
ROUNDING = 1e-15  # relative error of a Hessian's entries; its eigenvectors are off by this over the gap between them
FEW = 36, 18


def small(name: str) -> Splits:
    data = data_of(name)
    train, test = (
        np.linspace(0, len(y) - 1, few).astype(int) for y, few in zip((data.y_train, data.y_test), FEW, strict=True)
    )
    return Splits(data.x_train[train], data.y_train[train], data.x_test[test], data.y_test[test])


def subsets_of(report: dict[str, Any], n: int) -> list[list[int]]:
    """The drawn subsets, by the rule that the report's hash stands for."""
    rng = np.random.default_rng([SETTINGS["seed"], n, SETTINGS["subset_size"]])
    drawn = [np.sort(rng.choice(n, SETTINGS["subset_size"], replace=False)) for _ in range(SETTINGS["subsets"])]
    recorded = report["network"]["fisher"]["subsets_sha256"]
    assert recorded in ("", hashlib.sha256(np.stack(drawn).astype("<i8").tobytes()).hexdigest())
    return [subset.tolist() for subset in drawn]


def problem_of(name: str, data: Splits) -> Problem:
    network = copy.deepcopy(trained(name)).double().requires_grad_(False)
    arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
    x, y, x_test, y_test = (torch.from_numpy(values) for values in arrays)
    y, y_test = (values.double() if task_of(name) == "regression" else values.long() for values in (y, y_test))
    return Problem(network, x.double(), y, x_test.double(), y_test, task_of(name), NETWORKS[name])


def disagreements(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where the report differs from the reference, which says less: what it names must be there, and equal."""
    if isinstance(theirs, dict):
        if "id" in theirs:
            path = f"{path}({theirs['id']})"
        if ours is None:
            return [f"{path}: missing"]
        lines = []
        for key, value in theirs.items():
            if key in PER_DIRECTION and isinstance(value, list):
                lines += _apart_in_list(ours[key], value, f"{path}.{key}", _looseness(theirs, key))
            else:
                lines += disagreements(ours[key], value, f"{path}.{key}")
        return lines
    if isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        if "id" in theirs[0]:
            ours = [next(one for one in ours if one["id"] == other["id"]) for other in theirs]
        pairs = zip(ours, theirs, strict=True)
        return [line for place, pair in enumerate(pairs) for line in disagreements(*pair, f"{path}[{place}]")]
    if isinstance(theirs, list):
        return _apart_in_list(ours, theirs, path)
    if theirs is None or isinstance(theirs, (str, int)) or ours is None:
        return [] if ours == theirs else [f"{path}: {ours!r}, not {theirs!r}"]
    tolerance = ITERATED if path.split(".")[-1] in FOUND_BY_WALKING else EXACT
    return [] if abs(ours - theirs) <= tolerance * max(abs(theirs), 1e-12) else [f"{path}: {ours!r}, not {theirs!r}"]


def _apart_in_list(ours: list[Any], theirs: list[Any], path: str, loose: list[float] | None = None) -> list[str]:
    """`loose`: by which share of the largest entry each may differ."""
    rows = zip(ours, theirs, loose or [NOISE] * len(theirs), strict=True)
    known = [(a, b, extra) for a, b, extra in rows if a is not None]
    scale = max((abs(b) for _, b, _ in known), default=0.0)
    apart = [(a, b) for a, b, extra in known if not abs(a - b) <= max(EXACT * abs(b), extra * scale)]
    return [f"{path}: {len(apart)} of {len(theirs)} differ, such as {apart[0]}"] if apart else []


def _looseness(block: dict[str, Any], key: str) -> list[float]:
    """How far a direction may be off in any arithmetic of 16 digits: rounding over the gap to the next eigenspace.

    A correlation is a covariance over two deviations: it is as uncertain as the smaller of these makes it.
    """
    values = np.array(block["eigenvalues"]) / max(map(abs, block["eigenvalues"]))
    gaps = np.abs(values[:, None] - values[None])
    loose = NOISE + ROUNDING / np.where(gaps > 1e-10, gaps, np.inf).min(1)
    if key == "c":
        deviations = (np.array(block[name]) for name in ("sigma_g", "sigma_w"))
        loose = loose * sum(each.max() / np.maximum(each, 1e-300) for each in deviations)
    return loose.tolist()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_number_is_what_plain_autograd_finds(name: str, tmp_path: Path) -> None:
    data = small(name)
    weights = write_state(trained(name), torch.empty(0), tmp_path / "weights.pth")
    report = audited(weights, data.save(tmp_path / "data"), arch=f"{ARCHITECTURES}:{name}", **SETTINGS)
    assert [layer["name"] for layer in report["layers"]] == list(NETWORKS[name])
    expected = whole(problem_of(name, data), subsets_of(report, len(data.x_train)), SETTINGS)
    assert disagreements(report, expected) == []
