"""Small networks of several inputs, their samples, and the files that exporters make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from formats import silent
from torch import Tensor, nn

LENGTH, WORDS, CLASSES = 6, 30, 3
Arrays = dict[str, np.ndarray]


class Masked(nn.Module):
    """One attention block over token ids, whose padding a mask hides; classified from the first token."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.words(input_ids)
        hidden = (1.0 - attention_mask[:, None, :].to(x.dtype)) * -1e4
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[2]) + hidden
        x = self.norm(x + self.out(torch.softmax(scores, -1) @ self.value(x)))
        return self.classifier(x[:, 0])


class Mixed(nn.Module):
    """An image and a row of a table, each through its own dense layer, then together."""

    def __init__(self) -> None:
        super().__init__()
        self.see, self.read, self.head = nn.Linear(12, 5), nn.Linear(4, 5), nn.Linear(10, CLASSES)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        seen, read = self.see(image.flatten(1)), self.read(table)
        return self.head(torch.relu(torch.cat([seen, read], 1)))


class Tagged(nn.Module):
    """Tokens averaged over a mask, a row of a table, and the mask itself, each through its own dense layer."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, 4), nn.Linear(4, 4)
        self.read, self.count, self.head = nn.Linear(4, 4), nn.Linear(LENGTH, 4), nn.Linear(12, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, table: Tensor) -> Tensor:
        mask = attention_mask.to(table.dtype)
        words = (self.mix(self.words(input_ids)) * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(torch.tanh(torch.cat([words, self.read(table), self.count(mask)], 1)))


def masked() -> nn.Module:
    return Masked()


def mixed() -> nn.Module:
    return Mixed()


def sentences(n: int, seed: int) -> Arrays:
    """Token ids with a class's own words in them, the mask that hides their padding, and the classes."""
    draws = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    ids = draws.integers(1, WORDS, (n, LENGTH))
    own = draws.random((n, LENGTH)) < 0.4
    ids[own] = (1 + 9 * y[:, None] + draws.integers(0, 3, (n, LENGTH)))[own]
    ids[:, 0] = 0  # or equal tokens would leave attention nothing to choose from, and rounding would decide
    mask = np.arange(LENGTH) < draws.integers(2, LENGTH + 1, (n, 1))
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64), "y": y}


def scenes(n: int, seed: int) -> Arrays:
    """Images [n, 3, 2, 2] and tables [n, 4] that tell the class together."""
    draws = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    image, table = draws.normal(size=(n, 3, 2, 2)), draws.normal(size=(n, 4))
    image[:, 0] += y[:, None, None]
    table[:, 0] -= y
    return {"image": image.astype(np.float32), "table": table.astype(np.float32), "y": y}


SAMPLES: Mapping[str, Callable[[int, int], Arrays]] = {"masked": sentences, "mixed": scenes}
BUILD: Mapping[str, Callable[[], nn.Module]] = {"masked": masked, "mixed": mixed}
TRAIN, TEST = 48, 24


def split(name: str, which: str) -> Arrays:
    return SAMPLES[name](TRAIN, 0) if which == "train" else SAMPLES[name](TEST, 1)


def tensors(arrays: Arrays) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(values) for key, values in arrays.items() if key != "y")


@cache
def trained(name: str) -> nn.Module:
    """After a short training, in eval mode. Do not change it."""
    torch.manual_seed(0)
    network, data = BUILD[name](), split(name, "train")
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(25):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(*tensors(data)), torch.from_numpy(data["y"])).backward()
        optimiser.step()
    return network.eval()


def losses(name: str, which: str, **changed: np.ndarray) -> np.ndarray:
    """The naive forward pass in float64, with some inputs changed."""
    data = {**split(name, which), **changed}
    network = BUILD[name]()
    network.load_state_dict(trained(name).state_dict())
    inputs = (x.double() if x.is_floating_point() else x for x in tensors(data))
    with torch.no_grad():
        f = network.double()(*inputs)
    return nn.functional.cross_entropy(f, torch.from_numpy(data["y"]), reduction="none").numpy()


def folder(name: str, root: Path, **dropped_or_added: np.ndarray | None) -> Path:
    """The npz folder; a key set to None is left out."""
    root.mkdir(parents=True, exist_ok=True)
    for which in ("train", "test"):
        data = {**split(name, which), **dropped_or_added}
        np.savez(root / which, **{key: values for key, values in data.items() if values is not None})
    return root


FORMS = ("onnx", "onnx-fixed", "onnx-dynamo", "pt2", "torchscript", "state_dict")


def written(name: str, form: str, root: Path) -> Path:
    """The model file in one of FORMS; `state_dict` needs `--arch`."""
    network, data = trained(name), split(name, "train")
    x = tuple(each[:4] for each in tensors(data))
    names, batch = [key for key in data if key != "y"], torch.export.Dim("batch", min=1)
    free = tuple({0: batch} for _ in x)
    path = root / f"{name}-{form}{ {'pt2': '.pt2', 'torchscript': '.ts', 'state_dict': '.pt'}.get(form, '.onnx') }"
    with silent():
        if form == "pt2":
            torch.export.save(torch.export.export(network, x, dynamic_shapes=free), path)
        elif form == "torchscript":
            torch.jit.trace(network, x).save(str(path))
        elif form == "state_dict":
            torch.save(network.state_dict(), path)
        elif form == "onnx-dynamo":
            named = {"input_names": names, "output_names": ["logits"]}
            torch.onnx.export(network, x, path, dynamic_shapes=free, dynamo=True, verbose=False, **named)
        else:
            axes = {} if form == "onnx-fixed" else {key: {0: "batch"} for key in (*names, "logits")}
            if form == "onnx-free":  # of any length, too
                axes |= {key: {0: "batch", 1: "length"} for key in names}
            torch.onnx.export(
                network, x, path, input_names=names, output_names=["logits"], dynamic_axes=axes, dynamo=False
            )
    return path
