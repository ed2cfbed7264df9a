"""Small networks trained on real data, written in every file format, audited, and their reports laid side by side."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import format_networks
import numpy as np
import torch
from safetensors.torch import save_file
from tolerances import SINGLE
from torch import Tensor, nn

from audit.run.pipeline import run_audit
from audit.run.progress import Progress
from audit.settings import Settings

REAL = Path(__file__).parent / "real"
ARCHITECTURES = Path(format_networks.__file__)
QUICK: dict[str, Any] = {"bootstrap": 40, "subsets": 3, "subset_size": 30, "widths": 2}
"""Settings that keep an audit below a second and still compute every number."""


@dataclass(frozen=True)
class Splits:
    """Inputs ready for a network, and labels."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "train.npz", x=self.x_train, y=self.y_train)
        np.savez(folder / "test.npz", x=self.x_test, y=self.y_test)
        return folder


@cache
def splits(name: str) -> Splits:
    """A slice of a real data set, standardised by its train part; `diabetes3` predicts two of its columns too."""
    with np.load(REAL / f"{name.removesuffix('3')}.npz") as file:
        x, y, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    if name == "digits":
        x, x_test = (values.astype(np.float32)[:, None] / 16 for values in (x, x_test))
        return Splits(x, y, x_test, y_test)
    mean, deviation = x.mean(0), x.std(0)
    x, x_test = ((values - mean) / deviation for values in (x, x_test))
    if name.startswith("diabetes"):
        y, y_test = (values.astype(np.float32) / 100 for values in (y, y_test))
    if name == "diabetes3":
        y, y_test = np.column_stack([y, x[:, 8:]]), np.column_stack([y_test, x_test[:, 8:]])
        x, x_test = x[:, :8], x_test[:, :8]
    return Splits(*(np.ascontiguousarray(part) for part in (x, y, x_test, y_test)))


DATA = {
    "lenet": "digits",
    "pointwise": "digits",
    "tokens": "digits",
    "tabular": "breast_cancer",
    "regression": "diabetes",
    "regressions": "diabetes3",
}
NETWORKS = (
    *("relu", "tanh", "gelu_dropout", "batch_norm", "residual", "bias_free", "linear"),
    *("lenet", "tabular", "regression", "regressions", "pointwise", "tied", "tokens"),
)
TASKS = {"tabular": "binary", "regression": "regression", "regressions": "regression"}


def data_of(name: str) -> Splits:
    return splits(DATA.get(name, "wine"))


