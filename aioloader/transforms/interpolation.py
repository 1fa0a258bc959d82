"""Interpolation by MXNet's number or by name, and resizing with it. The numbers 0 to 4 are those of OpenCV."""

from __future__ import annotations

import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.area import averages_in_floats, shrink_by_area
from aioloader.transforms.base import drop_grey_axis, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = ("AREA", "AUTO", "RANDOM", "interpolation_code", "resize_image", "settle")

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


def resize_image(x: Array, size: tuple[int, int], code: int, out: Array | None = None) -> Array:
    """Resize to exactly `size`.

    Args:
        x: (height, width, channels), may be a view; uint8, uint16, int16, float32 or float64.
        size: (width, height).
        code: 0 to 4, or AUTO: bicubic if both sides grow, area if both shrink, else bilinear.
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
    if code == AUTO:
        if height > rows and width > columns:
            code = CUBIC
        elif height < rows and width < columns:
            code = AREA
        else:
            code = LINEAR
    import cv2

    result = result_array(x, (height, width, channels), x.dtype, out)
    if code == AREA and averages_in_floats(x, size):
        shrink_by_area(x, size, result)
        return result
    cv2.resize(drop_grey_axis(x), size, dst=drop_grey_axis(result), interpolation=code)
    return result
