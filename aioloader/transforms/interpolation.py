"""Interpolation by name, or by the numbers of Pillow or MXNet, and resizing with it."""

from __future__ import annotations

import enum
import operator
import threading
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.antialias import Window, resize_antialiased, source_range
from aioloader.transforms.base import drop_grey_axis, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

NEAREST, LINEAR, CUBIC, AREA, LANCZOS, NEAREST_EXACT, AUTO, RANDOM = 0, 1, 2, 3, 4, 6, 9, 10
BOX, HAMMING = 11, 12

CODES = {
    "nearest": NEAREST,
    "nearest-exact": NEAREST_EXACT,
    "bilinear": LINEAR,
    "bicubic": CUBIC,
    "lanczos": LANCZOS,
    "box": BOX,
    "hamming": HAMMING,
    "area": AREA,
    "auto": AUTO,
    "random": RANDOM,
}
"""Number of each interpolation in this package: OpenCV's, MXNet's for "auto" and "random"."""

_SYNONYMS = {"linear": "bilinear", "cubic": "bicubic"}
_NAMES = (*CODES, *_SYNONYMS)
# Pillow takes the nearest pixel by its centre.
_OF_NUMBER = {0: "nearest-exact", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_OF_MEMBER = {word.upper(): word for word in _OF_NUMBER.values()} | {"NEAREST": "nearest-exact"}
_OF_OPENCV = {code: word for word, code in CODES.items() if code not in (BOX, HAMMING)}
# Those that antialias, and the kernel.
FILTERED = {LINEAR: "bilinear", CUBIC: "bicubic", LANCZOS: "lanczos", BOX: "box", HAMMING: "hamming"}
# Source pixels around the place of a resized one that OpenCV's interpolations read (Lanczos: 4), and two for rounding.
_REACH = 6
_DTYPES = frozenset(map(np.dtype, (np.uint8, np.uint16, np.int16, np.float32, np.float64)))

# Limit of `shrink_by_area`: the floats of larger images would not stay in the processor's caches, and much memory would
# be kept.
_MOST_VALUES = 1 << 21
_local = threading.local()


def interpolation_name(value: Any, name: str, *, antialias: bool | None = True) -> str:
    """Return the name of an interpolation.

    Args:
        value: one of the names "nearest", "nearest-exact", "bilinear" (also "linear"), "bicubic" (also "cubic"),
            "lanczos", "box", "hamming", "area", "auto", "random"; a member of torchvision's `InterpolationMode` or of
            Pillow's `Resampling`; or a number of Pillow's: 0 nearest (of these names "nearest-exact"), 1 Lanczos,
            2 bilinear, 3 bicubic, 4 box, 5 Hamming. With antialiasing "box", "hamming" and "lanczos" are computed as
            Pillow does.
        name: the transform's name, for the error.
        antialias: that argument of the transform.

    Raises:
        ValueError: anything else, or an interpolation that exists with antialiasing only.
    """
    found: Any = value
    if isinstance(value, enum.Enum):
        found = value.value if isinstance(value.value, str) else _OF_MEMBER.get(value.name)
    elif not isinstance(value, (str, bool)):
        with suppress(TypeError):
            found = _OF_NUMBER.get(operator.index(value))
    if not isinstance(found, str) or found not in _NAMES:
        numbers = ", ".join(f"{number} {word}" for number, word in _OF_NUMBER.items())
        raise ValueError(
            f"{name}: interpolation must be one of {', '.join(_NAMES)}, or a number of Pillow's ({numbers}), got "
            f"{value!r}; for a number of OpenCV or MXNet write the name"
        )
    if found in ("box", "hamming") and not antialias:
        raise ValueError(
            f"{name}: interpolation {found!r} needs antialias=True, got antialias={antialias!r}; "
            "write 'area' for OpenCV's average over a box"
        )
    return _SYNONYMS.get(found, found)


def interpolation_name_of_mxnet(value: Any, name: str) -> str:
    """Return the name of an interpolation given by MXNet's number or by name.

    Args:
        value: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 6 "nearest-exact", 9 auto, 10 random; or as for
            `interpolation_name`.
        name: the transform's name, for the error.

    Raises:
        ValueError: anything else.
    """
    if not isinstance(value, (str, bool, enum.Enum)):
        with suppress(TypeError, KeyError):
            return _OF_OPENCV[operator.index(value)]
        raise ValueError(
            f"{name}: interpolation must be one of {', '.join(map(str, _OF_OPENCV))} or a name, got {value!r}"
        )
    return interpolation_name(value, name, antialias=None)


def settle(code: int, rng: Rng) -> int:
    """Replace RANDOM by one of 0 to 4; one draw for RANDOM, none for the others."""
    return rng.integers(5) if code == RANDOM else code


def settle_auto(code: int, size: tuple[int, int], before: tuple[int, int]) -> int:
    """Replace AUTO by bicubic if both sides grow, area if both shrink, else bilinear; return other codes unchanged.

    Args:
        code: the interpolation.
        size, before: (height, width) of the result and of the image.
    """
    if code != AUTO:
        return code
    if size[0] > before[0] and size[1] > before[1]:
        return CUBIC
    return AREA if size[0] < before[0] and size[1] < before[1] else LINEAR


def resize_image(
    x: Array,
    size: tuple[int, int],
    code: int,
    out: Array | None = None,
    *,
    antialias: bool | None = None,
    window: Window | None = None,
) -> Array:
    """Resize to exactly `size`.

    Args:
        x: (height, width, channels), may be a view; uint8, uint16, int16, float32 or float64; of any dtype for nearest
            pixels with `antialias` True or False.
        size: (height, width).
        code: one of `CODES`, except RANDOM; AUTO: see `settle_auto`. BOX and HAMMING need `antialias`.
        out: as for `Transform.apply`.
        antialias: the filters of `FILTERED` grow where the image shrinks, see `aioloader.transforms.antialias`.
            None: every interpolation is OpenCV's; otherwise nearest pixels are those that torchvision takes.
        window: (top, left, height, width) of the part of the result that is returned; None for all of it.

    Returns:
        `x` itself, or a view of it, if it has that size already.

    Raises:
        TypeError: another dtype.
    """
    height, width = size
    rows, columns, channels = x.shape
    if rows == height and columns == width:
        return x if window is None else cut_window(x, window)
    if rows == 0 or columns == 0:
        raise ValueError(f"an image of shape {x.shape} has no pixels to resize")
    code = settle_auto(code, size, (rows, columns))
    if antialias is not None and code in (NEAREST, NEAREST_EXACT):
        top, left, window_height, window_width = window or (0, 0, height, width)
        shift = 0.5 if code == NEAREST_EXACT else 0.0
        result = result_array(x, (window_height, window_width, channels), x.dtype, out)
        down = nearest_places(rows, height, shift)[top : top + window_height]
        across = nearest_places(columns, width, shift)[left : left + window_width]
        result[...] = x[down[:, None], across]
        return result
    if x.dtype not in _DTYPES:
        raise TypeError(f"cannot resize an image of dtype {x.dtype}; use Cast('float32') first")
    if antialias and code in FILTERED:
        shape = size if window is None else window[2:]
        result = result_array(x, (*shape, channels), x.dtype, out)
        resize_antialiased(x, size, result, kernel=FILTERED[code], window=window)
        return result
    if window is not None:
        # All of it: OpenCV cannot resize a part with the weights that it has in the whole.
        return cut_window(resize_image(x, size, code), window)
    import cv2

    result = result_array(x, (height, width, channels), x.dtype, out)
    if code == AREA and averages_in_floats(x, size):
        shrink_by_area(x, size, result)
        return result
    cv2.resize(drop_grey_axis(x), (width, height), dst=drop_grey_axis(result), interpolation=code)
    return result


@lru_cache(maxsize=512)
def nearest_places(before: int, after: int, shift: float) -> Array:
    """Return the source pixel of every pixel of the result along an axis, intp (after,).

    The product is in single precision, as in torch: it decides which of two equally near pixels is taken.

    Args:
        before, after: extents of the source and of the result, pixels.
        shift: place within a pixel that is compared: 0 its start, 0.5 its centre.
    """
    places = (np.arange(after, dtype=np.float32) + np.float32(shift)) * np.float32(before / after)
    return np.minimum(places.astype(np.intp), before - 1)


def cut_window(x: Array, window: Window) -> Array:
    """Return a view of a part of an image, (top, left, height, width)."""
    top, left, height, width = window
    return x[top : top + height, left : left + width]


def needed_range(
    start: int, stop: int, after: int, before: int, code: int, *, antialias: bool | None, shrink: int = 1
) -> tuple[int, int]:
    """Return the range of pixels along an axis that is enough to make a part of the resized ones.

    Args:
        start, stop: the part of the resized pixels.
        after, before: extent of the axis after resizing and before, pixels.
        code, antialias: see `resize_image`.
        shrink: the image is decoded at that part of its size first; the result is in pixels of its full size.
    """
    if antialias and code in FILTERED:
        decoded = -(-before // shrink)
        low, high = source_range(decoded, after, start, stop, kernel=FILTERED[code])
        return max(0, (low - 1) * shrink), min(before, (high + 1) * shrink)
    reach = _REACH * shrink
    return max(0, start * before // after - reach), min(before, -(-stop * before // after) + reach)


def averages_in_floats(x: Array, size: tuple[int, int]) -> bool:
    """Return True if `shrink_by_area` is equal to INTER_AREA for this image and size.

    Args:
        x: (height, width, channels).
        size: (height, width) of the result.
    """
    height, width = size
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
        size: (height, width) of the result.
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
    cv2.resize(drop_grey_axis(floats), size[::-1], dst=target, interpolation=cv2.INTER_AREA)
    result: Any = cv2.convertScaleAbs(target, dst=place)  # rounds as OpenCV does everywhere: half to even
    if result is not place:
        place[...] = result
