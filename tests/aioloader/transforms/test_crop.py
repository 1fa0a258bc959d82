"""Tests of crops: the rectangle, its draws, and the cut pixels."""

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.rng import Rng
from aioloader.transforms import CenterCrop, CropResize, Pad, RandomCrop, RandomResizedCrop
from tests.cases import with_cases

side = st.integers(1, 300)


def image(height, width, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def test_a_crop_that_is_not_resized_is_a_view():
    x = image(60, 90)
    for transform in (CenterCrop(20), RandomCrop(20), CropResize(1, 2, 3, 4)):
        assert transform(x).base is x


@given(side, side, st.tuples(side, side), st.integers(0, 99))
def test_every_box_lies_inside_the_image(height, width, size, index):
    for transform in (CenterCrop(size), RandomCrop(size, pad_if_needed=True), RandomResizedCrop(size)):
        x, y, w, h = transform.box(height, width, Rng(0, 0, index))
        assert 0 <= x <= width - w
        assert 0 <= y <= height - h
        assert min(w, h) >= 1


@with_cases(
    "transform",
    [
        CenterCrop((17, 31)),
        CenterCrop((50, 31)),
        RandomCrop((17, 31)),
        RandomCrop((60, 31), pad_if_needed=True),
        *(
            RandomResizedCrop((17, 31), interpolation=name)
            for name in (1, "box", "area", "auto", "random", "cubic")
        ),
    ],
    ids=repr,
)
def test_applying_is_choosing_and_cutting(transform):
    x = image(40, 60)
    for index in range(10):
        rng = Rng(1, 0, index)
        box = transform.box(40, 60, rng)
        assert np.array_equal(transform.cut(x, box, rng), transform(x, rng=Rng(1, 0, index)))


def boxes(transform, height, width, n=3000):
    return np.array([transform.box(height, width, Rng(4, 1, index)) for index in range(n)])


def test_random_crop_reaches_every_place_equally():
    x, y, w, h = boxes(RandomCrop((9, 7)), 11, 12).T
    assert (w == 7).all()
    assert (h == 9).all()
    for values, places in ((x, 6), (y, 3)):
        counts = np.bincount(values, minlength=places)
        assert len(counts) == places
        # Five standard deviations.
        assert np.abs(counts - 3000 / places).max() < 5 * math.sqrt(3000 / places)


def test_random_resized_crop_draws_area_and_ratio_as_promised():
    _, _, w, h = boxes(RandomResizedCrop(224, scale=(0.1, 0.3), ratio=(0.5, 2.0)), 2000, 2000).T
    area = w * h / 2000**2
    ratio = np.log(w / h)
    assert 0.099 < area.min() < 0.102
    assert 0.298 < area.max() < 0.301
    assert abs(area.mean() - 0.2) < 5 * 0.2 / math.sqrt(12 * 3000)
    assert abs(ratio.min() + math.log(2)) < 0.02
    assert abs(ratio.max() - math.log(2)) < 0.02
    assert abs(ratio.mean()) < 5 * 2 * math.log(2) / math.sqrt(12 * 3000)
    # Uniform: every quarter of the range has a quarter of the draws.
    for values, low, high in ((area, 0.1, 0.3), (ratio, -math.log(2), math.log(2))):
        counts = np.histogram(values, 4, (low - 0.01, high + 0.01))[0]
        assert np.abs(counts - 750).max() < 5 * math.sqrt(750) + 60


def test_the_place_of_a_resized_crop_is_uniform():
    x, y, w, h = boxes(RandomResizedCrop(10, scale=(0.25, 0.25), ratio=(1.0, 1.0)), 100, 100).T
    assert (w == 50).all()
    assert (h == 50).all()
    for values in (x, y):
        assert values.min() == 0
        assert values.max() == 50
        assert abs(values.mean() - 25) < 5 * 51 / math.sqrt(12 * 3000)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [((4, 5), (0, 125, 500, 125)), ((0.2, 0.25), (203, 0, 94, 375)), ((1, 2), (0, 0, 500, 375))],
    ids=["wide", "narrow", "all"],
)
def test_where_no_try_fits_the_largest_middle_of_an_allowed_shape_is_taken(ratio, expected):
    transform = RandomResizedCrop((100, 50), scale=(1.1, 1.2), ratio=ratio)
    assert (boxes(transform, 375, 500, 50) == expected).all()


