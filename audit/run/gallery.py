"""Samples to look at: the costliest test samples with their train partners, and suspect labels with their neighbours.

Images become small PNG files, each of them once; rows of a table become the features in which a pair differs most.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit.compare.compare import changed_samples
from audit.data.dataset import Data, Picture, Split
from audit.measures import Report
from audit.measures.duality.block import GapOverPairs, SampleGap
from audit.measures.hygiene.block import Hygiene
from audit.report.blocks import (
    NEIGHBOURS,
    PAIRS,
    SUSPECTS,
    FeatureDifference,
    FeatureValue,
    Gallery,
    PairFeatures,
    SampleFeatures,
    Thumbnail,
)

SIDE = 40  # pixels: larger images are shrunk to this
FEATURES = 5  # by which a pair of rows is shown
BILINEAR = 2  # Pillow's Resampling.BILINEAR, which smooths when it shrinks

IMAGES = "Samples as fed to the model, stretched to full contrast."
ROWS = "Features as fed to the model; differences in standard deviations of the train split."
NEITHER = "the samples are neither stored as images nor rows of numbers"
NOBODY = "no pair and no suspect label to show"


def make_gallery(
    data: Data, over_pairs: GapOverPairs | None, hygiene: Hygiene | None, tests: Sequence[int] = ()
) -> Gallery:
    """What can be shown of the samples that the report names, and of further `tests` samples by their positions."""
    pairs = over_pairs.samples[:PAIRS] if over_pairs is not None else []
    further = [("test", index) for index in tests]
    wanted = list(dict.fromkeys([*_of_pairs(pairs), *_of_suspects(hygiene), *further]))
    if not wanted:
        return Gallery(thumbnails=[], pairs=[], skipped=NOBODY)
    if data.picture is not None:
        return Gallery(thumbnails=_thumbnails(data, data.picture, wanted), pairs=[], about=IMAGES)
    if data.train.x.ndim == 2 and data.train.x.dtype.kind == "f":
        rows = [_sample_features(data, index) for index in dict.fromkeys(tests)]
        return Gallery(thumbnails=[], pairs=[_features(data, pair) for pair in pairs], rows=rows, about=ROWS)
    return Gallery(thumbnails=[], pairs=[], skipped=NEITHER)


def with_samples(gallery: Gallery, data: Data, wanted: Sequence[tuple[str, int]]) -> Gallery:
    """A gallery with further samples (split, position), each of them once."""
    if data.picture is not None:
        there = {(picture.split, picture.index) for picture in gallery.thumbnails}
        new = [each for each in dict.fromkeys(wanted) if each not in there]
        thumbnails = [*gallery.thumbnails, *_thumbnails(data, data.picture, new)]
        return replace(gallery, thumbnails=thumbnails, about=IMAGES, skipped=None)
    if data.train.x.ndim == 2 and data.train.x.dtype.kind == "f":
        known = {row.index for row in gallery.rows}
        tests = [index for split, index in dict.fromkeys(wanted) if split == "test" and index not in known]
        rows = [*gallery.rows, *(_sample_features(data, index) for index in tests)]
        return replace(gallery, rows=rows, about=ROWS, skipped=None)
    return gallery


def show_changed(data: Data, baseline: Report | None, report: Report) -> Gallery | None:
    """The test samples that changed most against a baseline, while the data are at hand."""
    if baseline is None:
        return None
    changed = changed_samples(baseline, report)
    return make_gallery(data, None, None, [each.index for each in (*changed.worse, *changed.better)])


def _of_pairs(pairs: Sequence[SampleGap]) -> Iterator[tuple[str, int]]:
    for pair in pairs:
        yield "test", pair.index
        yield "train", pair.partner


def _of_suspects(hygiene: Hygiene | None) -> Iterator[tuple[str, int]]:
    for suspect in hygiene.suspected_mislabels.suspects[:SUSPECTS] if hygiene is not None else []:
        yield "train", suspect.index
        yield from (("train", neighbour.index) for neighbour in suspect.neighbours[:NEIGHBOURS])


def _thumbnails(data: Data, picture: Picture, wanted: Sequence[tuple[str, int]]) -> list[Thumbnail]:
    splits = {"train": data.train, "test": data.test}
    low, high = _range(picture.images(data.train.x))
    found = []
    for split, index in wanted:
        image = picture.images(_row(splits[split], index)[None])[0].astype(np.float64)
        pixels = np.clip((image - low) / np.where(high > low, high - low, 1), 0, 1)
        found.append(_thumbnail(split, index, np.rint(255 * pixels).astype(np.uint8)))
    return found


def _range(images: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of each channel."""
    return images.min(axis=(0, 1, 2)).astype(np.float64), images.max(axis=(0, 1, 2)).astype(np.float64)


def _thumbnail(split: str, index: int, pixels: NDArray[np.uint8]) -> Thumbnail:
    from PIL import Image

    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, :3])
    shrink = min(1.0, SIDE / max(image.size))
    if shrink < 1:
        image = image.resize((max(1, round(image.width * shrink)), max(1, round(image.height * shrink))), BILINEAR)
    stream = io.BytesIO()
    image.save(stream, format="PNG", compress_level=9)
    png = base64.b64encode(stream.getvalue()).decode("ascii")
    return Thumbnail(split=split, index=index, width=image.width, height=image.height, png=png)


def _features(data: Data, pair: SampleGap) -> PairFeatures:
    test, partner = (row.astype(np.float64) for row in (_row(data.test, pair.index), _row(data.train, pair.partner)))
    deviation = data.train.x.std(axis=0, dtype=np.float64)
    varies = deviation > 0
    apart = np.divide(test - partner, deviation, out=np.zeros_like(test), where=varies)
    most = np.argsort(-np.abs(apart), kind="stable")[:FEATURES]
    names = data.features or [f"feature {column}" for column in range(len(test))]
    return PairFeatures(
        index=pair.index,
        partner=pair.partner,
        features=[
            FeatureDifference(
                name=str(names[k]),
                test=float(test[k]),
                partner=float(partner[k]),
                deviations=float(apart[k]) if varies[k] else None,
            )
            for k in most
            if test[k] != partner[k]
        ],
    )


def _sample_features(data: Data, index: int) -> SampleFeatures:
    sample, train = _row(data.test, index).astype(np.float64), data.train.x
    mean, deviation = (part(axis=0, dtype=np.float64) for part in (train.mean, train.std))
    varies = deviation > 0
    apart = np.divide(sample - mean, deviation, out=np.zeros_like(sample), where=varies)
    names = data.features or [f"feature {column}" for column in range(len(sample))]
    return SampleFeatures(
        index=index,
        features=[
            FeatureValue(name=str(names[k]), value=float(sample[k]), deviations=float(apart[k]) if varies[k] else None)
            for k in np.argsort(-np.abs(apart), kind="stable")[:FEATURES]
        ],
    )


def _row(split: Split, stored: int) -> NDArray[np.generic]:
    """The sample that is stored at a position."""
    place = int(np.flatnonzero(split.index == stored)[0]) if len(split.index) else stored
    return np.asarray(split.x[place])
