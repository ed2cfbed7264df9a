"""Train the bundled networks on the bundled MNIST images and export them to ONNX.

Run it in the development environment: `python samples/train.py [RECIPE …]`. Every recipe is seeded and runs on one
thread, so that the same machine and versions give the same files; all of them take about a minute on a CPU.
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

HERE = Path(__file__).parent
SEED = 0


@dataclass(frozen=True)
class Recipe:
    """How one network came to be. Every one is trained down to the same train loss, so that they can be compared."""

    what: str
    batch: int = 50
    learning_rate: float = 0.1
    target: float = 2e-3
    max_epochs: int = 1500
    weight_decay: float = 0.0
    wrong_labels: float = 0.0  # share of train labels replaced by another class; such a recipe gets data of its own


RECIPES = {
    "healthy": Recipe("small batches, clean labels"),
    "large-batch": Recipe("as healthy, but ten times larger batches", batch=500),
    "mislabelled": Recipe("as healthy, but one train label in four is wrong", wrong_labels=0.25),
}


def main() -> None:
    """Train the recipes named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=f"of {', '.join(RECIPES)} (default: all)")
    names = parser.parse_args().recipes or list(RECIPES)
    torch.set_num_threads(1)
    for name in names:
        recipe = RECIPES[name]
        folder = data_folder(name, recipe)
        network, epochs, loss = train(recipe, *read(folder / "train.npz"))
        export(network, HERE / f"{name}.onnx")
        wrong = share_wrong(network, *read(folder / "test.npz"))
        print(f"{name}: {recipe.what}; {epochs} epochs, train loss {loss:.2g}, test error {wrong:.1%}")


def data_folder(name: str, recipe: Recipe) -> Path:
    """The folder a recipe is trained and audited on; wrong labels are written to a folder of their own."""
    clean = HERE / "mnist"
    if not recipe.wrong_labels:
        return clean
    folder = HERE / f"mnist-{name}"
    folder.mkdir(exist_ok=True)
    with np.load(clean / "train.npz") as split:
        x, y = split["x"], split["y"]
    np.savez_compressed(folder / "train.npz", x=x, y=corrupt(y, recipe.wrong_labels))
    (folder / "test.npz").write_bytes((clean / "test.npz").read_bytes())
    return folder


def corrupt(y: NDArray[np.int64], share: float, classes: int = 10, seed: int = SEED) -> NDArray[np.int64]:
    """Labels of which exactly `share` are moved to another class, each other class equally likely."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(y), round(share * len(y)), replace=False)
    moved = y.copy()
    moved[chosen] = (y[chosen] + rng.integers(1, classes, len(chosen))) % classes
    return moved


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Images as rows in [0, 1], and labels."""
    with np.load(path) as split:
        x, y = split["x"], split["y"]
    return torch.from_numpy(x.reshape(len(x), -1)).float() / 255, torch.from_numpy(y)


def train(recipe: Recipe, x: Tensor, y: Tensor, classes: int = 10, seed: int = SEED) -> tuple[nn.Module, int, float]:
    """Plain SGD until the mean train loss is at the recipe's target; the network, the epochs taken and that loss."""
    torch.manual_seed(seed)
    network = perceptron(x.shape[1], classes)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    epochs, loss = 0, float("inf")
    while loss > recipe.target and epochs < recipe.max_epochs:
        for batch in torch.randperm(len(x)).split(recipe.batch):
            optimizer.zero_grad()
            loss_of(network(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = loss_of(network(x), y).item()
        epochs += 1
    return network, epochs, loss


def perceptron(inputs: int = 784, classes: int = 10) -> nn.Module:
    """784-30-30-10 with ReLU: the network of the papers' own MNIST experiments; other data, other ends."""
    layers = {"fc1": nn.Linear(inputs, 30), "relu1": nn.ReLU(), "fc2": nn.Linear(30, 30), "relu2": nn.ReLU()}
    return nn.Sequential(OrderedDict(layers, fc3=nn.Linear(30, classes)))


def share_wrong(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of test images that the network gets wrong."""
    with torch.no_grad():
        return float((network(x).argmax(1) != y).double().mean())


def export(network: nn.Module, path: Path) -> None:
    """Write one self-contained ONNX file: any batch size, weights inside, no trace of the machine it was made on."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the exporter's, about itself
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, network.get_submodule("fc1").in_features),),
            buffer,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    model = onnx.load_from_string(buffer.getvalue())
    model.doc_string = model.graph.doc_string = ""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
