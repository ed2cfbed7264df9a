"""Samples to look at: the right ones, each once, the same bytes every time; features where there are no images."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from folders import fit
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tolerances import ROUNDING

from audit.data.dataset import Data, Picture, Split
from audit.measures.duality.block import GapOverPairs, SampleGap
from audit.report.blocks import PAIRS
from audit.run.gallery import NEITHER, NOBODY, SIDE, make_gallery
from audit.settings import Settings


def pair(index: int, partner: int) -> SampleGap:
    words = {"label": "a", "prediction": "b", "partner_prediction": "a"}
    return SampleGap(index=index, partner=partner, test_loss=2.0, partner_loss=1.0, gap=1.0, **words)


def carriers(*pairs: SampleGap) -> GapOverPairs:
    return GapOverPairs(pairs=9, unpaired=0, gap=1.0, samples=list(pairs), samples_share=None, classes=None)


def stored(x: np.ndarray, x_test: np.ndarray, axes: str, **changes: object) -> Data:
    train, test = (Split(x=part, y=np.zeros(len(part), np.int64), total=len(part)) for part in (x, x_test))
    return Data(train, test, path=Path("d"), layout="npz", sha256="", classes=("a", "b"), axes=axes, **changes)  # type: ignore[arg-type]


def pixels(thumbnail) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(thumbnail.png))))


SHAPES = {"hw": (6, 5), "hwc": (6, 5, 3), "chw": (3, 6, 5)}
WAYS = [
    ("hw", "flatten", (30,)), ("hw", "none", (6, 5)), ("hw", "to-nchw", (1, 6, 5)), ("hwc", "flatten-nchw", (90,)),
    ("hwc", "to-nchw", (3, 6, 5)), ("hwc", "flatten", (90,)), ("chw", "flatten", (90,)), ("chw", "to-nhwc", (6, 5, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("axes", "word", "shape"), WAYS)
def test_a_fitted_sample_is_seen_as_the_image_it_was(axes, word, shape):
    x = np.random.default_rng(0).integers(0, 256, (7, *SHAPES[axes]), dtype=np.uint8)
    data = fit(stored(x, x, axes), shape, None, Settings(reshape=word))
    seen = np.rint(255 * data.picture.images(data.train.x)).astype(np.uint8)
    expected = {"hw": lambda: x[..., None], "hwc": lambda: x, "chw": lambda: x.transpose(0, 2, 3, 1)}[axes]()
    assert np.array_equal(seen, expected)


def test_every_sample_is_there_once_with_its_pixels_and_the_same_bytes():
    x = np.random.default_rng(1).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    x[0, 0, 0], x[0, 0, 1] = 0, 255
    data = fit(stored(x, x[::-1].copy(), "hw"), (64,), None, Settings())
    shown = carriers(pair(0, 3), pair(1, 3), pair(2, 4))
    gallery = make_gallery(data, shown, None)
    assert [(found.split, found.index) for found in gallery.thumbnails] == [
        ("test", 0), ("train", 3), ("test", 1), ("test", 2), ("train", 4),
    ]  # fmt: skip
    for found in gallery.thumbnails:
        assert np.array_equal(pixels(found), (x if found.split == "train" else x[::-1])[found.index])
    assert gallery == make_gallery(data, shown, None)
    assert gallery.skipped is None


def test_samples_are_found_by_the_place_they_are_stored_at():
    x = np.arange(4 * 9, dtype=np.uint8).reshape(4, 3, 3)
    split = Split(x=x.astype(np.float32), y=np.zeros(4, np.int64), total=99, index=np.array([7, 20, 50, 98]))
    data = Data(split, split, Path("d"), "npz", "", ("a", "b"), picture=Picture("hw", (3, 3)))
    gallery = make_gallery(data, carriers(pair(50, 98)), None)
    assert [(found.split, found.index) for found in gallery.thumbnails] == [("test", 50), ("train", 98)]
    assert pixels(gallery.thumbnails[0]).tolist() == np.rint(255 * (x[2] / 35)).tolist()


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3]))
def test_large_images_are_shrunk_and_keep_their_proportions(height, width, channels):
    x = np.zeros((2, height, width, channels), dtype=np.float32)
    split = Split(x=x, y=np.zeros(2, np.int64), total=2)
    data = Data(split, split, Path("d"), "npz", "", None, picture=Picture("hwc", (height, width, channels)))
    (found, _) = make_gallery(data, carriers(pair(0, 0)), None).thumbnails
    assert pixels(found).shape[:2] == (found.height, found.width)
    assert max(found.height, found.width) == min(SIDE, max(height, width))
    assert abs(found.width * height - found.height * width) <= max(height, width)


def test_rows_of_a_table_show_the_features_that_differ_most():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, 8)) * 10.0 ** np.arange(8)
    x[:, 5] = 1.0
    names = tuple("abcdefgh")
    data = stored(x, x[::-1].copy(), "features", features=names)
    (found,) = make_gallery(data, carriers(pair(3, 9)), None).pairs
    apart = (x[::-1][3] - x[9]) / np.where(x.std(0) > 0, x.std(0), np.inf)
    best = sorted(range(8), key=lambda k: -abs(apart[k]))[:5]
    assert [feature.name for feature in found.features] == [names[k] for k in best]
    assert found.features[0].deviations == pytest.approx(apart[best[0]], rel=ROUNDING)
    assert (found.features[0].test, found.features[0].partner) == (x[::-1][3, best[0]], x[9, best[0]])


def test_features_that_do_not_differ_are_not_listed():
    x = np.zeros((6, 8))
    x[:, 2], x[:, 6] = np.arange(6), -np.arange(6)
    (found,) = make_gallery(stored(x, x, "features", features=tuple("abcdefgh")), carriers(pair(1, 4)), None).pairs
    assert [feature.name for feature in found.features] == ["c", "g"]


def test_what_cannot_be_shown_is_said():
    tokens = np.ones((4, 6), dtype=np.int64)
    assert make_gallery(stored(tokens, tokens, ""), carriers(pair(0, 0)), None).skipped == NEITHER
    assert make_gallery(stored(tokens, tokens, ""), None, None).skipped == NOBODY


def test_only_the_first_pairs_are_shown():
    x = np.zeros((30, 2), dtype=np.float64)
    gallery = make_gallery(stored(x, x, "features"), carriers(*[pair(k, k) for k in range(20)]), None)
    assert len(gallery.pairs) == PAIRS
    assert all(feature.deviations is None for found in gallery.pairs for feature in found.features)
