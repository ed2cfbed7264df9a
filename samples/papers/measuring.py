"""The numbers of one network: the project's own measures, as they are taken of a twin."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from audit.data.dataset import Data
from audit.measures.suite import Results
from audit.model.base import Model
from audit.run.in_memory import sources_of
from audit.run.pipeline import prepare
from audit.run.progress import Progress
from audit.run.setup import tempered
from audit.settings import Settings
from audit.twins.outcomes import NOT_NEEDED, judge, measuring
from audit.twins.stack import chain_of
from audit.twins.training import Architecture, Samples, Trained

LAYER = "fc2"  # between the hidden layers: the one that Feng & Tu look at
SHARP = 10  # n_s of their Figs 3 and 4
C_OVER = 50  # directions whose c_n are averaged: beyond them contributions are small
SHOWN = tuple(np.unique(np.geomspace(1, 900, 28).round().astype(int)).tolist())  # n at which spectra are drawn
ONLY_FLATNESS = (*NOT_NEEDED, "duality", "fisher", "sensitivity")
CURVED = 1e-6  # of the largest eigenvalue: below it a direction counts as flat to rounding
RESCALED = 5.0, 25.0  # Petzka et al.'s range of the factors of layers

OF_LAYERS = (
    "weight_norm_squared",
    "lambda_max",
    "trace",
    "kappa",
    "kappa_tau",
    "rho",
    "rho_sigma",
    "relative_flatness",
)
OF_FLATNESS = ("kappa_max", "kappa_sum", "kappa_tau_max", "kappa_tau_sum", "rho_max", "rho_sum", "trace_sum")
OF_FISHER = ("gamma", "gamma_norms", "gamma_angles", "frobenius_norm", "spectral_radius", "robustness")
OF_SENSITIVITY = ("sharpness", "mls", "nmls", "mean_log_volume", "mean_log_volume_centred", "dimensionality")


@dataclass(frozen=True)
class Bench:
    """The architecture and the samples, ready for training and for measuring."""

    model: Model
    data: Data
    architecture: Architecture
    train: Samples
    test: Samples
    settings: Settings
    target: float

    def network(self, trained: Trained) -> Model:
        """A trained network in the place of the model's own, its scores brought to the target train loss."""
        network = _with(self.model.network, trained.tensors)
        factor = judge(self.architecture.network, trained, self.train, self.test, self.target).temperature
        return tempered(replace(self.model, network=network), factor)

    def taught(self, trained: Trained) -> Data:
        """The data with the train samples and labels that a network was trained on."""
        rows, labels = trained.lesson.rows, trained.lesson.labels
        y = (self.train.y if labels is None else labels)[rows].numpy()
        split = self.data.train
        return replace(self.data, train=replace(split, x=split.x[rows.numpy()], y=y, total=len(rows)))


def bench(folder: Path, network: nn.Module, target: float, subsets: int = 100) -> Bench:
    """Reads the samples of a folder of `train.npz` and `test.npz` for a network."""
    settings = Settings(budget="none", samples=0, widths=0, subsets=subsets, subset_size=subsets)
    with ExitStack() as stack:
        splits = [np.load(folder / f"{split}.npz") for split in ("train", "test")]
        pairs = [(_rows(split["x"]), split["y"].astype(np.int64)) for split in splits]
        ready = prepare(sources_of(network, *pairs, stack), settings, Progress())
    train, test = (Samples(torch.from_numpy(x), torch.from_numpy(y), ready.task) for x, y in pairs)
    architecture = Architecture(network, chain_of(network, train.x[:8]))
    return Bench(ready.model, ready.data, architecture, train, test, settings, target)


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).astype(np.float32) / (255 if x.dtype == np.uint8 else 1)


def measured(bench: Bench, trained: Trained) -> dict[str, Any]:
    """All numbers of a network, by name, and the spectra that are drawn."""
    judged = judge(bench.architecture.network, trained, bench.train, bench.test, bench.target)
    found: dict[str, Any] = {
        "reached": trained.reached,
        "matched": judged.matched,
        "epochs": trained.epochs,
        "restarts": trained.restarts,
        "temperature": judged.temperature,
        "train_samples": len(trained.lesson.rows),
        "train_error": judged.train_error,
        "test_error": judged.test_error,
        "loss_gap": judged.test_loss - bench.target,
    }
    model, data = bench.network(trained), bench.taught(trained)
    lean = measuring(model, data, bench.train.task, bench.settings)
    results = lean.results(model, data, bench.train.task, directions=None)
    found |= {**dict(_flatness(results)), **dict(_network(results)), **_duality(results)}
    return found | rescaled(bench, trained, data, found)


def _flatness(results: Results) -> Iterator[tuple[str, float]]:
    block = results.measurements["flatness"]
    for layer, values in block.layers.items():
        yield from ((f"{layer}.{name}", getattr(values, name)) for name in OF_LAYERS)
    yield from ((name, getattr(block.network, name)) for name in OF_FLATNESS)


