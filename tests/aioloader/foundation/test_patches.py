"""Tests of `aioloader.foundation.patches` against a plain reshape and transpose of the whole image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation import patches
from aioloader.foundation.patches import patch_grid, write_patches
from tests.cases import with_cases


def plain_patches(image: np.ndarray[Any, Any], patch: int, merge: int, temporal: int) -> np.ndarray[Any, Any]:
    """Return the patches of an image (height, width, channels) in Qwen2-VL's order."""
    height, width, channels = image.shape
    rows, columns = height // patch, width // patch
    frames = np.tile(image.transpose(2, 0, 1)[None], (temporal, 1, 1, 1))
    blocks = frames.reshape(
        1, temporal, channels, rows // merge, merge, patch, columns // merge, merge, patch
    ).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return blocks.reshape(rows * columns, channels * temporal * patch * patch)


sides = st.integers(1, 5)


@given(
    tokens=st.tuples(sides, sides),
    patch=sides,
    merge=st.integers(1, 3),
    temporal=st.integers(1, 3),
    channels=st.integers(1, 4),
    planar=st.booleans(),
    dtypes=st.sampled_from([("u1", "u1"), ("u1", "f4"), ("f4", "f4"), ("f8", "f2")]),
    band=st.sampled_from([0, 500, 1 << 20]),
    seed=st.integers(0, 2**32 - 1),
)
def test_patches_are_those_of_a_plain_transpose(
    tokens: tuple[int, int],
    patch: int,
    merge: int,
    temporal: int,
    channels: int,
    planar: bool,
    dtypes: tuple[str, str],
    band: int,
    seed: int,
) -> None:
    side = patch * merge
    height, width = tokens[0] * side, tokens[1] * side
    values = np.random.default_rng(seed).integers(0, 256, (channels, height, width)).astype(dtypes[0])
    image = values.transpose(1, 2, 0)
    if not planar:
        image = np.ascontiguousarray(image)
    rows, columns = patch_grid(height, width, patch, merge)
    out = np.empty((rows * columns, channels * temporal * patch * patch), dtypes[1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patches, "_BAND_BYTES", band)
        write_patches(image, out, patch, merge, temporal)
    np.testing.assert_array_equal(out, plain_patches(image, patch, merge, temporal).astype(dtypes[1]))


@given(
    tokens=st.tuples(sides, sides),
    channels=st.integers(1, 4),
    dtype=st.sampled_from(["f4", "f8", "u1"]),
    band=st.sampled_from([0, 1 << 20]),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_are_converted_band_by_band(
    tokens: tuple[int, int], channels: int, dtype: str, band: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (tokens[0] * 6, tokens[1] * 6, channels), np.uint8)
    table = (rng.random((channels, 256)) * 200).astype(dtype)
    mapped = np.stack([table[channel][image[:, :, channel]] for channel in range(channels)], axis=2)
    out = np.empty((tokens[0] * tokens[1] * 4, channels * 2 * 9), dtype)

    def convert(rows: np.ndarray[Any, Any], planes: np.ndarray[Any, Any]) -> None:
        assert planes.shape == (channels, *rows.shape[:2])
        for channel, plane in enumerate(planes):
            assert plane.flags.c_contiguous
            plane[...] = table[channel][rows[:, :, channel]]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patches, "_BAND_BYTES", band)
        write_patches(image, out, 3, 2, 2, convert=convert)
    np.testing.assert_array_equal(out, plain_patches(mapped, 3, 2, 2))


def test_patches_are_written_into_rows_of_a_larger_array() -> None:
    image = np.arange(28 * 56 * 3, dtype=np.uint32).reshape(28, 56, 3).astype(np.uint8)
    rows = np.full((12, 1176), 7, np.float32)
    write_patches(image, rows[2:10])
    np.testing.assert_array_equal(rows[2:10], plain_patches(image, 14, 2, 2))
    assert (rows[:2] == 7).all()
    assert (rows[10:] == 7).all()


@with_cases(
    ("height", "width", "patch", "merge"),
    [(27, 28, 14, 2), (28, 14, 14, 2), (0, 28, 14, 2), (28, -28, 14, 2), (28, 28, 0, 2), (28, 28, 14, 0)],
)
def test_extents_that_cannot_be_cut_are_refused(height: int, width: int, patch: int, merge: int) -> None:
    with pytest.raises(ValueError, match=r"multiples of|at least 1"):
        patch_grid(height, width, patch, merge)


IMAGE = np.zeros((28, 28, 3), np.uint8)
OUT = np.empty((4, 1176), np.float32)
READ_ONLY = OUT.copy()
READ_ONLY.flags.writeable = False


@with_cases(
    ("image", "out", "words"),
    [
        (IMAGE[:, :, 0], OUT, "height, width, channels"),
        (IMAGE, OUT[:3], "out must be"),
        (IMAGE, OUT.T, "out must be"),
        (IMAGE, np.empty((8, 1176), np.float32)[::2], "out must be"),
        (IMAGE, READ_ONLY, "writable"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    image: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
    words: str,
) -> None:
    with pytest.raises(ValueError, match=words):
        write_patches(image, out)


def test_a_still_image_is_repeated_at_least_once() -> None:
    with pytest.raises(ValueError, match="temporal"):
        write_patches(IMAGE, OUT, temporal=0)
