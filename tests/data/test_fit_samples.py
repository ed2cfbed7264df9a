"""Samples fitted to an input: the right numbers in the right place, or a sentence with both shapes and the flag."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from folders import fit
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.data.dataset import Data, Split
from audit.data.fit import Accepts, Wanted, matches
from audit.data.preprocess import BILINEAR, guess_axes, resize, to_colour, to_gray, with_channels
from audit.errors import DataError, UsageError
from audit.settings import Settings

PATH = Path("folder")


def holding(x: np.ndarray, axes: str | None = None, layout: str = "npz", **changes: object) -> Data:
    split = Split(x, np.arange(len(x)) % 2, len(x), np.arange(len(x)))
    axes = guess_axes(x.shape[1:]) if axes is None else axes
    return Data(split, split, path=PATH, layout=layout, sha256="", classes=None, axes=axes, **changes)  # type: ignore[arg-type]


def counting(*shape: int, n: int = 2) -> np.ndarray:
    return np.arange(n * math.prod(shape), dtype=np.float32).reshape(n, *shape)


def fitted(data: Data, shape: Wanted | None, accepts: Accepts | None = None, **knobs: object) -> np.ndarray:
    return fit(data, shape, accepts, Settings(**knobs)).train.x  # type: ignore[arg-type]


def refusal(data: Data, shape: Wanted | None, accepts: Accepts | None = None, **knobs: object) -> str:
    with pytest.raises(DataError) as caught:
        fitted(data, shape, accepts, **knobs)
    text = str(caught.value)
    assert text.startswith(f"{PATH}: ") and text.endswith(".") and "\n" not in text
    return text.removeprefix(f"{PATH}: ")


@pytest.mark.parametrize(
    ("stored", "wanted", "expect"),
    [
        ((5,), (5,), lambda x: x),
        ((4, 5), (4, 5), lambda x: x),
        ((4, 5), (20,), lambda x: x.reshape(2, 20)),
        ((4, 5), (1, 4, 5), lambda x: x[:, None]),
        ((4, 5), (4, 5, 1), lambda x: x[..., None]),
        ((5,), (1, 5), lambda x: x[:, None]),
        ((6, 5, 3), (3, 6, 5), lambda x: x.transpose(0, 3, 1, 2)),
        ((3, 6, 5), (6, 5, 3), lambda x: x.transpose(0, 2, 3, 1)),
        ((1, 6, 5), (6, 5), lambda x: x[:, 0]),
        ((6, 5, 1), (6, 5), lambda x: x[..., 0]),
        ((6, 5, 1), (1, 6, 5), lambda x: x.transpose(0, 3, 1, 2)),
        ((6, 5, 1), (30,), lambda x: x.reshape(2, 30)),
        ((3, 6, 5), (90,), lambda x: x.reshape(2, 90)),
        ((7, 6, 5), (5, 7, 6), lambda x: x.transpose(0, 3, 1, 2)),
        ((6, 5, 3), (3, None, None), lambda x: x.transpose(0, 3, 1, 2)),
        ((6, 5), (None, 5), lambda x: x),
        ((6, 5), (None,), lambda x: x.reshape(2, 30)),
    ],
)
def test_unambiguous_shapes_are_fitted(stored: tuple[int, ...], wanted: Wanted, expect) -> None:  # type: ignore[no-untyped-def]
    x = counting(*stored)
    data = fit(holding(x), wanted, None, Settings())
    np.testing.assert_array_equal(data.train.x, expect(x))
    assert data.train.x.flags.c_contiguous
    assert data.train.x.flags.writeable
    assert any("were fitted to" in note for note in data.notes) == (matches(stored, wanted) is False)


@settings(deadline=None)
@given(stored=st.lists(st.integers(1, 6), min_size=1, max_size=3), data=st.data())
def test_fitting_never_loses_or_invents_a_number(stored: list[int], data: st.DataObject) -> None:
    x = counting(*stored)
    candidates = [tuple(stored), (math.prod(stored),), (1, *stored), (*stored, 1), (*stored[1:], stored[0])]
    wanted = data.draw(st.sampled_from(candidates))
    try:
        out = fitted(holding(x), wanted)
    except DataError as error:
        assert str(wanted) in str(error) and str(tuple(stored)) in str(error)
    else:
        assert out.shape[1:] == wanted
        np.testing.assert_array_equal(np.sort(out.reshape(2, -1)), np.sort(x.reshape(2, -1)))


def test_a_matching_shape_is_left_alone() -> None:
    x = counting(3, 3, 3)
    np.testing.assert_array_equal(fitted(holding(x), (3, 3, 3)), x)


def test_without_a_stated_shape_the_network_is_asked() -> None:
    x = counting(4, 5)
    np.testing.assert_array_equal(fitted(holding(x), None), x)
    np.testing.assert_array_equal(fitted(holding(x), None, lambda shape: shape == (20,)), x.reshape(2, 20))
    np.testing.assert_array_equal(fitted(holding(x), None, lambda shape: True), x)
    text = refusal(holding(x), None, lambda shape: len(shape) == 3)
    assert text == (
        "samples of shape (4, 5) fit the model's input of unstated shape in several ways; "
        "say --reshape to-nchw for (1, 4, 5), or --reshape to-nhwc for (4, 5, 1)."
    )


def test_free_sizes_ask_the_network() -> None:
    x = counting(4, 5)
    out = fitted(holding(x), (None, None, None), lambda shape: shape[0] == 1)
    np.testing.assert_array_equal(out, x[:, None])


def test_colour_pixels_flatten_in_two_ways_so_the_user_says_which() -> None:
    x = counting(6, 5, 3)
    assert refusal(holding(x), (90,)) == (
        "samples of shape (6, 5, 3) fit the model's input (90,) in several ways; say --reshape flatten for (90,) "
        "pixel by pixel, or --reshape flatten-nchw for (90,) channel by channel."
    )
    np.testing.assert_array_equal(fitted(holding(x), (90,), reshape="flatten"), x.reshape(2, 90))
    channels_first = x.transpose(0, 3, 1, 2).reshape(2, 90)
    np.testing.assert_array_equal(fitted(holding(x), (90,), reshape="flatten-nchw"), channels_first)
    stored_first = holding(x.transpose(0, 3, 1, 2).copy())
    np.testing.assert_array_equal(fitted(stored_first, (90,), reshape="flatten-nhwc"), x.reshape(2, 90))


def test_rows_become_images_only_on_request() -> None:
    x = counting(64)
    table = holding(x, "features", "csv", features=tuple(f"pixel{i}" for i in range(64)))
    for data in (holding(x), table):
        assert refusal(data, (1, 8, 8)) == (
            "samples have shape (64,) but the model's input is (1, 8, 8); "
            "the sizes agree, so --reshape unflatten would fill it row by row."
        )
    np.testing.assert_array_equal(fitted(holding(x), (1, 8, 8), reshape="unflatten"), x.reshape(2, 1, 8, 8))


@pytest.mark.parametrize("word", ["none", "flatten", "add-channel", "drop-channel", "to-nchw", "unflatten"])
def test_a_flag_that_does_not_help(word: str) -> None:
    assert refusal(holding(counting(5, 4)), (7,), reshape=word) == (
        "samples have shape (5, 4) but the model's input is (7,), "
        f"and --reshape {word} does not bring them together; try --reshape auto."
    )


@pytest.mark.parametrize(("wanted", "shape"), [((1, 4, 5), (1, 4, 5)), ((4, 5, 1), (4, 5, 1)), (None, (1, 4, 5))])
def test_add_channel_goes_where_the_input_has_it(wanted: Wanted | None, shape: tuple[int, ...]) -> None:
    assert fitted(holding(counting(4, 5)), wanted, reshape="add-channel").shape[1:] == shape


def test_a_table_that_is_too_narrow_names_its_columns() -> None:
    data = holding(counting(2), "features", "csv", features=("age", "height"))
    assert refusal(data, (3,)) == (
        "samples have shape (2,) but the model's input is (3,); the table's feature columns are age, height."
    )


def test_a_table_that_is_too_wide_is_told_to_drop_what_is_no_feature() -> None:
    data = holding(counting(3), "features", "csv", features=("id", "age", "height"))
    assert refusal(data, (2,)) == (
        "samples have shape (3,) but the model's input is (2,); the table's feature columns are id, age, height; leave "
        "out what is no feature with --drop NAME."
    )


def test_images_of_another_size_are_told_to_resize() -> None:
    data = holding(np.zeros((2, 20, 30, 3), np.uint8), layout="images")
    assert refusal(data, (3, 32, 48)) == (
        "samples have shape (20, 30, 3) but the model's input is (3, 32, 48); "
        "resize the images with --resize 32,48 if that was done in training."
    )


def test_images_take_the_channels_of_the_model() -> None:
    colour = np.random.default_rng(0).integers(0, 256, (3, 7, 5, 3), dtype=np.uint8)
    gray = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in colour])
    np.testing.assert_array_equal(to_gray(colour), gray)
    data = fit(holding(colour, "hwc", "images"), (1, 7, 5), None, Settings(scale=1))
    np.testing.assert_array_equal(data.train.x, gray[:, None])
    assert "Colour images were turned gray, as the model's input asks." in data.notes
    data = fit(holding(gray, "hw", "images"), (3, 7, 5), None, Settings(scale=1, mean=(1, 2, 3)))
    expected = np.stack([gray - np.float32(1), gray - np.float32(2), gray - np.float32(3)], axis=1)
    np.testing.assert_array_equal(data.train.x, expected)
    assert "Gray images were given three equal channels, as the model's input asks." in data.notes
    assert "(3, 7, 5)" in refusal(holding(gray, "hw", "images"), (3, 7, 5), channels="gray")


def test_pixels_are_scaled_by_default_and_it_is_said() -> None:
    x = np.arange(256, dtype=np.uint8).reshape(2, 16, 8)
    data = fit(holding(x, "hw"), (16, 8), None, Settings())
    assert data.train.x.dtype == np.float32
    np.testing.assert_array_equal(data.train.x, x.astype(np.float32) / np.float32(255))
    assert "uint8 pixels were divided by 255, so that they lie in [0, 1]." in data.notes
    np.testing.assert_array_equal(fitted(holding(x, "hw"), (16, 8), scale=1), x)


def test_flat_bytes_are_not_taken_for_pixels() -> None:
    x = np.arange(256, dtype=np.uint8).reshape(2, 128)
    data = fit(holding(x), (128,), None, Settings())
    np.testing.assert_array_equal(data.train.x, x)
    assert any("were not scaled; if they are flattened pixels, say --scale 0.00392157" in note for note in data.notes)


@pytest.mark.parametrize(("stored", "axis"), [((6, 5, 3), 2), ((3, 6, 5), 0), ((3, 3, 8), 0), ((3,), 0), ((7, 3), 1)])
def test_statistics_meet_their_own_axis(stored: tuple[int, ...], axis: int) -> None:
    x, mean, std = counting(*stored), (1.0, 20.0, 300.0), (2.0, 4.0, 8.0)
    data = holding(x, "chw" if stored == (3, 3, 8) else None)
    out = fitted(data, stored, scale=0.5, mean=mean, std=std)
    for place in range(3):
        expected = (np.take(x, place, axis + 1) * 0.5 - mean[place]) / std[place]
        np.testing.assert_allclose(np.take(out, place, axis + 1), expected, rtol=1e-6)


def test_statistics_are_applied_before_the_axes_move() -> None:
    x = counting(6, 5, 3)
    out = fitted(holding(x), (3, 6, 5), mean=(1, 2, 3))
    np.testing.assert_array_equal(out, (x - np.array([1, 2, 3], np.float32)).transpose(0, 3, 1, 2))


def test_the_notes_name_the_statistics() -> None:
    data = fit(holding(counting(3)), (3,), None, Settings(scale=0.5, mean=(0.1,), std=(2.0, 3.0, 4.0)))
    assert data.notes == (
        "Inputs were multiplied by 0.5.",
        "The mean 0.1 was subtracted.",
        "Then they were divided by 2, 3, 4.",
        "Inputs are float32.",
        "Inputs as fed range from -0.05 to 0.7.",
    )


def test_statistics_that_do_not_fit() -> None:
    with pytest.raises(UsageError) as error:
        fitted(holding(counting(4, 5), "hw"), (4, 5), mean=(1, 2, 3))
    assert str(error.value) == (
        "--mean: 3 numbers were given but samples have shape (4, 5); give one number, or one per channel or feature."
    )
    with pytest.raises(UsageError, match=r"^--std: 0 cannot be divided by"):
        fitted(holding(counting(4, 5)), (4, 5), std=(0,))
    with pytest.raises(UsageError, match=r"^--std: 3 numbers were given"):
        fitted(holding(counting(3, 9, 3), ""), (3, 9, 3), std=(1, 2, 3))  # the first or the last axis?


@pytest.mark.parametrize(
    ("stored", "asked", "dtype"),
    [
        ("float64", "auto", "float64"),
        ("float32", "auto", "float32"),
        ("float16", "auto", "float32"),
        ("int16", "auto", "float32"),
        ("bool", "auto", "float32"),
        ("float32", "float64", "float64"),
        ("float64", "float32", "float32"),
        ("float32", "float16", "float16"),
        ("int64", "int64", "int64"),
        ("float32", "int32", "int32"),
    ],
)
def test_number_types(stored: str, asked: str, dtype: str) -> None:
    x = np.array([[0, 1], [1, 0]]).astype(stored)
    data = fit(holding(x), (2,), None, Settings(dtype=asked))
    assert data.train.x.dtype == dtype
    np.testing.assert_array_equal(data.train.x, x)
    assert any(f"Inputs are fed as {dtype}" in note or note == f"Inputs are {dtype}." for note in data.notes)


def test_integers_too_large_for_float32_stay_exact() -> None:
    x = np.array([[2**24 + 1], [0]])
    assert fitted(holding(x), (1,))[0, 0] == 2**24 + 1


def test_integer_inputs_refuse_arithmetic_and_fractions() -> None:
    with pytest.raises(UsageError, match=r"^--dtype int64: whole numbers cannot be scaled or shifted"):
        fitted(holding(counting(2)), (2,), dtype="int64", scale=2)
    with pytest.raises(DataError, match=r"^--dtype int64: the inputs hold fractions, such as 0\.5\."):
        fitted(holding(counting(2) + 0.5), (2,), dtype="int64")


def test_a_scale_that_overflows() -> None:
    text = refusal(holding(counting(2)), (2,), dtype="float16", scale=1e6)
    assert text == "train sample 0 is not finite once scaled; check --scale, --mean, --std and --dtype."


@pytest.mark.parametrize(("axes", "shape"), [("hw", (8, 6)), ("hwc", (8, 6, 3)), ("chw", (3, 8, 6))])
def test_stored_pixels_resize_like_files_do(axes: str, shape: tuple[int, ...]) -> None:
    assert BILINEAR == Image.Resampling.BILINEAR
    x = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    out = resize(x, axes, (4, 5))
    image = x[0].transpose(1, 2, 0) if axes == "chw" else x[0]
    expected = np.asarray(Image.fromarray(image).resize((5, 4), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(out[0], expected.transpose(2, 0, 1) if axes == "chw" else expected)


def test_what_cannot_be_resized() -> None:
    with pytest.raises(UsageError, match=r"^--resize: samples of shape \(4,\) are not images"):
        resize(counting(4), "features", (2, 2))
    with pytest.raises(UsageError, match=r"^--resize: 1,2,3 is not a height and a width"):
        resize(counting(4, 4), "hw", (1, 2, 3))


def test_gray_becomes_colour() -> None:
    assert to_colour(np.zeros((2, 4, 5), np.uint8)).shape == (2, 4, 5, 3)


@given(st.sampled_from([(4, 5), (6, 5, 1), (1, 6, 5)]), st.integers(0, 3))
def test_ways_that_the_network_answers_alike_are_one_way(shape: tuple[int, ...], seed: int) -> None:
    x = np.random.default_rng(seed).random((4, *shape)).astype(np.float32)
    weights = np.random.default_rng(seed).random((math.prod(shape), 3))

    def flattens(inputs: Sequence[np.ndarray]) -> bool:
        answers = [batch.reshape(len(batch), -1) @ weights for batch in inputs]
        return len(answers) > 1 and all(np.allclose(answers[0], answer) for answer in answers)

    out = fit(holding(x, layout="images"), None, lambda _: True, Settings(), flattens).train.x
    np.testing.assert_array_equal(out.reshape(4, -1), x.reshape(4, -1))
    with pytest.raises(DataError, match="of unstated shape in several ways"):
        fit(holding(x, layout="images"), None, lambda _: True, Settings(), lambda _: False)


@pytest.mark.parametrize(("sample", "wanted", "word"), [((6, 5, 3), (1, 6, 5), "gray"), ((6, 5), (3, 6, 5), "rgb")])
def test_other_channels_of_the_same_size_are_advised_not_another_size(
    sample: tuple[int, ...], wanted: tuple[int, ...], word: str
) -> None:
    x = np.zeros((2, *sample), np.uint8)
    text = refusal(holding(x, "hwc" if len(sample) == 3 else "hw"), wanted)
    assert text.endswith(f"; say --channels {word} if that is what was done in training.")


@pytest.mark.parametrize("axes", ["hwc", "chw"])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_channels_of_stored_arrays(axes: str, kind: type) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3)).astype(np.uint8)
    x = (rgb if axes == "hwc" else np.moveaxis(rgb, 3, 1)).astype(kind)
    gray, found = with_channels(x, axes, "gray")
    assert found == "hw"
    np.testing.assert_allclose(gray, to_gray(rgb), atol=0 if kind is np.uint8 else 0.51)
    reversed_, found = with_channels(x, axes, "bgr")
    assert found == axes
    np.testing.assert_array_equal(reversed_, np.flip(x, axes.index("c") + 1))
    np.testing.assert_array_equal(with_channels(x, axes, "rgb")[0], x)
    colour, found = with_channels(rgb[..., 0], "hw", "rgb")
    assert found == "hwc" and (colour == rgb[..., :1]).all()
    with pytest.raises(UsageError, match=r"^--channels gray: samples of shape \(4,\) are not images of one or three"):
        with_channels(np.zeros((2, 4)), "features", "gray")
