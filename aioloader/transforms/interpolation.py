"""Interpolation by MXNet's number or by name, and resizing with it. The numbers 0 to 4 are those of OpenCV."""

from __future__ import annotations

import operator
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import drop_grey_axis, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

NEAREST, LINEAR, CUBIC, AREA, LANCZOS, AUTO, RANDOM = 0, 1, 2, 3, 4, 9, 10

_NAMES = {
    "nearest": NEAREST,
    "linear": LINEAR,
    "bilinear": LINEAR,
    "cubic": CUBIC,
    "bicubic": CUBIC,
    "area": AREA,
    "lanczos": LANCZOS,
    "auto": AUTO,
    "random": RANDOM,
}
_DTYPES = frozenset(map(np.dtype, (np.uint8, np.uint16, np.int16, np.float32, np.float64)))

# Limit of `shrink_by_area`: the floats of larger images would not stay in the processor's caches, and much memory would
# be kept.
_MOST_VALUES = 1 << 21
_local = threading.local()


def interpolation_code(value: Any, name: str) -> int:
    """Return MXNet's number of an interpolation.

    Args:
        value: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 auto, 10 random, or one of the names "nearest",
            "linear", "bilinear", "cubic", "bicubic", "area", "lanczos", "auto", "random".
        name: the transform's name, for the error.

    Raises:
        ValueError: anything else.
    """
    code: Any = None
    if isinstance(value, str):
        code = _NAMES.get(value)
    elif not isinstance(value, bool):
        with suppress(TypeError):
            code = operator.index(value)
    if code not in _NAMES.values():
        raise ValueError(
            f"{name}: interpolation must be 0, 1, 2, 3, 4, 9, 10 or one of {', '.join(_NAMES)}, got {value!r}"
        )
    return int(code)


def settle(code: int, rng: Rng) -> int:
    """Replace RANDOM by one of 0 to 4; one draw for RANDOM, none for the others."""
    return rng.integers(5) if code == RANDOM else code


def settle_auto(code: int, size: tuple[int, int], before: tuple[int, int]) -> int:
    """Replace AUTO by bicubic if both sides grow, area if both shrink, else bilinear; return other codes unchanged.

    Args:
        code: the interpolation.
        size, before: (width, height) of the result and of the image.
    """
    if code != AUTO:
        return code
    if size[0] > before[0] and size[1] > before[1]:
        return CUBIC
    return AREA if size[0] < before[0] and size[1] < before[1] else LINEAR


def resize_image(x: Array, size: tuple[int, int], code: int, out: Array | None = None) -> Array:
    """Resize to exactly `size`.

    Args:
        x: (height, width, channels), may be a view; uint8, uint16, int16, float32 or float64.
        size: (width, height).
        code: 0 to 4, or AUTO (see `settle_auto`).
        out: as for `Transform.apply`.

    Returns:
        `x` itself if it has that size already.

    Raises:
        TypeError: another dtype.
    """
    width, height = size
    rows, columns, channels = x.shape
    if rows == height and columns == width:
        return x
    if rows == 0 or columns == 0:
        raise ValueError(f"an image of shape {x.shape} has no pixels to resize")
    if x.dtype not in _DTYPES:
        raise TypeError(f"cannot resize an image of dtype {x.dtype}; use Cast('float32') first")
    code = settle_auto(code, size, (columns, rows))
    import cv2

    result = result_array(x, (height, width, channels), x.dtype, out)
    if code == AREA and averages_in_floats(x, size):
        shrink_by_area(x, size, result)
        return result
    cv2.resize(drop_grey_axis(x), size, dst=drop_grey_axis(result), interpolation=code)
    return result


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
    """Shrink an image for which `averages_in_floats` is True by area averages, in single precision throughout.

    The result is bit for bit that of OpenCV for bytes with INTER_AREA. OpenCV sums bytes in single precision too, but
    its loop over bytes is slower than its loop over floats by more than the two conversions cost (by a quarter to a
    third). If both sides shrink by whole numbers, it sums integers instead; that case is left to OpenCV, as is the
    other interpolation that it uses under this name if a side grows.

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
