"""Tests of rotation, affine and perspective transforms and of erasing that need no other library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioloader.rng import Rng
from aioloader.transforms import RandomAffine, RandomErasing, RandomPerspective, RandomRotation, functional
from aioloader.transforms.projective import perspective_matrix
from tests.cases import with_cases


def image(height: int = 20, width: int = 30, dtype: Any = np.uint8, channels: int = 3) -> Any:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels)).astype(dtype)


@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
@with_cases("channels", [1, 3, 6])
def test_nothing_and_whole_pixels_change_no_value(channels: int, dtype: Any, interpolation: str) -> None:
    x = image(dtype=dtype, channels=channels)
    same = functional.affine(x, 0, (0, 0), 1, (0, 0), interpolation)
    assert same.dtype == dtype
    assert np.allclose(same, x, atol=1e-3)
    moved = functional.affine(x, 0, (3, -2), 1, (0, 0), interpolation, fill=7)
    assert np.allclose(moved[:-2, 3:], x[2:, :-3], atol=1e-3)
    assert (moved[-2:] == 7).all()
    assert (moved[:, :3] == 7).all()


@with_cases("quarters", range(-4, 5))
def test_quarters_of_a_circle_are_exact(quarters: int) -> None:
    assert np.array_equal(functional.rotate(image(), 90 * quarters, expand=True), np.rot90(image(), quarters))


def test_a_rotated_image_is_shown_whole() -> None:
    x = np.full((20, 30, 1), 200, np.uint8)
    made = functional.rotate(x, 30, "bilinear", True)
    assert made.shape == (34, 36, 1)
    assert abs(made.sum() / 200 - 600) < 30


def test_the_corners_of_a_perspective_are_where_they_were_sent() -> None:
    start, end = [(0, 0), (29, 0), (29, 19), (0, 19)], [(3, 2), (25, 1), (28, 18), (1, 15)]
    matrix = perspective_matrix(start, end)
    for (x, y), place in zip(end, start, strict=True):
        found = matrix @ (x, y, 1)
        assert np.allclose(found[:2] / found[2], place)
    with pytest.raises(ValueError, match="no perspective map"):
        functional.perspective(image(), start, [(0, 0)] * 4)
    with pytest.raises(ValueError, match="four points"):
        functional.perspective(image(), start[:3], end)


@with_cases("shape", [(1, 1), (1, 9), (9, 1), (2, 2)])
@with_cases(
    "transform",
    [RandomRotation(50, "bilinear"), RandomAffine(50, (1, 1), (0.1, 9), 60), RandomPerspective(1.0, 1.0)],
)
def test_tiny_images(transform: Any, shape: tuple[int, int]) -> None:
    for index in range(30):
        assert transform(image(*shape), rng=Rng(0, 0, index)).shape == (*shape, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("first", [False, True], ids=["channels-last", "channels-first"])
def test_a_rectangle_is_erased_in_either_order_of_axes(first: bool, dtype: Any) -> None:
    x = image(dtype=dtype)
    erasing = RandomErasing(1.0, value=(300, 1.6, -5))
    rng = Rng(3)
    rng.random()
    found = erasing.rectangle(20, 30, rng)
    assert found is not None
    top, left, height, width = found
    expected = x.copy()
    expected[top : top + height, left : left + width] = (
        (255, 2, 0) if dtype == np.uint8 else np.array((300, 1.6, -5), np.float32)
    )
    turned = np.ascontiguousarray(x.transpose(2, 0, 1)) if first else x
    made = erasing(turned, rng=Rng(3))
    assert np.array_equal(made.transpose(1, 2, 0) if first else made, expected)
    assert erasing.apply(turned, Rng(3), turned) is turned


def test_noise_is_normal_for_floats() -> None:
    x = np.full((3, 200, 200), 9, np.float32)
    made = RandomErasing(1.0, (0.3, 0.4), (1, 1), "random")(x, rng=Rng(1))
    values = made[made != 9]
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert np.array_equal(made, RandomErasing(1.0, (0.3, 0.4), (1, 1), "random")(x, rng=Rng(1)))
