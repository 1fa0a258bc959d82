"""Tests of interpolations beside Pillow and OpenCV, whatever they are named by."""

from __future__ import annotations

import inspect

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioloader import mxnet, transforms
from aioloader.rng import Rng
from aioloader.transforms import Resize, boxes, functional
from aioloader.transforms.interpolation import AREA, averages_in_floats, resize_image, shrink_by_area
from tests.cases import with_cases

Image = pytest.importorskip("PIL.Image")
# Their weights are multiples of 2**-15: values differ by a level for each axis. The others are Pillow's, bit for bit.
NEAR = ("BILINEAR", "BICUBIC")
sides = st.integers(1, 90)


def expected(x, size):
    result = cv2.resize(x, size, interpolation=cv2.INTER_AREA)
    return result.reshape(size[1], size[0], x.shape[2])


@given(sides, sides, sides, sides, st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
def test_any_size_gives_the_bytes_that_opencv_gives(rows, columns, height, width, channels, seed):
    x = np.random.default_rng(seed).integers(0, 256, (rows, columns, channels), np.uint8)
    if (rows, columns) == (height, width):
        return
    np.testing.assert_array_equal(resize_image(x, (height, width), AREA), expected(x.copy(), (width, height)))


@pytest.mark.parametrize(
    "shape", [(375, 500, 3), (500, 333, 3), (225, 224, 3), (301, 640, 1), (231, 1000, 3)]
)
def test_views_are_shrunk_into_rows_that_are_given(shape):
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 256, (shape[0] + 9, shape[1] + 7, shape[2]), np.uint8)
    x = whole[4 : 4 + shape[0], 3 : 3 + shape[1]]
    batch = np.zeros((3, 224, 224, shape[2]), np.uint8)
    assert averages_in_floats(x, (224, 224))
    shrink_by_area(x, (224, 224), batch[1])
    np.testing.assert_array_equal(batch[1], expected(np.ascontiguousarray(x), (224, 224)))
    assert not batch[0].any()
    assert not batch[2].any()


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((448, 448, 3), "uint8", (224, 224)),
        ((100, 300, 3), "uint8", (224, 120)),
        ((300, 300, 3), "float32", (224, 224)),
    ],
)
def test_what_opencv_does_in_another_way_is_left_to_it(shape, dtype, size):
    x = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    assert not averages_in_floats(x, size[::-1])
    np.testing.assert_array_equal(resize_image(x, size[::-1], AREA), expected(x, size))


@pytest.mark.parametrize(
    "member", [member for member in Image.Resampling if member < 6], ids=lambda member: member.name
)
@given(sides, sides, sides, sides, st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
@example(61, 62, 14, 35, 1, 294)  # the digits of 0.54f in Pillow's Hamming filter change one pixel
def test_members_and_numbers_of_pillow_give_its_pixels(member, rows, columns, height, width, channels, seed):
    x = np.random.default_rng(seed).integers(0, 256, (rows, columns, channels), np.uint8)
    picture = Image.fromarray(x if channels == 3 else x[:, :, 0])
    # Along rows first, as Pillow does before version 13, which chooses the order.
    both = picture.resize((width, rows), member).resize((width, height), member)
    expected = np.asarray(both).reshape(height, width, channels)
    if member.name == "NEAREST" and not (both_round_alike(rows, height) and both_round_alike(columns, width)):
        return
    for value in (member, member.value, np.int64(member)):
        made = Resize((height, width), value)(x)
        assert np.abs(made.astype(int) - expected).max() <= 2 * (member.name in NEAR)
        assert np.array_equal(made, functional.resize(x, (height, width), value))


def both_round_alike(before, after):
    """Return False if a place is halfway between two pixels, which Pillow and torch round by different errors."""
    return all((2 * place + 1) * before % (2 * after) for place in range(after)) or before % after == 0


def takers():
    """List every callable outside aioloader.mxnet with a parameter `interpolation`, and its other arguments."""
    arguments = {
        "CropResize": (0, 0, 4, 4, 3),
        "resized_crop": (0, 0, 4, 4, 3),
        **dict.fromkeys(("RandomRotation", "RandomAffine", "rotate"), (30,)),
        "affine": (30, (1, 1), 1.0, (0.0, 0.0)),
        "perspective": ([(0, 0), (8, 0), (8, 8), (0, 8)], [(1, 0), (8, 1), (7, 8), (0, 7)]),
        **dict.fromkeys(("Resize", "RandomResizedCrop", "resize"), (5,)),
    }
    for module in (transforms, boxes, functional):
        for name in module.__all__:
            fn = getattr(module, name)
            if callable(fn) and "interpolation" in inspect.signature(fn).parameters:
                yield pytest.param(module, fn, arguments.get(name, ()), id=f"{module.__name__}.{name}")


def made_by(module, fn, arguments, interpolation):
    x = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    if module is functional:
        return fn(x, *arguments, interpolation=interpolation)
    transform = fn(*arguments, interpolation=interpolation)
    rest = (np.array([[1.0, 1.0, 5.0, 5.0]]),) if module is boxes else ()
    return transform(x, *rest, rng=Rng(3))


@with_cases(("module", "fn", "arguments"), list(takers()))
def test_everything_that_takes_an_interpolation_means_the_same_by_it(module, fn, arguments):
    for number, name in {0: "nearest-exact", 2: "bilinear", 3: "bicubic", 1: "lanczos", 4: "box"}.items():
        values = [number, Image.Resampling(number), name]
        try:
            expected = made_by(module, fn, arguments, name)
        except ValueError:
            for value in values:
                with pytest.raises(ValueError, match="must be 'nearest' or 'bilinear'"):
                    made_by(module, fn, arguments, value)
            continue
        for value in values:
            found = made_by(module, fn, arguments, value)
            for one, other in zip(found, expected, strict=True):
                assert np.array_equal(one, other)


@with_cases("value", [6, 9, 10, -1, True, None, 2.0, "BICUBIC", Image.Transpose.ROTATE_90, Image.Dither.NONE])
@with_cases(("module", "fn", "arguments"), list(takers()))
def test_what_is_no_interpolation_is_refused_with_the_words(module, fn, arguments, value):
    with pytest.raises(ValueError, match=r"interpolation must be one of nearest, .*bicubic.* 3 bicubic"):
        made_by(module, fn, arguments, value)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_numbers_of_mxnet_are_opencv_s(code):
    x = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    made = mxnet.gluon.data.vision.transforms.Resize((17, 11), interpolation=code)(
        mxnet.nd.array(x, dtype="uint8")
    )
    assert np.array_equal(made.asnumpy(), cv2.resize(x, (17, 11), interpolation=code))
