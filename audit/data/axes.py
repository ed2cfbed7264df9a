"""What the axes of a stored sample are, and the image operations that need to know."""

from __future__ import annotations

import numpy as np

from audit.data.source import Array
from audit.errors import UsageError

CHANNELS = (1, 3, 4)
BILINEAR = 2  # Pillow's Resampling.BILINEAR, which smooths when it shrinks


def guess_axes(shape: tuple[int, ...]) -> str:
    """The axes that a sample's shape speaks for; "" where it could be either.

    >>> guess_axes((32, 32, 3)), guess_axes((1, 28, 28)), guess_axes((28, 28)), guess_axes((3, 32, 3))
    ('hwc', 'chw', '', '')
    """
    if len(shape) == 1:
        return "features"
    if len(shape) != 3:
        return ""
    first, last = shape[0] in CHANNELS, shape[-1] in CHANNELS
    if first == last:
        return ""
    return "chw" if first else "hwc"


def sides(size: tuple[int, ...]) -> tuple[int, int]:
    """Height and width that `--resize` names; one number is a square."""
    if len(size) > 2 or min(size) < 1:
        raise UsageError(f"--resize: {','.join(map(str, size))} is not a height and a width, such as 32,32.")
    return size[0], size[-1]


def resize(x: Array, axes: str, size: tuple[int, ...]) -> Array:
    """Images [n, ...] resized plane by plane, antialiased, as image files are when they are decoded."""
    from PIL import Image

    height, width = sides(size)
    if axes not in ("hw", "hwc", "chw"):
        raise UsageError(
            f"--resize: samples of shape {x.shape[1:]} are not images; remove it, or store images as [n, h, w]."
        )
    planes = np.moveaxis(x, 3, 1) if axes == "hwc" else x
    kind = np.uint8 if x.dtype == np.uint8 else np.float32
    out = np.empty((*planes.shape[:-2], height, width), kind)
    for place in np.ndindex(*planes.shape[:-2]):
        plane = Image.fromarray(np.ascontiguousarray(planes[place], kind))
        out[place] = np.asarray(plane.resize((width, height), BILINEAR))
    return np.moveaxis(out, 1, 3) if axes == "hwc" else out


def to_gray(x: Array) -> Array:
    """uint8 RGB [n, h, w, 3] to [n, h, w] by the ITU-R 601 weights, rounded as Pillow does."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return np.stack([((image @ weights + 0x8000) >> 16).astype(np.uint8) for image in x])


def to_colour(x: Array) -> Array:
    """Gray [n, h, w] to [n, h, w, 3] with equal channels."""
    return np.repeat(x[..., None], 3, axis=-1)
