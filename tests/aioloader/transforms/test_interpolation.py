"""Tests of shrinking by area averages in floats: bit-identical to INTER_AREA."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.transforms.interpolation import AREA, averages_in_floats, resize_image, shrink_by_area

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
