"""Shrinking by area averages, in single precision all the way.

Rule: bit for bit what OpenCV makes of bytes with INTER_AREA. It sums bytes in single precision too, but its loop over
bytes is slower than its loop over floats by more than the two conversions cost (by a quarter to a third). Where both
sides shrink by whole numbers it sums integers instead; that way is left to it, as is every other interpolation that
goes by this name where a side grows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

__all__ = ("averages_in_floats", "shrink_by_area")

# Of larger pictures the floats would not stay in the processor's caches, and much memory would be kept.
_MOST_VALUES = 1 << 21
_local = threading.local()


def averages_in_floats(x: Array, size: tuple[int, int]) -> bool:
    """Whether `shrink_by_area` does for this image and size what INTER_AREA does.

    Args:
        x: (height, width, channels).
        size: (width, height) of the result.
    """
    width, height = size
    rows, columns, _ = x.shape
    if x.dtype != np.uint8 or rows < height or columns < width or x.size > _MOST_VALUES:
        return False
    return bool(rows % height or columns % width)


def shrink_by_area(x: Array, size: tuple[int, int], out: Array) -> None:
    """Shrink an image for which `averages_in_floats` holds.

    Args:
        x: uint8 (height, width, channels), a view will do.
        size: (width, height) of the result.
        out: uint8 (height, width, channels), where it is put.
    """
    import cv2

    memory: Array | None = getattr(_local, "memory", None)
    values = x.size + out.size
    if memory is None or memory.size < values:
        memory = _local.memory = np.empty(values, np.float32)
    floats = memory[: x.size].reshape(x.shape)
    means = memory[x.size : values].reshape(out.shape)
    np.copyto(floats, x)
    source, target, place = (
        (floats[:, :, 0], means[:, :, 0], out[:, :, 0]) if x.shape[2] == 1 else (floats, means, out)
    )
    cv2.resize(source, size, dst=target, interpolation=cv2.INTER_AREA)
    result: Any = cv2.convertScaleAbs(target, dst=place)  # rounds as OpenCV does everywhere: half to even
    if result is not place:
        place[...] = result
