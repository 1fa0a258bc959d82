"""Patches of an image for a vision transformer, in the order that Qwen2-VL's models read them. Pure functions.

An image of (height, width) pixels is a grid of square patches. The model merges squares of merge x merge neighbouring
patches into one token, so the patches of one token follow each other: the order is (rows of tokens, tokens of the row,
rows of the token, patches of that row). The values of one patch are (channels, temporal, patch, patch), flat; a still
image is repeated `temporal` times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array

# Rows of tokens are converted together as long as their planes fit in this many bytes, about half of an L2 cache.
_BAND_BYTES = 256 << 10


def patch_grid(height: int, width: int, patch: int = 14, merge: int = 2) -> tuple[int, int]:
    """Return how many patches an image has, as (rows, columns); the model makes rows * columns / merge**2 tokens.

    Args:
        height, width: extents of the image in pixels.
        patch: side of a patch in pixels.
        merge: side of a token in patches.

    Raises:
        ValueError: an argument is below 1, or an extent is not a multiple of patch * merge.
    """
    if patch < 1 or merge < 1:
        raise ValueError(f"patch and merge must be at least 1, got {patch} and {merge}")
    side = patch * merge
    if height < 1 or width < 1 or height % side or width % side:
        raise ValueError(
            f"an image of {height} x {width} (height x width) cannot be cut into squares of {merge} x {merge} "
            f"patches of {patch} pixels; resize it to multiples of {side} first"
        )
    return height // patch, width // patch


def write_patches(
    image: Array,
    out: Array,
    patch: int = 14,
    merge: int = 2,
    temporal: int = 2,
    *,
    convert: Callable[[Array, Array], None] | None = None,
) -> None:
    """Write the patches of an image into an array, one patch per row.

    The image is read once, a few rows of tokens at a time; no copy of it is made.

    Args:
        image: (height, width, channels), any dtype and strides; for an image (channels, height, width) pass
            ``image.transpose(1, 2, 0)``. It shares no memory with `out`.
        out: (n, channels * temporal * patch * patch) with n = rows * columns of `patch_grid`, C-contiguous, writable;
            values are converted to its dtype by assignment.
        patch: side of a patch in pixels.
        merge: side of a token in patches.
        temporal: how often each image is repeated.
        convert: called with some rows of the image, (rows, width, channels), and their planes, (channels, rows, width),
            of `out`'s dtype, each of them C-contiguous: writes the values of the patches to the planes; None to write
            the image's values.

    Raises:
        ValueError: a shape does not fit, or an extent of the image is not a multiple of patch * merge.
    """
    if image.ndim != 3:
        raise ValueError(f"image must be (height, width, channels), got shape {image.shape}")
    if temporal < 1:
        raise ValueError(f"temporal must be at least 1, got {temporal}")
    height, width, channels = image.shape
    rows, columns = patch_grid(height, width, patch, merge)
    shape = (rows * columns, channels * temporal * patch * patch)
    if out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(
            f"out must be a C-contiguous writable array {shape} for an image {image.shape}, got {out.shape}"
        )
    side = patch * merge
    # Each row of a patch is one element of this dtype: NumPy copies it at once, not value by value.
    line = np.dtype((np.void, patch * out.dtype.itemsize))
    token_rows, token_columns = rows // merge, columns // merge
    target = out.view(line).reshape(token_rows, token_columns, merge, merge, channels, temporal, patch)
    together = max(1, min(token_rows, _BAND_BYTES // (side * width * channels * out.dtype.itemsize)))
    planes = np.empty((channels, together * side, width), out.dtype)
    for first in range(0, token_rows, together):
        count = min(together, token_rows - first)
        band = image[first * side : (first + count) * side]
        part = planes[:, : count * side]
        if convert is None:
            part[...] = band.transpose(2, 0, 1)
        else:
            convert(band, part)
        lines = part.view(line).reshape(channels, count, merge, patch, token_columns, merge)
        # (channels, token row, row in it, line, token column, column in it) to the order of the target.
        target[first : first + count] = lines.transpose(1, 4, 2, 5, 0, 3)[:, :, :, :, :, None]
