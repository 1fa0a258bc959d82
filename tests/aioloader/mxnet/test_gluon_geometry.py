"""Tests of MXNet's crops and resize: the rectangle, its draws, and the cut pixels."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.mxnet.gluon_geometry import (
    CenterCrop,
    CropResize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    scale_down,
)
from aioloader.rng import Rng
from aioloader.transforms import is_native
from tests.cases import with_cases

side = st.integers(1, 300)


def image(height, width, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


@with_cases(
    ("width", "height", "size", "expected"),
    [
        pytest.param(640, 480, (720, 120), (640, 106), id="too-wide"),
        pytest.param(360, 1000, (480, 500), (360, 375), id="narrow"),
        pytest.param(360, 1000, (300, 500), (300, 500), id="fits"),
        pytest.param(1000, 2, (3, 900), (1, 2), id="never-nothing"),
    ],
)
def test_wanted_rectangles_shrink_to_fit(width, height, size, expected):
    assert scale_down(width, height, size) == expected


@with_cases(
    ("size", "expected"),
    [((20, 31), (35, 14, 20, 31)), ((200, 100), (0, 7, 90, 45)), (60, (15, 0, 60, 60))],
    ids=["inside", "enlarged", "int"],
)
def test_center_crop_takes_what_mxnet_takes(size, expected):
    transform = CenterCrop(size)
    assert transform.box(60, 90, Rng(0)) == expected
    x, y, w, h = expected
    cut = image(60, 90)[y : y + h, x : x + w]
    assert np.array_equal(transform(image(60, 90)), cv2.resize(cut, transform.size[::-1]))


@given(side, side, st.tuples(side, side), st.integers(0, 99))
def test_every_box_lies_inside_the_image(height, width, size, index):
    for transform in (CenterCrop(size), RandomCrop(size), RandomResizedCrop(size)):
        x, y, w, h = transform.box(height, width, Rng(0, 0, index))
        assert 0 <= x <= width - w
        assert 0 <= y <= height - h
        assert min(w, h) >= 1


def boxes(transform, height, width, n=3000):
    return np.array([transform.box(height, width, Rng(4, 1, index)) for index in range(n)])


def test_one_number_is_the_least_share():
    assert RandomResizedCrop(10, scale=0.5).scale == (0.5, 1.0)


def test_where_no_try_fits_the_middle_is_taken():
    transform = RandomResizedCrop((100, 50), scale=(0.9, 1.0), ratio=(4, 5))
    assert (boxes(transform, 375, 500, 50) == (200, 162, 100, 50)).all()


@with_cases("pad_value", [0, 200, (1, 2, 3)], ids=str)
@with_cases("pad", [3, (1, 2, 3, 4), (0, 0, 30, 0), [25, 0, 0, 0]], ids=str)
@with_cases("size", [(9, 8), (20, 14), (60, 50)], ids=str)
def test_padding_is_as_if_the_whole_image_were_padded(size, pad, pad_value):
    x = image(12, 15)
    transform = RandomCrop(size, pad, pad_value)
    top, bottom, left, right = (pad,) * 4 if isinstance(pad, int) else pad
    padded = np.empty((12 + top + bottom, 15 + left + right, 3), np.uint8)
    padded[...] = pad_value
    padded[top : top + 12, left : left + 15] = x
    for index in range(30):
        expected = RandomCrop(size)(padded, rng=Rng(0, 0, index))
        out = np.empty_like(expected)
        assert np.array_equal(transform(x, rng=Rng(0, 0, index)), expected)
        assert np.array_equal(transform.apply(x, Rng(0, 0, index), out), expected)


GOLDEN = {
    "resized": (RandomResizedCrop(224), [(32, 0, 449, 375), (92, 179, 181, 178), (83, 60, 220, 263)]),
    "plain": (RandomCrop(224), [(180, 30, 224, 224), (27, 79, 224, 224), (68, 28, 224, 224)]),
    "padded": (RandomCrop(300, pad=8), [(133, 10, 300, 300), (13, 40, 300, 300), (46, 9, 300, 300)]),
}


@with_cases(("transform", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_draws_stay_what_they_were(transform, expected):
    assert [transform.box(375, 500, Rng(7, 2, index)) for index in range(3)] == expected


@with_cases(
    ("size", "keep_ratio", "expected"),
    [(6, False, (6, 6)), (6, True, (6, 12)), ((5, 7), False, (7, 5)), ((5, 7), True, (7, 5))],
    ids=["square", "shorter-side", "pair", "pair-keeps-nothing"],
)
def test_resize_gives_the_size_that_gluon_gives(size, keep_ratio, expected):
    assert Resize(size, keep_ratio)(image(4, 8)).shape[:2] == expected


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 300))
def test_the_shorter_side_is_exact_and_the_longer_rounded_down(height, width, size):
    h, w = Resize(size, keep_ratio=True).target(height, width)
    assert min(w, h) == size
    assert max(w, h) == size * max(height, width) // min(height, width)
    assert w == h or (w > h) == (width > height)


@with_cases("interpolation", ["linear", "cubic"])
def test_resizing_is_opencv_s(interpolation):
    x = image(20, 30)
    code = {"linear": cv2.INTER_LINEAR, "cubic": cv2.INTER_CUBIC}[interpolation]
    expected = cv2.resize(x, (17, 11), interpolation=code)
    assert np.array_equal(Resize((17, 11), interpolation=interpolation)(x), expected)
    assert np.array_equal(CropResize(0, 0, 30, 20, (17, 11), interpolation)(x), expected)


@with_cases(
    ("transform", "text"),
    [
        (CenterCrop((3, 2)), "CenterCrop(size=(3, 2), interpolation='bilinear')"),
        (
            CropResize(1, 2, 3, 4, (5, 6)),
            "CropResize(x=1, y=2, width=3, height=4, size=(5, 6), interpolation='bilinear')",
        ),
        (Resize((3, 2)), "Resize(size=(3, 2), keep_ratio=False, interpolation='bilinear')"),
        (Resize(3, True), "Resize(size=3, keep_ratio=True, interpolation='bilinear')"),
    ],
    ids=["center", "fixed", "resize", "shorter"],
)
def test_arguments_are_shown_as_they_were_given(transform, text):
    assert repr(transform) == text
    assert is_native(transform)
