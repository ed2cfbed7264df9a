"""Resize in all its ways, by places and by sizes, against onnxruntime: a small part of them in every run."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from onnx_single_nodes import assert_same, single

COORDINATES = [
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]  # fmt: skip
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
KINDS: list[dict[str, Any]] = [
    *({"mode": "nearest", "nearest_mode": rounding} for rounding in ROUNDINGS),
    *({"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1}),
]
FACTORS = [
    (2.0, 2.0), (1.5, 1.5), (0.5, 0.5), (0.6, 0.6), (0.3, 0.7), (0.8, 1.3), (3.0, 1.0), (0.77, 0.77), (1 / 3, 2 / 3),
    (2.6, 0.4), (0.15, 0.9), (1.1, 1.9),
]  # fmt: skip
SIZES = [(3, 4), (14, 3), (1, 1), (5, 9)]
ALL = list(itertools.product(COORDINATES, KINDS, [*FACTORS, *SIZES]))
X = np.random.default_rng(0).normal(size=(2, 3, 7, 8)).astype(np.float32)
NOTHING = np.zeros(0, np.float32)


def resizes_alike(coordinates: str, kind: dict[str, Any], target: tuple[float, float]) -> None:
    """The network's Resize gives what onnxruntime's gives."""
    opset = {"tf_half_pixel_for_nn": 11, "half_pixel_symmetric": 19}.get(coordinates, 13)
    crop = np.array([0, 0, 0.1, 0.2, 1, 1, 0.7, 0.9], np.float32)
    roi = crop if coordinates == "tf_crop_and_resize" else NOTHING
    if isinstance(target[0], int):
        rest: tuple[Any, ...] = (NOTHING if opset < 13 else None, np.array([2, 3, *target], np.int64))
    else:
        rest = (np.array([1, 1, *target], np.float32),)
    settings = {"coordinate_transformation_mode": coordinates, "extrapolation_value": 0.5, **kind}
    assert_same(*single("Resize", X, roi, *rest, opset=opset, **settings))


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_tenth_of_all_ways(coordinates: str) -> None:
    chosen = [way for way in ALL if way[0] == coordinates]
    for way in random.Random(coordinates).sample(chosen, len(chosen) // 10):
        resizes_alike(*way)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_all_ways(coordinates: str) -> None:
    assert len(ALL) == 784
    for way in ALL:
        if way[0] == coordinates:
            resizes_alike(*way)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "half_pixel_symmetric"])
def test_places_half_way_between_two_are_rounded_alike(coordinates: str, rounding: str) -> None:
    for old, new in [(7, 1), (14, 1), (7, 2), (10, 6), (20, 6), (14, 19), (3, 11), (9, 21), (18, 21)]:
        x = np.arange(2 * old, dtype=np.float32).reshape(1, 1, 2, old)
        settings = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
        assert_same(*single("Resize", x, None, None, np.array([1, 1, 2, new]), opset=19, **settings))


@pytest.mark.parametrize(("old", "factor"), [(10, 0.7), (10, 0.9), (5, 1.4), (100, 1.3), (9, 1 / 9)])
def test_sizes_are_counted_in_single_precision(old: int, factor: float) -> None:
    x = np.arange(2 * old, dtype=np.float32).reshape(1, 1, 2, old)
    assert_same(*single("Resize", x, NOTHING, np.array([1, 1, 1, factor], np.float32), opset=13, mode="linear"))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("factors", [(0.6, 0.6), (0.3, 0.77), (0.15, 0.9), (0.6, 1.7), (1.0, 0.4), (1.5, 2.0)])
def test_the_first_version_rounds_up_where_it_shrinks(mode: str, factors: tuple[float, float]) -> None:
    assert_same(*single("Resize", X, np.array([1, 1, *factors], np.float32), opset=10, mode=mode))
