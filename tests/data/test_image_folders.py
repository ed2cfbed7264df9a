"""Image files: every common kind becomes the same pixels, and an odd one is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import fit
from PIL import Image

from audit.data import data_sha256, read_data
from audit.errors import DataError
from audit.settings import Settings

COLOUR = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
GRAY = COLOUR[..., 0]


def folder(root: Path, *images: tuple[str, Image.Image], split: str = "train") -> Path:
    """The images as class a, and two more each in class b and in the other split, of the same mode and size."""
    plain = Image.fromarray(np.zeros((6, 5, 3), np.uint8))
    for name, image in images:
        (root / split / "a").mkdir(parents=True, exist_ok=True)
        image.save(root / split / "a" / name)
    for place in ("train/b", "test/a", "test/b"):
        (root / place).mkdir(parents=True, exist_ok=True)
        for copy in range(2):
            (images[0][1] if place == "test/a" else plain).convert("RGB").save(root / place / f"{copy}.png")
    return root


def first(root: Path, **settings: object) -> np.ndarray:
    return np.asarray(read_data(root, Settings(**settings)).train.x[0])  # type: ignore[arg-type]


def test_colour_alpha_and_palette(tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR)
    alpha = image.copy()
    alpha.putalpha(Image.fromarray(GRAY))
    palette = image.quantize(30)
    see_through = palette.copy()
    see_through.info["transparency"] = bytes(range(30))
    folder(tmp_path, ("0.png", image), ("1.png", alpha), ("2.bmp", image), ("3.png", palette), ("4.png", see_through))
    x = read_data(tmp_path, Settings()).train.x
    for place in (0, 1, 2):
        np.testing.assert_array_equal(x[place], COLOUR)
    for place in (3, 4):
        np.testing.assert_array_equal(x[place], np.asarray(palette.convert("RGB")))


@pytest.mark.parametrize("name", ["0.jpg", "0.JPEG", "0.gif", "0.webp", "0.tif", "0.png"])
def test_every_kind_is_found_and_decoded_like_pillow(tmp_path: Path, name: str) -> None:
    folder(tmp_path, (name, Image.fromarray(COLOUR)))
    with Image.open(tmp_path / "train" / "a" / name) as image:
        np.testing.assert_array_equal(first(tmp_path), np.asarray(image.convert("RGB")))


def test_channel_orders(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(COLOUR)))
    np.testing.assert_array_equal(first(tmp_path, channels="rgb"), COLOUR)
    np.testing.assert_array_equal(first(tmp_path, channels="bgr"), COLOUR[..., ::-1])
    np.testing.assert_array_equal(first(tmp_path, channels="gray"), np.asarray(Image.fromarray(COLOUR).convert("L")))


def test_gray_in_one_split_and_colour_in_the_other(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(COLOUR)))
    for place in ("a", "b"):
        for file in (tmp_path / "test" / place).iterdir():
            Image.fromarray(GRAY).save(file)
    data = read_data(tmp_path, Settings())
    np.testing.assert_array_equal(data.test.x[0], np.stack([GRAY] * 3, axis=-1))
    np.testing.assert_array_equal(data.train.x[0], COLOUR)


def test_black_and_white(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(GRAY > 127)))
    np.testing.assert_array_equal(first(tmp_path, channels="gray"), np.where(GRAY > 127, 255, 0))


def test_orientation_tags_are_not_applied(tmp_path: Path) -> None:
    turned = Image.fromarray(COLOUR)
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.info["exif"] = exif.tobytes()
    folder(tmp_path, ("0.png", turned))
    np.testing.assert_array_equal(first(tmp_path), COLOUR)


def test_sizes_that_differ_name_two_files_and_the_flag(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(COLOUR)), ("1.png", Image.fromarray(COLOUR[:4])))
    with pytest.raises(DataError) as error:
        read_data(tmp_path, Settings())
    inner = tmp_path / "train" / "a"
    assert str(error.value) == (
        f"{inner / '1.png'}: is 4×5 pixels but {inner / '0.png'} is 6×5; give them one size with --resize HEIGHT,WIDTH."
    )
    data = read_data(tmp_path, Settings(resize=(3, 4)))
    expected = np.asarray(Image.fromarray(COLOUR[:4]).resize((4, 3), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.train.x[1], expected)
    assert "Images were resized to (3, 4) (bilinear)." in data.notes


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
@pytest.mark.parametrize("channels", ["auto", "rgb"])
def test_unreadable_images_are_named(tmp_path: Path, damage: str, channels: str) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(np.tile(COLOUR, (20, 20, 1)))))
    file = tmp_path / "train" / "a" / "0.png"
    content = file.read_bytes()
    file.write_bytes({"cut": content[: len(content) // 2], "text": b"hello", "empty": b""}[damage])
    with pytest.raises(DataError) as error:
        read_data(tmp_path, Settings(channels=channels))
    assert str(error.value).startswith(f"{file}: cannot be decoded as an image (")
    assert str(error.value).endswith("); replace or remove it.")
    assert str(error.value).count(str(file)) == 1


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(GRAY.astype(np.uint16) * 256)))
    with pytest.raises(DataError) as error:
        read_data(tmp_path, Settings())
    assert str(error.value).endswith("not 8 bits per channel; convert it to 8 bits, or use npz.")
    assert str(error.value).startswith(f"{tmp_path / 'train' / 'a' / '0.png'}: has pixels of mode I")


def test_an_empty_class_keeps_its_place(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(COLOUR)))
    (tmp_path / "train" / "ab").mkdir()
    data = read_data(tmp_path, Settings())
    assert data.classes == ("a", "ab", "b")
    assert data.train.y.tolist() == [0, 2, 2]


def test_from_files_to_a_convolution(tmp_path: Path) -> None:
    folder(tmp_path, ("0.png", Image.fromarray(COLOUR)))
    settings = Settings(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    data = fit(read_data(tmp_path, settings), (3, 6, 5), None, settings)
    expected = (COLOUR / 255 - np.array(settings.mean)) / np.array(settings.std)
    np.testing.assert_allclose(data.train.x[0], expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)


def test_the_hash_is_that_of_the_chosen_files_and_decodes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, *((f"{place}.png", Image.fromarray(COLOUR)) for place in range(6)))
    capped = [Settings(samples=samples) for samples in (0, 4)]
    whole, some = (read_data(tmp_path, settings).sha256 for settings in capped)
    monkeypatch.setattr("audit.data.images.decode", None)
    assert [data_sha256(tmp_path, settings) for settings in capped] == [whole, some] and whole != some
