"""Train sixty networks, feed each rightly and in eight wrong ways, and count what the doctor says.

Run it in the development environment: `python samples/count_doctor.py --work DIR --images FILE`, with colour images as
arrays x_train [n, h, w, 3] and y_train in FILE. Networks are kept in DIR; the counts go to `samples/doctor_rates.json`,
which the definition cards quote. About ten minutes on one thread of a CPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from train import HERE

from audit.data.in_memory import data_in_memory
from audit.data.task import resolve_task
from audit.model.torch.given import given_network
from audit.network.loss import LOSS_OF_TASK
from audit.network.records import Outcome
from audit.report.conduct import EXACT, Doctor
from audit.run.doctor import Patient, examine, run, with_class_order
from audit.run.fitting import fit
from audit.settings import Settings

RESULT = HERE / "doctor_rates.json"
PIXEL = 0.00392157
UNIT: dict[str, Any] = {"scale": PIXEL}
IMAGENET = {"scale": PIXEL, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CIFAR = {"scale": PIXEL, "mean": (0.4914, 0.4822, 0.4465), "std": (0.247, 0.2435, 0.2616)}
MNIST = {"scale": PIXEL, "mean": (0.1307,), "std": (0.3081,)}
SIGNED = {"scale": PIXEL, "mean": (0.5,), "std": (0.5,)}
GRAY_NORMS = {"unit": UNIT, "mnist": MNIST, "signed": SIGNED, "raw": {"scale": 1.0}}
COLOUR_NORMS = {"unit": UNIT, "imagenet": IMAGENET, "cifar": CIFAR, "signed": SIGNED}
TABLES = ("breast-cancer", "wine", "digits-table", "diabetes")
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One network: its data, kind, normalisation and length of training."""

    data: str
    kind: str  # mlp, mlp-bn, cnn, cnn-bn
    norm: str
    epochs: int

    @property
    def name(self) -> str:
        """How its file is called."""
        return f"{self.data}-{self.kind}-{self.norm}-{self.epochs}"


@dataclass(frozen=True)
class Fed:
    """Stored samples, their labels, and the flags that they are fed with."""

    x: Array
    y: Array
    flags: dict[str, Any]


def cases() -> list[Case]:
    """Sixty of them: gray and colour images and tables, with and without BatchNorm, stopped early and trained out."""
    gray = [Case("mnist", *rest) for rest in product(("mlp", "mlp-bn", "cnn", "cnn-bn"), GRAY_NORMS, (12,))]
    digits = [Case("digits", *rest) for rest in product(("mlp", "cnn-bn"), GRAY_NORMS, (2, 40))]
    colour = [Case("colour", *rest) for rest in product(("cnn", "cnn-bn"), COLOUR_NORMS, (10,))]
    colour += [Case("colour", *rest) for rest in product(("mlp", "mlp-bn"), ("unit", "imagenet"), (10,))]
    tables = [
        Case(data, kind, norm, 60) for data, kind, norm in product(TABLES, ("mlp", "mlp-bn"), ("standard", "range"))
    ]
    return [*gray, *digits, *colour, *tables]


def main() -> None:
    """Train what is missing, examine every network fed in every way, and write what was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the networks")
    parser.add_argument("--images", type=Path, required=True, help="colour images, as .npz")
    parser.add_argument("--seed", type=int, default=0, help="of other networks than those whose counts are kept")
    parser.add_argument("--result", type=Path, default=RESULT, help="file for the counts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in cases():
        right = rightly(case, given.images)
        network = kept(case, right, given.work, given.seed)
        for way, fed in {"right": right, **wrongly(case, right)}.items():
            rows.append({"network": case.name, "way": way, **said(examined(network, fed))})
            print(json.dumps(rows[-1]), flush=True)
    write(rows, given.result)


# data, and how they are fed


def rightly(case: Case, images: Path) -> Fed:
    """The data as they are stored, and the flags that the network is trained with."""
    x, y = samples(case.data, images)
    if case.data in TABLES:
        return Fed(x, y, _features(x, case.norm))
    if case.data != "colour":
        return Fed(x, y, GRAY_NORMS[case.norm])
    return Fed(x, y, COLOUR_NORMS[case.norm] | {"reshape": "to-nchw"})


def samples(data: str, images: Path) -> tuple[Array, Array]:
    """All samples as stored, and their labels."""
    if data == "mnist":
        with np.load(HERE / "mnist" / "train.npz") as file:
            return file["x"][:2000], file["y"][:2000]
    if data == "colour":
        with np.load(images) as file:
            return file["x_train"][:2500], file["y_train"][:2500].astype(np.int64)
    from sklearn import datasets

    load = getattr(datasets, f"load_{data.removesuffix('-table').replace('-', '_')}")
    x, y = load(return_X_y=True)
    if data == "digits":
        return (15 * x).astype(np.uint8).reshape(-1, 8, 8), y.astype(np.int64)
    return x, (y / 100)[:, None] if data == "diabetes" else y.astype(np.int64)


def _features(x: Array, norm: str) -> dict[str, Any]:
    """Standardised, or between 0 and 1, feature by feature."""
    mean, std = (x.mean(0), x.std(0)) if norm == "standard" else (x.min(0), np.ptp(x, 0))
    return {"mean": tuple(mean.tolist()), "std": tuple(np.where(std > 0, std, 1.0).tolist())}


def wrongly(case: Case, right: Fed) -> dict[str, Fed]:
    """The same network's samples fed in eight ways that are wrong; of a regression, those that its labels allow."""
    ways = dict(_as_table(case, right) if case.data in TABLES else _as_images(case, right))
    inputs = fed_rightly(right)
    ways = {way: fed for way, fed in ways.items() if _differs(fed, right, inputs)}
    return ways | (dict(_with_labels(right)) if case.data != "diabetes" else {})