def _network(results: Results) -> Iterator[tuple[str, Any]]:
    fisher, sensitivity = (results.measurements[key].network for key in ("fisher", "sensitivity"))
    yield from ((name, getattr(fisher, name)) for name in OF_FISHER)
    yield "singular_subsets", fisher.singular_subsets
    if fisher.pac_bayes is not None:
        yield "pac_bayes.bound", fisher.pac_bayes.bound
        yield "pac_bayes.vacuous", fisher.pac_bayes.vacuous
    yield from ((name, getattr(sensitivity, name)) for name in OF_SENSITIVITY)
    yield from ((f"chain.{step}", getattr(sensitivity.chain, step)) for step in "ABCD")
    for bound in sensitivity.bounds:
        yield f"{bound.id}.holds", bound.holds
        yield f"{bound.id}.tightness", bound.tightness
        yield f"{bound.id}.right", bound.right


def _duality(results: Results) -> dict[str, Any]:
    block = results.measurements["duality"].layers[LAYER]
    g, w = np.array(block.sigma_g), np.array(block.sigma_w)
    each = np.array(block.contribution)
    H = np.array(block.eigenvalues)
    c = np.array([np.nan if value is None else value for value in block.c])
    shown = [n - 1 for n in SHOWN if n <= len(g)]
    long = (CURVED * H.max() < H) & (g > CURVED * g.max())
    return {
        "aw.gap": block.gap,
        "aw.mean_term": block.mean_term,
        "aw.residual": block.max_residual,
        "aw.sharp": each[:SHARP].sum(),
        "aw.flat": each[SHARP:].sum(),
        "aw.sharp_share": each[:SHARP].sum() / each.sum(),
        "aw.sharp_g": np.sqrt(np.square(g[:SHARP]).sum()),
        "aw.flat_g": np.sqrt(np.square(g[SHARP:]).sum()),
        "aw.sharp_w": w[:SHARP].sum(),
        "aw.flat_w": w[SHARP:].sum(),
        "aw.sharp_variance": np.square(g[:SHARP]).sum() / np.square(g).sum(),
        "aw.sum_w": w.sum(),
        "aw.total_g": block.total_g,
        "aw.total_w": block.total_w,
        "aw.trace": block.trace_hessian,
        "aw.c": np.nanmean(c[:C_OVER]),
        "aw.c_negative": int((c[:C_OVER] < 0).sum()),
        "aw.elbow": block.sharp.elbow,
        "aw.count": block.sharp.count,
        "aw.drop": g[SHARP - 1] / g[SHARP] if len(g) > SHARP else None,
        "aw.g_and_H": np.corrcoef(np.log(H[long]), np.log(np.square(g[long])))[0, 1],
        "spectra": {"sigma_g": g[shown], "sum_w": w.cumsum()[shown], "c": c[shown]},
    }


def rescaled(bench: Bench, trained: Trained, data: Data, before: dict[str, Any]) -> dict[str, Any]:
    """The same function in other weights, measured again: how far what should not move did.

    Of a setting's first network the sharp and flat contributions are taken again, too.
    """
    model = bench.network(trained)
    model = tempered(replace(model, network=_with(bench.model.network, _scaled(bench, trained))), model.factor)
    first = trained.lesson.seed == 0
    left_out = [name for name in ONLY_FLATNESS if not (first and name == "duality")]
    lean = measuring(model, data, bench.train.task, bench.settings)
    results = lean.results(model, data, bench.train.task, directions=None, left_out=left_out)
    after = dict(_flatness(results)) | (_duality(results) if first else {})

    def moved(names: list[str]) -> float:
        return max(abs(after[name] / before[name] - 1) for name in names)

    invariant = [name for name in after if "kappa" in name or "rho" in name]
    found = {"rescaled.moved": moved(invariant)}
    return found | ({"rescaled.aw_moved": moved(["aw.sharp", "aw.flat"])} if first else {})


def _scaled(bench: Bench, trained: Trained) -> dict[str, Tensor]:
    """Every layer but the last times a random factor of Petzka et al.'s range, and the last by as much less."""
    draw = np.random.default_rng(trained.lesson.seed)
    names = bench.architecture.chain.layers
    factors = draw.uniform(*RESCALED, len(names) - 1).tolist()
    tensors, product = {}, 1.0
    for name, factor in zip(names, [*factors, 1 / float(np.prod(factors))], strict=True):
        product *= factor
        tensors[f"{name}.weight"] = factor * trained.tensors[f"{name}.weight"].double()
        tensors[f"{name}.bias"] = product * trained.tensors[f"{name}.bias"].double()
    return tensors


def _with(network: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    copied = copy.deepcopy(network).to(next(iter(tensors.values())).dtype)
    copied.load_state_dict(tensors)
    return copied.eval().requires_grad_(False)