GOLDEN = {
    "resized": (RandomResizedCrop(224), [(32, 0, 449, 375), (92, 179, 181, 178), (83, 60, 220, 263)]),
    "plain": (RandomCrop(224), [(180, 30, 224, 224), (27, 79, 224, 224), (68, 28, 224, 224)]),
    "padded": (RandomCrop(300, padding=8), [(133, 10, 300, 300), (13, 40, 300, 300), (46, 9, 300, 300)]),
}


@pytest.mark.parametrize(("transform", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_draws_stay_what_they_were(transform, expected):
    assert [transform.box(375, 500, Rng(7, 2, index)) for index in range(3)] == expected


MODES = ["constant", "edge", "reflect", "symmetric"]


@with_cases("mode", MODES)
@with_cases("fill", [0, 200, (1, 2, 3)], ids=str)
@with_cases("padding", [3, (1, 2), (4, 1, 3, 2), (0, 30, 0, 0), [0, 0, 25, 0], [0, 0, 4, 0]], ids=str)
@with_cases("size", [(8, 9), (14, 15), (8, 17)], ids=str)
def test_padding_is_as_if_the_whole_image_were_padded(size, padding, fill, mode):
    x = image(12, 15)
    transform = RandomCrop(size, padding, fill=fill, padding_mode=mode)
    left, top, right, bottom = {1: 4, 2: 2, 4: 1}[np.size(padding)] * tuple(np.atleast_1d(padding).tolist())
    sides = (top, bottom), (left, right)
    if mode == "constant":
        padded = np.stack(
            [
                np.pad(plane, sides, constant_values=value)
                for plane, value in zip(np.moveaxis(x, 2, 0), np.broadcast_to(fill, 3), strict=True)
            ],
            axis=2,
        )
    else:
        padded = np.pad(x, (*sides, (0, 0)), mode=mode)
    assert np.array_equal(Pad(padding, fill, mode)(x), padded)
    if padded.shape[0] < size[0] or padded.shape[1] < size[1]:
        return
    for index in range(10):
        expected = RandomCrop(size)(padded, rng=Rng(0, 0, index))
        out = np.empty_like(expected)
        assert np.array_equal(transform(x, rng=Rng(0, 0, index)), expected)
        assert np.array_equal(transform.apply(x, Rng(0, 0, index), out), expected)


def test_what_is_missing_is_padded_on_either_side():
    x = image(4, 30)
    made = RandomCrop((6, 8), pad_if_needed=True, fill=9)
    places = {made.box(4, 30, Rng(0, 0, index)) for index in range(400)}
    # The image is in the crop at three heights: 2 rows are missing, and 2 are added both above and below.
    assert {box.sides[0] for box in places if hasattr(box, "sides")} == {0, 1, 2}
    found = made(x, rng=Rng(1))
    assert found.shape == (6, 8, 3)
    assert (found == 9).all(axis=(1, 2)).sum() == 2


def test_a_smaller_image_is_in_the_middle_of_zeros():
    x = image(3, 8)
    expected = np.zeros((6, 5, 3), np.uint8)
    expected[1:4] = x[:, 2:7]
    assert np.array_equal(CenterCrop((6, 5))(x), expected)


def test_crop_resize_cuts_then_resizes():
    x = image(20, 30)
    assert np.array_equal(CropResize(5, 4, 8, 10)(x), x[5:13, 4:14])
    expected = cv2.resize(x[5:13, 4:14], (6, 3), interpolation=cv2.INTER_AREA)
    assert np.array_equal(CropResize(5, 4, 8, 10, (3, 6), "area")(x), expected)