def _differs(fed: Fed, right: Fed, inputs: NDArray[np.float32]) -> bool:
    """Whether other numbers are fed: features whose mean is 0 do not miss its subtraction."""
    if fed.x is not right.x:
        return True
    return bool(np.sqrt(np.square(fed_rightly(fed) - inputs).mean()) > 0.05 * inputs.std())


def _with_labels(right: Fed) -> Iterator[tuple[str, Fed]]:
    classes = int(right.y.max()) + 1
    swapped, shifted = np.arange(classes), np.roll(np.arange(classes), 1)
    swapped[[0, 1]] = 1, 0
    yield "two classes swapped", replace(right, y=swapped[right.y])
    if classes > 2:
        yield "classes shifted by one", replace(right, y=shifted[right.y])
    if classes > 3:
        some = np.arange(classes)
        some[1:4] = 2, 3, 1
        yield "three classes in a circle", replace(right, y=some[right.y])


def _as_images(case: Case, right: Fed) -> Iterator[tuple[str, Fed]]:
    x, own = right.x, right.flags
    raw = case.norm == "raw"
    yield "255 times too large or small", replace(right, flags=UNIT if raw else own | {"scale": 1.0})
    yield "divided by 255 twice", replace(right, flags={"scale": PIXEL**2} if raw else own | {"scale": PIXEL**2})
    colour = case.data == "colour"
    plain = {"scale": own["scale"], **({"reshape": "to-nchw"} if colour else {})}
    other = {} if own.get("mean") else IMAGENET if colour else MNIST
    yield "mean and std forgotten, or not asked for", replace(right, flags=plain | other)
    other = UNIT if case.norm == "signed" else SIGNED
    yield "between -1 and 1, or not", replace(right, flags=plain | other)
    if colour:
        yield "channels reversed", replace(right, x=x[..., ::-1])
        reshaped = {key: value for key, value in own.items() if key != "reshape"}
        yield "reshaped, not transposed", replace(right, x=x.reshape(len(x), 3, *x.shape[1:3]), flags=reshaped)
    else:
        yield "ImageNet's mean and std in gray", replace(right, flags=UNIT | {"mean": (0.449,), "std": (0.226,)})


def _as_table(case: Case, right: Fed) -> Iterator[tuple[str, Fed]]:
    x, (mean, std) = right.x, (right.flags["mean"], right.flags["std"])
    yield "not normalised", replace(right, flags={})
    yield "otherwise normalised", replace(right, flags=_features(x, "range" if case.norm == "standard" else "standard"))
    yield "mean not subtracted", replace(right, flags={"std": std})
    yield "not divided by std", replace(right, flags={"mean": mean})
    yield "normalised twice", replace(right, x=(x - mean) / std)
    signed = _features(x, "range")
    half = np.array(signed["std"]) / 2
    middle = np.array(signed["mean"]) + half
    yield "between -1 and 1", replace(right, flags={"mean": tuple(middle.tolist()), "std": tuple(half.tolist())})


# networks


def kept(case: Case, right: Fed, work: Path, seed: int = 0) -> nn.Module:
    """The trained network, from its file where there is one."""
    torch.manual_seed(sum(map(ord, case.name)) + 10_000 * seed)
    outputs = 1 if case.data == "diabetes" else int(right.y.max()) + 1
    x = fed_rightly(right)
    network = built(case.kind, x.shape[1:], outputs)
    path = work / f"{case.name}{f'-{seed}' if seed else ''}.pth"
    if path.exists():
        network.load_state_dict(torch.load(path))
    else:
        trained(network, torch.from_numpy(x), torch.from_numpy(right.y), case.epochs)
        torch.save(network.state_dict(), path)
    return network.eval()


