"""Patches of images in the order of Qwen2-VL: sizes and places. Pure.

Source of the order: the image processor of Qwen2-VL as published (the reshaping of `_preprocess`). An image is cut into
squares of `patch` pixels. Squares that the model merges (`merge` x `merge`) are behind one another; the blocks of merged
squares follow from left to right and from top to bottom. A patch has its values in the order channel, time, row, column,
and an image is repeated in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioloader.foundation.types import Array


def patch_grid(height: int, width: int, patch: int, merge: int) -> tuple[int, int]:
    """Return the number of patches of an image from top to bottom, and from left to right.

    Args:
        height, width: extents in pixels.
        patch: side of a patch in pixels.
        merge: patches that are merged to one, in each direction.

    Raises:
        ValueError: an extent is not a multiple of patch x merge, or is 0.
    """
    side = patch * merge
    if height < side or width < side or height % side or width % side:
        raise ValueError(
            f"an image of {height} x {width} pixels cannot be cut into patches: resize or pad its sides to multiples of "
            f"{side} (patch={patch} times merge={merge})"
        )
    return height // patch, width // patch


def write_patches(planes: Array, out: Array, *, patch: int, merge: int, temporal: int) -> None:
    """Write the patches of an image.

    Args:
        planes: (channels, height, width), any dtype and strides.
        out: (patches, channels x temporal x patch x patch), C-contiguous, of a dtype that `planes` can be cast to.
        patch, merge: see `patch_grid`.
        temporal: how often the image is repeated in time.

    Raises:
        ValueError: the extents do not fit; see `patch_grid`.
    """
    channels, height, width = planes.shape
    rows, columns = patch_grid(height, width, patch, merge)
    source = planes.reshape(channels, rows // merge, merge, patch, columns // merge, merge, patch)
    # channel, block row, row in it, y, block column, column in it, x -> the order of `out`
    source = source.transpose(1, 4, 2, 5, 0, 3, 6)
    target: Any = out.reshape(rows // merge, columns // merge, merge, merge, channels, temporal, patch, patch)
    for time in range(temporal):
        target[:, :, :, :, :, time] = source
