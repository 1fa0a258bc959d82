"""Tests of Resize and flips against OpenCV and numpy."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.rng import Rng
from aioloader.transforms import RandomHorizontalFlip, RandomVerticalFlip, Resize
from tests.cases import with_cases

CODES = {
    "nearest": cv2.INTER_NEAREST,
    "nearest-exact": cv2.INTER_NEAREST_EXACT,
    "linear": cv2.INTER_LINEAR,
    "bilinear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


def image(height=20, width=30, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(dtype)


@with_cases(
    ("size", "max_size", "expected"),
    [
        *[(6, None, (6, 12)), ([6], None, (6, 12)), ((7, 5), None, (7, 5))],
        *[(6, 9, (4, 9)), (6, 13, (6, 12)), (None, 9, (4, 9))],
    ],
)
def test_resize_gives_the_size_that_torchvision_gives(size, max_size, expected):
    assert Resize(size, max_size=max_size)(image(4, 8)).shape[:2] == expected
    assert Resize(size, max_size=max_size).target(8, 4) == (expected if size == (7, 5) else expected[::-1])


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 300))
def test_the_shorter_side_is_exact_and_the_longer_rounded_down(height, width, size):
    h, w = Resize(size).target(height, width)
    assert min(w, h) == size
    assert max(w, h) == size * max(height, width) // min(height, width)
    assert w == h or (w > h) == (width > height)


@with_cases("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
@with_cases(("name", "code"), CODES.items(), ids=CODES)
def test_interpolation_is_opencv_s(name, code, dtype):
    x = image(dtype=dtype)
    expected = cv2.resize(x, (17, 11), interpolation=code)
    assert np.array_equal(Resize((11, 17), interpolation=name, antialias=None)(x), expected)


@with_cases(
    ("size", "name"), [((60, 40), "cubic"), ((10, 7), "area"), ((60, 7), "linear"), ((30, 7), "linear")]
)
def test_auto_chooses_by_direction(size, name):
    made = Resize(size[::-1], interpolation="auto", antialias=None)(image())
    assert np.array_equal(made, cv2.resize(image(), size, interpolation=CODES[name]))


def test_random_interpolation_is_one_of_five_equally():
    transform = Resize((11, 17), interpolation="random", antialias=None)
    kinds = [cv2.resize(image(), (17, 11), interpolation=code).tobytes() for code in range(5)]
    found = np.bincount([kinds.index(transform(image(), rng=Rng(0, 0, n)).tobytes()) for n in range(1000)])
    assert len(found) == 5
    assert np.abs(found - 200).max() < 5 * 200**0.5


def test_the_right_size_is_returned_as_it_is():
    x = image()
    assert Resize((20, 30))(x) is x
    assert Resize(20)(x) is x


@pytest.mark.parametrize("number", [np.int64(3), 3])
def test_numbers_of_numpy_will_do(number):
    assert Resize(2, interpolation=number).interpolation == "bicubic"
    assert Resize((number, number)).size == (3, 3)


DTYPES = [np.uint8, np.int8, np.uint16, np.int32, np.float32, np.float64, np.int64, np.bool_, np.float16]


@with_cases("dtype", DTYPES)
@with_cases(
    ("make", "axis"), [(RandomHorizontalFlip, 1), (RandomVerticalFlip, 0)], ids=["left-right", "top-bottom"]
)
def test_flips_are_numpy_s_for_any_dtype(make, axis, dtype):
    x = image(dtype=dtype)
    expected = np.flip(x, axis).copy()
    result = make(1.0)(x)
    assert result.dtype == dtype
    assert np.array_equal(result, expected)
    assert make(0.0)(x) is x
    assert make(1.0).apply(x, Rng(0), x) is x
    assert np.array_equal(x, expected)


@with_cases("make", [RandomHorizontalFlip, RandomVerticalFlip])
@with_cases("p", [0.0, 0.2, 0.5, 1.0])
def test_flips_happen_with_their_probability(make, p):
    x = image(2, 2)
    flips = sum(make(p)(x, rng=Rng(9, 0, index)) is not x for index in range(3000))
    assert abs(flips - 3000 * p) <= 5 * (3000 * p * (1 - p)) ** 0.5


def test_draws_stay_what_they_were():
    x = np.array([[[1], [0]]], np.uint8)
    flip = RandomHorizontalFlip()
    flips = [int(flip(x, rng=Rng(7, 2, index))[0, 1, 0]) for index in range(16)]
    assert flips == [0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
