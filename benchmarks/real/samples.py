"""The samples that the networks are trained and audited on: bundled images where they fit, otherwise made, seeded.

`cifar10.jpg` holds 2,500 real CIFAR-10 images (Krizhevsky 2009) as tiles of one JPEG of quality 90: 2,000 of the train
and 500 of the test set, their classes in turn. MNIST is that of `samples/mnist`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.cases import MNIST, by_ink
from benchmarks.real.networks.bert import VOCABULARY

CIFAR = Path(__file__).parent / "cifar10.jpg"
PIXELS, TILES, TRAIN_TILES = 32, 50, 2000
CLS, SPECIAL = 101, 1000  # BERT's id for the first token, and the first id that stands for a word
SEED = 0

Array = NDArray[Any]


@dataclass(frozen=True)
class Split:
    """What is stored of one split: the network's inputs by name, and the labels."""

    inputs: Mapping[str, Array]  # each [n, …]
    y: NDArray[np.int64]  # [n]

    @property
    def x(self) -> Array:
        """The only input of a network that has one."""
        (x,) = self.inputs.values()
        return x


Splits = tuple[Split, Split]  # train, test


def cifar(train: int, test: int) -> Splits:
    """The first so many of the bundled CIFAR-10 images, uint8 [n, 32, 32, 3]."""
    with Image.open(CIFAR) as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(TILES, PIXELS, TILES, PIXELS, 3)
    images = tiles.swapaxes(1, 2).reshape(TILES * TILES, PIXELS, PIXELS, 3)
    labels = np.arange(len(images)) % 10
    return tuple(_images(images[rows], labels[rows]) for rows in (slice(train), slice(TRAIN_TILES, TRAIN_TILES + test)))


def mnist(train: int = 4000, test: int = 1000) -> Splits:
    """Bundled MNIST images, uint8 [n, 28, 28], spread evenly over the digits."""
    return _both(lambda split, n: _images(*_spread(*_bundled(split), n)), train, test)


def mnist_thousand(train: int = 4000, test: int = 1000) -> Splits:
    """Bundled MNIST images with a thousand labels: 100 · digit + the hundredth that it falls into by its ink."""
    digits = mnist(train, test)
    return tuple(_images(split.x, by_ink(split.x, split.y, parts=100)) for split in digits)


def mnist_shifted(train: int, test: int) -> Splits:
    """As many images as all of MNIST: the bundled ones again and again, each shifted by up to 2 pixels, with noise."""
    rng = np.random.default_rng(SEED)
    return _both(lambda split, n: _shifted(*_bundled(split), n, rng), train, test)


def mnist_rows(train: int, test: int) -> Splits:
    """MNIST images as sequences of 28 rows, float32 [n, 28, 28] in [0, 1]."""
    return tuple(Split({"x": split.x.astype(np.float32) / 255}, split.y) for split in mnist(train, test))


def mnist_patches(train: int, test: int) -> Splits:
    """MNIST images as 16 tokens: patches of 7×7, float32 [n, 16, 49] in [0, 1]."""
    return tuple(Split({"x": _patches(split.x, 7)}, split.y) for split in mnist_rows(train, test))


def tokens(train: int, test: int, length: int = 64, classes: int = 4) -> Splits:
    """Padded sentences of 16 to 64 made-up words; three words in ten come from 200 that the class likes."""
    rng = np.random.default_rng(SEED)
    liked = rng.integers(SPECIAL, VOCABULARY, (classes, 200))
    return _both(lambda _, n: _sentences(liked, n, length, rng), train, test)


def gratings(train: int, test: int, pixels: int = 224) -> Splits:
    """Coloured stripes with noise, uint8 [n, 224, 224, 3]: two directions × ten colours make twenty classes."""
    rng = np.random.default_rng(SEED)
    return _both(lambda _, n: _images(_grating(np.arange(n) % 20, pixels, rng), np.arange(n) % 20), train, test)


def table(train: int, test: int, columns: int = 40, classes: int = 3) -> Splits:
    """Correlated columns, float32 [n, 40]; the class is what a random network says, but once in twenty any."""
    rng = np.random.default_rng(SEED)
    mix = rng.normal(size=(columns, columns)) / np.sqrt(columns)
    teacher = rng.normal(size=(columns, 16)), rng.normal(size=(16, classes))
    return _both(lambda _, n: _rows(rng.normal(size=(n, columns)) @ mix, teacher, rng), train, test)


def _both(make: Callable[[str, int], Split], train: int, test: int) -> Splits:
    return make("train", train), make("test", test)


def _images(x: Array, y: Array) -> Split:
    return Split({"x": np.ascontiguousarray(x)}, y.astype(np.int64))


def _bundled(split: str) -> tuple[Array, Array]:
    with np.load(MNIST / f"{split}.npz") as file:
        return file["x"], file["y"]


def _spread(x: Array, y: Array, n: int) -> tuple[Array, Array]:
    rows = np.linspace(0, len(x) - 1, n).round().astype(int)
    return x[rows], y[rows]


def _shifted(x: Array, y: Array, n: int, rng: np.random.Generator) -> Split:
    rows = np.arange(n) % len(x)
    noisy = x[rows].astype(np.int16)
    for step in range(-2, 3):
        for axis in (1, 2):
            moved = rng.integers(-2, 3, n) == step
            noisy[moved] = np.roll(noisy[moved], step, axis)
    noisy += rng.integers(-12, 13, noisy.shape, dtype=np.int16)
    return _images(noisy.clip(0, 255).astype(np.uint8), y[rows])


def _patches(x: Array, size: int) -> Array:
    n, side = len(x), x.shape[1] // size
    cut = x.reshape(n, side, size, side, size).swapaxes(2, 3)
    return np.ascontiguousarray(cut.reshape(n, side * side, size * size))


def _sentences(liked: Array, n: int, length: int, rng: np.random.Generator) -> Split:
    y = np.arange(n) % len(liked)
    words = rng.integers(SPECIAL, VOCABULARY, (n, length))
    chosen = rng.random((n, length)) < 0.3
    words = np.where(chosen, liked[y[:, None], rng.integers(0, liked.shape[1], (n, length))], words)
    mask = np.arange(length) < rng.integers(length // 4, length + 1, n)[:, None]
    words[:, 0] = CLS
    return Split({"input_ids": np.where(mask, words, 0), "attention_mask": mask.astype(np.int64)}, y)


def _grating(y: Array, pixels: int, rng: np.random.Generator) -> Array:
    angle, hue = np.pi / 2 * (y // 10), 2 * np.pi * (y % 10) / 10
    place = np.linspace(0, 8 * np.pi, pixels)
    across = np.cos(angle)[:, None, None] * place[:, None] + np.sin(angle)[:, None, None] * place
    stripes = np.sin(across + rng.uniform(0, 2 * np.pi, (len(y), 1, 1)))[..., None]
    colour = 1 + np.cos(hue[:, None] + np.array([0, 2, 4]) * np.pi / 3)[:, None, None, :]
    noisy = 96 + 48 * stripes * colour + rng.normal(0, 20, (len(y), pixels, pixels, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def _rows(x: Array, teacher: tuple[Array, Array], rng: np.random.Generator) -> Split:
    into, out = teacher
    y = (np.tanh(x @ into) @ out).argmax(1)
    wrong = rng.random(len(y)) < 0.05
    y[wrong] = rng.integers(0, out.shape[1], wrong.sum())
    return Split({"x": x.astype(np.float32)}, y.astype(np.int64))
