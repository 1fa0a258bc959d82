"""Shrinking by area averages, in single precision throughout.

Rule: the result is bit for bit that of OpenCV for bytes with INTER_AREA. OpenCV sums bytes in single precision too, but
its loop over bytes is slower than its loop over floats by more than the two conversions cost (by a quarter to a third).
If both sides shrink by whole numbers, it sums integers instead; that case is left to OpenCV, as is the other
interpolation that it uses under this name if a side grows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import drop_grey_axis

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

__all__ = ("averages_in_floats", "shrink_by_area")

# The floats of larger images would not stay in the processor's caches, and much memory would be kept.
_MOST_VALUES = 1 << 21
_local = threading.local()


def averages_in_floats(x: Array, size: tuple[int, int]) -> bool:
    """Return True if `shrink_by_area` is equal to INTER_AREA for this image and size.

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
        x: uint8 (height, width, channels), may be a view.
        size: (width, height) of the result.
        out: uint8 (height, width, channels), array for the result.
    """
    import cv2

    memory: Array | None = getattr(_local, "memory", None)
    values = x.size + out.size
    if memory is None or memory.size < values:
        memory = _local.memory = np.empty(values, np.float32)
    floats = memory[: x.size].reshape(x.shape)
    means = memory[x.size : values].reshape(out.shape)
    np.copyto(floats, x)
    target, place = drop_grey_axis(means), drop_grey_axis(out)
    cv2.resize(drop_grey_axis(floats), size, dst=target, interpolation=cv2.INTER_AREA)
    result: Any = cv2.convertScaleAbs(target, dst=place)  # rounds as OpenCV does everywhere: half to even
    if result is not place:
        place[...] = result