def example_of(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The batch of four that exporters run a network on."""
    return torch.from_numpy(data_of(name).x_train[:4]).to(dtype)


def task_of(name: str) -> str:
    return TASKS.get(name, "classification")


def loss_of(task: str, f: Tensor, y: Tensor) -> Tensor:
    """The mean loss by torch's own functions."""
    if task == "classification":
        return nn.functional.cross_entropy(f, y)
    if task == "binary":
        return nn.functional.binary_cross_entropy_with_logits(f.flatten(), y.to(f.dtype))
    return 0.5 * nn.functional.mse_loss(f, y.reshape(f.shape).to(f.dtype), reduction="none").sum(1).mean()


@cache
def trained(name: str) -> nn.Module:
    """The network after a short training, in eval mode. Do not change it."""
    torch.manual_seed(0)
    network: nn.Module = getattr(format_networks, name)()
    x, y = (torch.from_numpy(part) for part in (data_of(name).x_train, data_of(name).y_train))
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss_of(task_of(name), network(x), y).backward()
        optimiser.step()
    return network.eval()


@contextmanager
def silent() -> Iterator[None]:
    """Exporters warn about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def write_onnx(
    network: nn.Module, x: Tensor, path: Path, opset: int | None = None, dynamic: bool = True, external: bool = False
) -> Path:
    """By the new exporter; with an opset, by the older one."""
    with silent():
        if opset is None:
            shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
            options: dict[str, Any] = {"dynamic_shapes": shapes, "verbose": False, "external_data": external}
            torch.onnx.export(copy.deepcopy(network), (x,), path, dynamo=True, **options)
        else:
            names: dict[str, Any] = {"input_names": ["x"], "output_names": ["scores"]}
            axes = {"dynamic_axes": {"x": {0: "n"}, "scores": {0: "n"}}} if dynamic else {}
            torch.onnx.export(copy.deepcopy(network), (x,), path, dynamo=False, opset_version=opset, **names, **axes)
    return path


def write_pt2(network: nn.Module, x: Tensor, path: Path, dynamic: bool = True) -> Path:
    with silent():
        shapes = ({0: torch.export.Dim.AUTO},) if dynamic else None
        torch.export.save(torch.export.export(copy.deepcopy(network), (x,), dynamic_shapes=shapes, strict=False), path)
    return path


def write_script(network: nn.Module, x: Tensor, path: Path) -> Path:
    with silent():
        torch.jit.trace(copy.deepcopy(network), x, check_trace=False).save(path)
    return path


def write_state(network: nn.Module, _x: Tensor, path: Path) -> Path:
    torch.save(network.state_dict(), path)
    return path


def write_safetensors(network: nn.Module, _x: Tensor, path: Path) -> Path:
    save_file(network.state_dict(), path)
    return path


Writer = Callable[[nn.Module, Tensor, Path], Path]
FORMATS: dict[str, tuple[str, Writer]] = {
    "onnx": ("model.onnx", write_onnx),
    "onnx-13": ("model13.onnx", lambda network, x, path: write_onnx(network, x, path, opset=13)),
    "pt2": ("model.pt2", write_pt2),
    "torchscript": ("script.pt", write_script),
    "state_dict": ("weights.pth", write_state),
    "safetensors": ("weights.safetensors", write_safetensors),
}
Report = dict[str, Any]


def audited(model: Path, data: Path, **settings: Any) -> Report:
    """The report as its JSON says it."""
    report = run_audit(model, data, Settings(**(QUICK | settings)), "gen-audit report", Progress()).report
    loaded: Report = json.loads(report.to_json())
    return loaded


def audited_as(form: str, name: str, folder: Path, **settings: Any) -> Report:
    """Writes a trained network in one format and audits it."""
    file, write = FORMATS[form]
    path = write(trained(name), example_of(name), folder / file)
    arch = {"arch": f"{ARCHITECTURES}:{name}"} if form in ("state_dict", "safetensors") else {}
    return audited(path, data_of(name).save(folder / "data"), **arch, **settings)


def independent(name: str, network: nn.Module | None = None) -> dict[str, float]:
    """Losses and accuracies of both splits by torch in float64, with no code of the audit's."""
    network = copy.deepcopy(network or trained(name)).double()
    found, task, data = {}, task_of(name), data_of(name)
    for split, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        f, labels = network(torch.from_numpy(x).double()).detach(), torch.from_numpy(y)
        found[f"{split}_loss"] = loss_of(task, f, labels).item()
        if task != "regression":
            answers = f.argmax(1) if task == "classification" else (f.flatten() > 0).long()
            found[f"{split}_accuracy"] = (answers == labels).double().mean().item()
    return found


FILE_ONLY = re.compile(
    r"created|timings.*|plan.*|tool.*|command|settings\.arch|checks\.\d+\.(value|explanation)"
    r"|model\.(path|format|sha256|opset|parity.*|output_name|input\.name|notes.*)"
    r"|findings\.\d+\.(evidence\.model\.parity.*|explanation)"
)
"""What belongs to the file, the machine or the moment, not to the network; a check's value is the rounding it met, and
a finding's explanation repeats numbers of the report."""
SAME_OP = {"gemm": "linear", "matmul": "linear"}
NOTHING = 1e-10
"""Below this, a number is rounding: a residual, an eigenvalue of a singular Hessian."""


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two reports say different things about the network, by more than SINGLE."""
    if FILE_ONLY.fullmatch(path):
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted({*a, *b})
        return [one for key in keys for one in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        if _numbers(a) and _numbers(b):
            return _apart(np.array(a, float), np.array(b, float), path)
        return [one for i, pair in enumerate(zip(a, b, strict=True)) for one in differences(*pair, f"{path}.{i}")]
    if _numbers([a, b]):
        return _apart(np.array([a], float), np.array([b], float), path)
    if path.split(".")[-1] == "op":
        a, b = SAME_OP.get(a, a), SAME_OP.get(b, b)
    return [] if a == b else [f"{path}: {a!r} or {b!r}"]


def _numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _apart(a: np.ndarray, b: np.ndarray, path: str) -> list[str]:
    """A list counts as one quantity: its entries differ where they do so by a share of its largest."""
    scale = max(np.abs(a).max(), np.abs(b).max())
    worst = int(np.abs(a - b).argmax())
    same = scale <= NOTHING or abs(a[worst] - b[worst]) <= SINGLE * scale
    return [] if same else [f"{path}: {a[worst]!r} or {b[worst]!r}"]
