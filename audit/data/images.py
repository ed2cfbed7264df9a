"""Image folders: `train/<class>/*.png` and `test/<class>/*.png`.

Pixels are taken as stored: orientation tags are not applied, as training pipelines leave them by default. Files are
decoded only once they are chosen, so that a cap on the samples also caps the work.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from audit.data.dataset import SPLITS, Array, Folder, Match, Rows, Source, Stored
from audit.data.labels import class_order
from audit.data.preprocess import BILINEAR, sides
from audit.errors import DataError
from audit.settings import Settings
from audit.settings.limits import refuse_outside, require_room

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # all that Pillow may try: others start programs, as EPS does
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
BROKEN = (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, zlib.error)
GRAY, COLOUR = ("1", "L", "LA", "La"), ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")


def find(folder: Folder, settings: Settings) -> list[Match]:
    """Split folders that hold class folders that hold images; or the class folders alone."""
    splits = [(SPLITS[inner.name.lower()], inner) for inner in folder.folders if inner.name.lower() in SPLITS]
    splits = [(split, inner) for split, inner in splits if any(_has_images(c) for c in _class_folders(inner))]
    if splits:
        return [Match("images", tuple(path for _, path in splits), partial(read, tuple(splits), settings))]
    if any(_has_images(inner) for inner in folder.folders if inner.name.lower() not in SPLITS):
        return [Match("images", folder.folders, partial(read, (("all", folder.path),), settings), named=False)]
    return []


def read(splits: tuple[tuple[str, Path], ...], settings: Settings) -> Stored:
    """List every image with its class; decode none of them yet."""
    sources: dict[str, Source] = {}
    for split, root in splits:
        if split in sources:
            raise DataError(f"{root}: another folder beside it is the {split} split too; keep one of them.")
        sources[split] = _source(root, root if split == "all" else root.parent, settings)
    names = {inner.name for _, root in splits for inner in _class_folders(root)}
    return Stored(sources, names=class_order(names))


def _source(root: Path, data: Path, settings: Settings) -> Source:
    """The images of a split in the folder `data`, which none of them may lie outside of."""
    files: list[Path] = []
    labels: list[str] = []
    for inner in _class_folders(root):
        refuse_outside(inner, data)
        found = _images(inner, data)
        files.extend(found)
        labels.extend([inner.name] * len(found))
    return Source(
        np.array(labels, dtype=str), partial(_decode_files, files, settings), tuple(files), file_per_sample=True
    )


def _class_folders(root: Path) -> list[Path]:
    inside = (entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return sorted(inside, key=lambda entry: entry.name)


def _images(folder: Path, data: Path) -> list[Path]:
    """Every image below the folder; links to folders are not followed, so a loop of links cannot hold us."""
    paths = [Path(top, name) for top, _, names in os.walk(folder) for name in names if _is_image(name)]
    for path in paths:
        refuse_outside(path, data)
        if not path.is_file():
            raise DataError(f"{path}: is no ordinary file; replace or remove it.")
    return sorted(paths, key=lambda path: path.as_posix())


def _has_images(folder: Path) -> bool:
    return any(_is_image(name) for _, _, names in os.walk(folder) for name in names)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class Encoded(NamedTuple):
    """One image as it is stored: what to call it in a sentence, and its file or the bytes of one."""

    name: str
    content: Path | bytes


def _decode_files(files: list[Path], settings: Settings, rows: Rows) -> Array:
    where = files[rows[0]].parent
    return decode_all(lambda: (Encoded(str(files[row]), files[row]) for row in rows), len(rows), settings, where)


def decode_all(images: Callable[[], Iterator[Encoded]], count: int, settings: Settings, where: Path) -> Array:
    """The images of `where` as uint8 [n, h, w] where all are gray, else [n, h, w, 3]; one mode and one size for all.

    `images` gives them afresh at each call, so that none but the one at work is held.
    """
    gray = _are_gray(images(), settings, where)
    out, first = np.empty(0, np.uint8), ""
    for place, image in enumerate(images()):
        pixels = decode(image, gray, settings)
        if place == 0:
            out, first = np.empty((count, *pixels.shape), np.uint8), image.name
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{image.name}: is {_size(pixels)} pixels but {first} is {_size(out[0])}; "
                "give them one size with --resize HEIGHT,WIDTH."
            )
        out[place] = pixels
    return out


def _are_gray(images: Iterator[Encoded], settings: Settings, where: Path) -> bool:
    """Whether all are to be gray. Their headers, which tell, also state what the pixels take: that must have room."""
    gray, pixels = settings.channels in ("gray", "auto"), 0
    for encoded in images:
        with _opened(encoded) as image:
            height, width = sides(settings.resize) if settings.resize is not None else (image.height, image.width)
            gray = gray and (settings.channels == "gray" or image.mode in GRAY)
        pixels += height * width
        require_room(pixels * (1 if gray else 3), settings.memory, where)
    return gray


def _size(pixels: Array) -> str:
    return f"{pixels.shape[0]}×{pixels.shape[1]}"


def decode(encoded: Encoded, gray: bool, settings: Settings) -> Array:
    """One image as uint8 [h, w] or [h, w, 3]; alpha is dropped, a palette looked up, the first frame taken."""
    with _opened(encoded) as image:
        plain = _plain(image, gray, encoded.name)
    if settings.resize is not None:
        height, width = sides(settings.resize)
        plain = plain.resize((width, height), BILINEAR)
    pixels = np.asarray(plain, dtype=np.uint8)
    return pixels[..., ::-1] if settings.channels == "bgr" else pixels


@contextmanager
def _opened(encoded: Encoded) -> Iterator[Image]:
    """The image, with every complaint of the decoder turned into a sentence, and its warnings kept quiet."""
    from PIL import Image, ImageFile

    too_large = (Image.DecompressionBombWarning, Image.DecompressionBombError)
    file = BytesIO(encoded.content) if isinstance(encoded.content, bytes) else encoded.content
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # which a library that draws pages turns on for the whole process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                yield image
    except (*BROKEN, *too_large) as error:
        own_name = f" {str(file)!r}" if isinstance(file, Path) else f" {file!r}"
        reason = (str(error).replace(own_name, "").splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"{encoded.name}: cannot be decoded as an image ({reason}); replace or remove it.") from error


def _plain(image: Image, gray: bool, name: str) -> Image:
    if image.mode not in GRAY + COLOUR:
        raise DataError(
            f"{name}: has pixels of mode {image.mode}, not 8 bits per channel; convert it to 8 bits, or use npz."
        )
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA").convert("RGB")
    return image.convert("L" if gray else "RGB")
