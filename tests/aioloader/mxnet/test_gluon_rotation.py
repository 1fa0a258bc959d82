"""Tests of rotation: MXNet's values, extents, zooms, draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.mxnet.gluon_geometry import RandomRotation, Rotate
from aioloader.rng import Rng
from tests.cases import with_cases

RAMP = np.arange(20, dtype=np.float32).reshape(1, 4, 5)

# Result of MXNet 1.9.1's Rotate for RAMP.
EXPECTED = {
    (33.0, False, False): [
        [0.1740, 1.3796, 4.0269, 7.5888, 5.3889],
        [0.5899, 4.1138, 7.6756, 11.2375, 14.7994],
        [4.2006, 7.7625, 11.3244, 14.8862, 18.2465],
        [4.2194, 11.4112, 14.9731, 11.8702, 2.7276],
    ],
    (33.0, True, False): [
        [1.3695, 3.5539, 5.8980, 8.2422, 10.5863],
        [3.6110, 5.9552, 8.2993, 10.6435, 12.9876],
        [6.0124, 8.3565, 10.7007, 13.0448, 15.3890],
        [8.4137, 10.7578, 13.1020, 15.4461, 16.7792],
    ],
    (-33.0, False, True): [
        [0.0, 1.0075, 0.4465, 0.0, 0.0],
        [0.4728, 8.7639, 5.9004, 3.0369, 0.7188],
        [2.6954, 15.9631, 13.0996, 10.2361, 0.2407],
        [0.0, 0.0, 10.7350, 8.1946, 0.0],
    ],
    (200.0, False, False): [
        [7.4645, 13.0428, 16.0347, 13.3849, 6.7609],
        [16.9778, 14.3280, 11.6782, 9.0284, 6.1050],
        [11.9375, 9.9716, 7.3218, 4.6720, 2.0222],
        [4.7832, 5.6151, 2.9653, 1.1776, 0.2575],
    ],
}


@with_cases("options", EXPECTED, ids=str)
def test_values_are_those_of_mxnet(options):
    result = Rotate(*options)(RAMP)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[0], EXPECTED[options], atol=2e-4)


@with_cases(("angle", "place"), [(0, (1, 2)), (90, (0, 1)), (180, (1, 0)), (270, (2, 1)), (360, (1, 2))])
def test_a_quarter_turns_counter_clockwise(angle, place):
    image = np.zeros((1, 3, 3), np.float32)
    image[0, 1, 2] = 1
    expected = np.zeros_like(image)
    expected[0][place] = 1
    np.testing.assert_allclose(Rotate(angle)(image), expected, atol=1e-6)


@given(st.integers(1, 9), st.floats(-400, 400, allow_nan=False))
def test_turning_there_and_back_keeps_the_middle_of_a_smooth_image(side, angle):
    rows, columns = np.mgrid[: 2 * side + 9, : 2 * side + 9].astype(np.float32)
    image = (rows + 3 * columns)[None]
    back = Rotate(-angle)(Rotate(angle)(image))
    middle = side + 4
    np.testing.assert_allclose(back[0, middle, middle], image[0, middle, middle], atol=1e-2)


@with_cases("angle", [-70.0, 12.0, 45.0, 130.0])
@with_cases("shape", [(40, 40), (30, 60), (60, 30)])
def test_zooms_hide_or_show_all(angle, shape):
    ones = np.ones((2, *shape), np.float32)
    # Bilinear neighbours beyond the edge are zero, so the outermost pixels may be darker.
    assert Rotate(angle, zoom_in=True)(ones)[:, 2:-2, 2:-2].min() == 1
    plain, zoomed = Rotate(angle)(ones), Rotate(angle, zoom_out=True)(ones)
    assert zoomed.sum() < plain.sum() < ones.sum()
    border = np.concatenate([zoomed[:, [0, -1]].ravel(), zoomed[:, :, [0, -1]].ravel()])
    assert np.count_nonzero(border > 0.99) <= 16


def test_many_images_are_turned_each_by_its_own_angle():
    images = np.random.default_rng(1).random((3, 2, 8, 9), dtype=np.float32)
    fixed = Rotate(21.0)(images)
    assert all(np.array_equal(one, Rotate(21.0)(image)) for one, image in zip(fixed, images, strict=True))
    draws = Rng(3)
    draws.random()
    angles = [draws.uniform(-30, 30) for _ in images]
    drawn = RandomRotation((-30, 30))(images, rng=Rng(3))
    assert all(
        np.array_equal(one, Rotate(angle)(image))
        for one, angle, image in zip(drawn, angles, images, strict=True)
    )


def test_the_probability_counts():
    draws = Rng(5)
    turned = sum(
        RandomRotation((10, 20), rotate_with_proba=0.3)(RAMP, rng=draws) is not RAMP for _ in range(400)
    )
    assert 80 < turned < 160
    assert RandomRotation((10, 20), rotate_with_proba=0.0)(RAMP) is RAMP


def test_an_empty_image_stays_empty():
    assert Rotate(30)(np.zeros((3, 0, 4), np.float32)).shape == (3, 0, 4)


@with_cases("make", [lambda: Rotate(10.0), lambda: RandomRotation((-10.0, 10.0))])
def test_other_images_are_refused(make):
    with pytest.raises(TypeError, match="only supports float32"):
        make()(np.ones((3, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="channels, height, width"):
        make()(np.ones((4, 4), np.float32))


@with_cases(
    ("make", "text"),
    [
        (lambda: Rotate(1, True, True), "cannot be both True"),
        (lambda: RandomRotation(3), "`angle_limits` must be an ordered tuple"),
        (lambda: RandomRotation((3, 3)), "`angle_limits` must be an ordered tuple"),
        (lambda: RandomRotation((3, 1)), "`angle_limits` must be an ordered tuple"),
        (lambda: RandomRotation((1, 3), rotate_with_proba=1.1), "should be between 0 and 1"),
        (lambda: RandomRotation((1, 3), rotate_with_proba=-0.3), "should be between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()
