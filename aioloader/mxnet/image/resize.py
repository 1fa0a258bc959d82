"""Sizes: `imresize`, `resize_short`, `scale_down`, and the meaning of interpolation numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.image._arrays import as_image, given, own
from aioloader.transforms.geometry import scale_down as _scale_down
from aioloader.transforms.interpolation import AREA, AUTO, CUBIC, LINEAR, RANDOM, resize_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.mxnet.ndarray import NDArray

__all__ = ("imresize", "resize_short", "resized", "scale_down")


def _get_interp_method(interp: int, sizes: Sequence[int] = ()) -> int:
    """Return the number of an interpolation, 0 to 4.

    Args:
        interp: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos; 9 chooses by `sizes`; 10 draws one of 0 to 4 from
            Python's `random`.
        sizes: (old height, old width, new height, new width). With 9: bicubic if both grow, area if both shrink, else
            sizes: (old height, old width, new height, new width). With 9: bicubic if both grow, area if both shrink,
                else bilinear; bicubic without sizes.

    Raises:
        ValueError: another number, or not four sizes.
    """
    if interp == AUTO:
        if not sizes:
            return CUBIC
        if len(sizes) != 4:
            raise ValueError(
                f"sizes must be (old height, old width, new height, new width), got {tuple(sizes)!r}"
            )
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return CUBIC
        return AREA if height < old_height and width < old_width else LINEAR
    if interp == RANDOM:
        return random.randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise ValueError(f"Unknown interp method {interp}")
    return int(interp)


def resized(image: Array, size: tuple[int, int], interp: int) -> Array:
    """Resize a plain image to (width, height); return the image itself if it has that size."""
    width, height = int(size[0]), int(size[1])
    code = _get_interp_method(interp, (*image.shape[:2], height, width))
    return resize_image(image, (width, height), code)


def imresize(src: Any, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize to exactly w x h pixels.

    Args:
        src: (height, width, channels).
        w, h: new extents in pixels.
        interp: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 auto, 10 random.
        out: an array of the result's shape to write it to.

    Returns:
        A new array of the same dtype.

    Raises:
        ValueError: the interpolation is unknown, or there are no pixels.
    """
    image = as_image(src, "imresize")
    result = resized(image, (w, h), interp)
    return own(result, src) if out is None else given(result, out)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Return the largest (width, height) of the shape of `size`, and no larger than it, that fits into `src_size`.

    Args:
        src_size: available (width, height), in pixels.
        size: requested (width, height), in pixels.
    """
    width, height = _scale_down(*src_size, size)
    # A requested extent of 0 stays 0.
    return min(width, int(size[0])), min(height, int(size[1]))


def resize_short(src: Any, size: int, interp: int = 2) -> NDArray:
    """Resize so that the shorter side has `size` pixels, the longer one in proportion, rounded down.

    Args:
        src: (height, width, channels).
        size: pixels.
        interp: as for `imresize`.
    """
    height, width = as_image(src, "resize_short").shape[:2]
    if height > width:
        new = size, size * height // width
    else:
        new = size * width // height, size
    return imresize(src, *new, interp=interp)
