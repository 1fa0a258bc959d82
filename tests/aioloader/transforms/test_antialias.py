"""Tests of antialiased resizing: against the sums that define it, windows, dtypes, and its exactness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.transforms.antialias import axis_filter, resize_antialiased, source_range
from aioloader.transforms.interpolation import FILTERED, needed_range, resize_image
from tests.cases import with_cases

sides = st.integers(1, 70)
kernels = st.sampled_from(["bilinear", "bicubic"])


def dense(before: int, after: int, kernel: str, whole: bool) -> Any:
    """Return the weights of an axis as one matrix, (after, before)."""
    axis = axis_filter(before, after, 0, after, kernel=kernel, whole=whole)
    matrix = np.zeros((after, before))
    for block in axis.blocks:
        part = slice(axis.start + block.source.start, axis.start + block.source.stop)
        matrix[block.first : block.stop, part] = block.weights
    return matrix


def image(height: int, width: int, channels: int = 3, dtype: Any = np.uint8) -> Any:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels)).astype(dtype)


@given(sides, sides, kernels)
def test_weights_have_the_sum_one_and_their_centre_at_the_pixel(before: int, after: int, kernel: str) -> None:
    whole = dense(before, after, kernel, True)
    assert (whole.sum(1) == 1 << 15).all()
    assert (np.abs(whole).sum(1) * 255 < 1 << 24).all()
    assert np.abs(whole / (1 << 15) - dense(before, after, kernel, False)).max() < 70 / (1 << 15)
    assert np.array_equal(whole, whole[::-1, ::-1]) or np.abs(whole - whole[::-1, ::-1]).max() <= 70


@given(sides, sides, sides, sides, st.sampled_from([1, 3, 5]), kernels)
def test_bytes_are_the_rounded_sums(
    rows: int, columns: int, height: int, width: int, channels: int, kernel: str
) -> None:
    x = image(rows, columns, channels)
    out = np.empty((height, width, channels), np.uint8)
    resize_antialiased(x, (height, width), out, kernel=kernel)

    def filtered(values: Any, before: int, after: int) -> Any:
        if before == after:
            return values
        sums = np.tensordot(dense(before, after, kernel, True), values.astype(np.float64), 1)
        return np.clip(np.floor(sums / (1 << 15) + 0.5), 0, 255)

    across = filtered(x.transpose(1, 0, 2), columns, width).transpose(1, 0, 2)
    assert np.array_equal(out, filtered(across, rows, height))


@given(sides, sides, sides, sides, st.sampled_from(list(FILTERED)), st.data())
def test_a_window_is_a_part_of_the_whole(
    rows: int, columns: int, height: int, width: int, code: int, data: Any
) -> None:
    x = image(rows, columns)
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    h, w = data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    whole = resize_image(x, (height, width), code, antialias=True)
    part = resize_image(x, (height, width), code, antialias=True, window=(top, left, h, w))
    assert np.array_equal(part, whole[top : top + h, left : left + w])
    # Pixels outside of the needed range have no effect.
    low, high = needed_range(left, left + w, width, columns, code, antialias=True)
    changed = x.copy()
    changed[:, :low] ^= 255
    changed[:, high:] ^= 255
    again = resize_image(changed, (height, width), code, antialias=True, window=(top, left, h, w))
    assert columns == width or np.array_equal(again, part)


@with_cases("dtype", [np.uint16, np.int16, np.float32, np.float64])
@with_cases("code", FILTERED)
def test_other_dtypes_have_nearly_the_same_values(dtype: Any, code: int) -> None:
    x = image(50, 61) // 2 + 64  # so that no bicubic value overshoots, which bytes clamp after each axis
    expected = resize_image(x, (20, 70), code, antialias=True).astype(float)
    found = resize_image(x.astype(dtype), (20, 70), code, antialias=True)
    assert found.dtype == dtype
    assert np.abs(np.clip(found.astype(float), 0, 255) - expected).max() <= 2


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
def test_an_even_surface_stays_what_it_is(value: int) -> None:
    x = np.full((37, 90, 3), value, np.uint8)
    for code in FILTERED:
        assert (resize_image(x, (21, 200), code, antialias=True) == value).all()


def test_ranges_of_the_source() -> None:
    assert source_range(100, 50, 0, 50, kernel="bilinear") == (0, 100)
    assert source_range(100, 50, 10, 11, kernel="bilinear") == (19, 23)
    assert source_range(50, 100, 10, 11, kernel="bilinear") == (4, 6)