def fed_rightly(right: Fed) -> NDArray[np.float32]:
    """Samples as the network is trained on them, channels first."""
    x = right.x.astype(np.float64) * right.flags.get("scale", 1.0)
    mean, std = (np.array(right.flags.get(key, (neutral,))) for key, neutral in (("mean", 0.0), ("std", 1.0)))
    x = (x - mean) / std
    x = x[:, None] if x.ndim == 3 else np.moveaxis(x, 3, 1) if x.ndim == 4 else x
    return np.ascontiguousarray(x, np.float32)


def built(kind: str, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network of two hidden layers, with BatchNorm or without."""
    bn = kind.endswith("-bn")
    if kind.startswith("mlp"):
        size = int(np.prod(shape))
        hidden = [nn.Linear(size, 48), nn.BatchNorm1d(48) if bn else nn.Identity(), nn.ReLU()]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, outputs))
    width = 12 if shape[-1] > 8 else 8
    first = [nn.Conv2d(shape[0], width, 3, padding=1), nn.BatchNorm2d(width) if bn else nn.Identity(), nn.ReLU()]
    second = [nn.MaxPool2d(2), nn.Conv2d(width, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(256, outputs))


def trained(network: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
    """Adam, batches of 32."""
    loss: Callable[..., torch.Tensor] = nn.MSELoss() if y.dim() == 2 else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    y = y.float() if y.dim() == 2 else y
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(32):
            if len(rows) > 1:
                optimizer.zero_grad()
                loss(network(x[rows]), y[rows]).backward()
                optimizer.step()


# the doctor


def examined(network: nn.Module, fed: Fed) -> Doctor:
    """What the doctor says, as an audit would have it."""
    settings = Settings(**fed.flags)
    data = data_in_memory((fed.x, fed.y), (fed.x[:8], fed.y[:8]), settings, None)
    model, data, fitting = fit(given_network(network, settings), data, settings)
    outputs = 1 if fed.y.ndim == 2 else int(fed.y.max()) + 1
    task, data = resolve_task(data, outputs, "none", "auto")
    doctor = examine(Patient(model, data, task, settings, fitting), EXACT)
    f, y = run(model, data.train.x), torch.from_numpy(data.train.y)
    wrong = None if task == "regression" else (~LOSS_OF_TASK[task].correct(f, y)).double().numpy()  # type: ignore[union-attr]
    outcome = Outcome(f.numpy(), data.train.y, LOSS_OF_TASK[task].value(f, y).numpy(), wrong)
    return with_class_order(doctor, data, outcome)


def said(doctor: Doctor) -> dict[str, Any]:
    """What the counts and the limits rest on."""
    now, best = doctor.trials[0], min(doctor.trials[1:], key=lambda trial: trial.fitted_loss)
    order = doctor.class_order
    return {
        "better": None if doctor.preferred is None else doctor.preferred.name,
        "odd_norm": doctor.odd_norm is not None,
        "out_of_range": doctor.out_of_range,
        "moved": [] if order is None else order.moved,
        "order_p": None if order is None else order.p_value,
        "constant": doctor.constant_loss,
        "now": [now.loss, now.fitted_loss, now.error, now.sharpness],
        "best": [best.loss, best.fitted_loss, best.error, best.p_value, best.sharpness, best.name],
        "norms": [[norm.shift, norm.spread] for norm in doctor.batch_norms],
        "first": None if doctor.first_layer is None else doctor.first_layer.spread,
    }


def write(rows: list[dict[str, Any]], result: Path = RESULT) -> None:
    """The record: counts of each way, then one line for each network and way."""
    ways = dict.fromkeys(row["way"] for row in rows)
    counts = {way: _count([row for row in rows if row["way"] == way]) for way in ways}
    lines = ",\n".join(json.dumps(_rounded(row)) for row in rows)
    counted = ",\n".join(f"{json.dumps(way)}: {json.dumps(count)}" for way, count in counts.items())
    result.write_text(f'{{"ways": {{\n{counted}\n}},\n"networks": [\n{lines}\n]}}\n', encoding="utf-8")


def _count(rows: list[dict[str, Any]]) -> dict[str, int]:
    kinds = ("better", "moved", "odd_norm", "out_of_range")
    counts = {kind: sum(bool(row[kind]) for row in rows) for kind in kinds}
    return {"networks": len(rows), "found": sum(any(row[kind] for kind in kinds) for row in rows), **counts}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
