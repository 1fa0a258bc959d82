"""Rectangles of an image: fixed, centred, random. Draws are from Python's `random`, x before y, as in MXNet."""

from __future__ import annotations

import math
import numbers
import random
from typing import TYPE_CHECKING, Any, TypeAlias

from aioloader.mxnet.image._arrays import as_image, own
from aioloader.mxnet.image.resize import resized, scale_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.mxnet.ndarray import NDArray

    Box: TypeAlias = tuple[int, int, int, int]

__all__ = ("center_crop", "fixed_crop", "random_crop", "random_size_crop")

_TRIES = 10


def fixed_crop(
    src: Any, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """Return a given rectangle, resized if `size` is another size.

    Args:
        src: (height, width, channels).
        x0, y0: left and top edge in pixels.
        w, h: extents in pixels; the rectangle must lie inside the image.
        size: (width, height) of the result; None: as cut.
        interp: as for `imresize`.

    Returns:
        A new array.

    Raises:
        ValueError: the rectangle does not lie inside the image.
    """
    image = as_image(src, "fixed_crop")
    rows, columns = image.shape[:2]
    if not (0 <= x0 < x0 + w <= columns and 0 <= y0 < y0 + h <= rows):
        raise ValueError(
            f"fixed_crop: the rectangle x0={x0}, y0={y0}, {w} x {h} does not lie inside an image of width "
            f"{columns} and height {rows}"
        )
    crop = image[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (size[0], size[1]) != (w, h):
        crop = resized(crop, size, interp)
    return own(crop, src)


def random_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """Return a rectangle at a random place; the largest one of that shape, enlarged, where the image is too small.

    Args:
        src: (height, width, channels).
        size: (width, height).
        interp: as for `imresize`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).
    """
    rows, columns = as_image(src, "random_crop").shape[:2]
    width, height = scale_down((columns, rows), size)
    x, y = random.randint(0, columns - width), random.randint(0, rows - height)
    return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)


def center_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """Return the middle of the image; if that is too small, the largest middle of the shape, enlarged to `size`.

    Args:
        src: (height, width, channels).
        size: (width, height).
        interp: as for `imresize`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).
    """
    rows, columns = as_image(src, "center_crop").shape[:2]
    width, height = scale_down((columns, rows), size)
    x, y = (columns - width) // 2, (rows - height) // 2
    return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)


def random_size_crop(
    src: Any,
    size: tuple[int, int],
    area: float | Sequence[float] | None = None,
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
    interp: int = 2,
    *,
    min_area: float | None = None,
) -> tuple[NDArray, Box]:
    """Return a rectangle of random area, shape and place, resized to `size`; the middle, if ten attempts do not fit.

    Args:
        src: (height, width, channels).
        size: (width, height) of the result.
        area: (least, greatest) share of the image's area, drawn uniformly; a single number a means (a, 1).
        ratio: (least, greatest) width/height, drawn uniformly on a logarithmic scale.
        interp: as for `imresize`.
        min_area: the old name of `area`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).

    Raises:
        TypeError: `area` is missing.
        ValueError: a range is empty or not positive.
    """
    share: Any = area if min_area is None else min_area
    if share is None:
        raise TypeError("random_size_crop() needs area, the (least, greatest) share of the image's area")
    least, greatest = _range((share, 1.0) if isinstance(share, numbers.Real) else share, "area")
    low, high = map(math.log, _range(ratio, "ratio"))
    rows, columns = as_image(src, "random_size_crop").shape[:2]
    for _ in range(_TRIES):
        pixels = random.uniform(least, greatest) * (rows * columns)
        shape = math.exp(random.uniform(low, high))
        width, height = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < width <= columns and 0 < height <= rows:
            x, y = random.randint(0, columns - width), random.randint(0, rows - height)
            return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)
    return center_crop(src, size, interp)


def _range(pair: Any, name: str) -> tuple[float, float]:
    try:
        least, greatest = map(float, pair)
    except (TypeError, ValueError):
        least, greatest = math.nan, math.nan
    if not 0 < least <= greatest:
        raise ValueError(f"random_size_crop: {name} must be (least, greatest), both positive, got {pair!r}")
    return least, greatest
