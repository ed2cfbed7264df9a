"""Makes a recipe's model file and data folder, once: `python -m benchmarks.real.build RECIPE FOLDER`.

Beside `model.onnx` (or .pt2) and `data/` lie the weights, for the timing of an epoch, and `made.json`, which is written
last and says how it went. A folder made by other code than this is made anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.real.recipes import RECIPES, Recipe
from benchmarks.real.store import write_data

HERE = Path(__file__).parent
SEED = 0
OPSET = 17
STATISTICS = 64  # samples that the batch norms' means and variances are taken from in the end


def build(name: str, folder: Path) -> None:
    """Make what is not there yet."""
    stamp = folder / "made.json"
    if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8"))["sources"] == _sources():
        return
    stamp.unlink(missing_ok=True)
    recipe, data = RECIPES[name], folder / "data"
    train, test = recipe.samples()
    write_data((train, test), recipe.layout, data)
    begin = time.perf_counter()
    x, y = recipe.fed(train.inputs), torch.from_numpy(train.y)
    network = trained(recipe, x, y)
    seconds = time.perf_counter() - begin
    torch.save(network.state_dict(), folder / "weights.pt")
    model = folder / f"model{recipe.suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters', about themselves, traced sizes and recurrent layers
        export(network, tuple(each[:2].clone() for each in x), tuple(train.inputs), model)
    made = {
        "sources": _sources(),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "model": model.name,
        "model_bytes": model.stat().st_size,
        "data_bytes": sum(file.stat().st_size for file in data.rglob("*") if file.is_file()),
        "train_seconds": seconds,
        "train_error": wrong(network, x, y),
        "test_error": wrong(network, recipe.fed(test.inputs), torch.from_numpy(test.y)),
    }
    stamp.write_text(json.dumps(made, indent=1), encoding="utf-8")


def trained(recipe: Recipe, x: tuple[Tensor, ...], y: Tensor) -> nn.Module:
    """The network after a few epochs, in eval mode."""
    torch.manual_seed(SEED)
    network = recipe.network().train()
    optimizer = (
        torch.optim.SGD(network.parameters(), recipe.rate, momentum=0.9)
        if recipe.plain
        else torch.optim.Adam(network.parameters(), recipe.rate)
    )
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(y)).split(recipe.batch):
            batch = tuple(each[rows] for each in x)
            if recipe.crop is not None:
                batch = tuple(_cropped(each, recipe.crop) for each in batch)
            optimizer.zero_grad()
            F.cross_entropy(network(*batch), y[rows]).backward()
            optimizer.step()
    _settle_norms(network, tuple(each[:STATISTICS] for each in x))
    return network.eval()


def _cropped(images: Tensor, side: int) -> Tensor:
    """A square [n, c, side, side] at one random place: details keep the size that they are audited at."""
    top, left = (int(torch.randint(size - side + 1, ())) for size in images.shape[2:])
    return images[:, :, top : top + side, left : left + side]


def _settle_norms(network: nn.Module, x: tuple[Tensor, ...]) -> None:
    """Batch norms' running statistics from full-size samples: those of a short training lag behind the weights."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over batches, of which there is one
    if norms:
        with torch.no_grad():
            network(*x)


def wrong(network: nn.Module, x: tuple[Tensor, ...], y: Tensor) -> float:
    """Share of samples that the network gets wrong, on a hundred spread over all."""
    rows = torch.linspace(0, len(y) - 1, min(len(y), 100)).long()
    with torch.no_grad():
        return float((network(*(each[rows] for each in x)).argmax(1) != y[rows]).double().mean())


def export(network: nn.Module, x: tuple[Tensor, ...], names: tuple[str, ...], path: Path) -> None:
    """Write the network as the path's suffix says, for any number of samples; inputs keep the names of the data."""
    if path.suffix == ".pt2":
        batch = torch.export.Dim("batch", min=1)
        shapes = tuple({0: batch} for _ in x)
        torch.export.save(torch.export.export(network, x, dynamic_shapes=shapes), path)
    else:
        torch.onnx.export(
            network,
            x,
            path,
            input_names=list(names),
            output_names=["logits"],
            dynamic_axes={name: {0: "batch"} for name in (*names, "logits")},
            opset_version=OPSET,
            dynamo=False,
        )


def _sources() -> str:
    """A digest of the code that decides what is made."""
    own = (HERE / f"{name}.py" for name in ("build", "recipes", "samples", "store"))
    files = (*own, *sorted((HERE / "networks").glob("*.py")))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


if __name__ == "__main__":
    chosen, where = sys.argv[1], Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    build(chosen, where)
