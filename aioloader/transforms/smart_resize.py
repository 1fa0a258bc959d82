"""The size to which Qwen2-VL resizes an image before it is cut into patches. Pure."""

from __future__ import annotations

import math

from aioloader.errors import AspectRatioError

MAX_ASPECT_RATIO = 200
"""Largest ratio of an image's sides that Qwen2-VL's rule accepts."""


def smart_resize(
    height: int, width: int, *, factor: int = 28, min_pixels: int = 3136, max_pixels: int = 1003520
) -> tuple[int, int]:
    """Return the (height, width) in pixels that an image is resized to.

    Both are multiples of `factor`, and the aspect ratio is kept approximately. The number of pixels is within the
    limits as far as such multiples allow: images whose shorter side is a single `factor`, and images that are enlarged
    to limits close together, may have more.

    Args:
        height, width: extents of the image in pixels.
        factor: side of a token in pixels: side of a patch times the patches that are merged in each direction.
        min_pixels, max_pixels: limits of height * width.

    Raises:
        ValueError: an extent is below 1.
        AspectRatioError: one side is more than 200 times as long as the other; it is a ValueError.
    """
    if height < 1 or width < 1:
        raise ValueError(f"an image has at least one pixel, got {height} x {width} (height x width)")
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise AspectRatioError(height, width, MAX_ASPECT_RATIO)
    # `round` takes halves to the even neighbour; Qwen2-VL's rule was published in Python and depends on it.
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    if tall * wide > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        tall = max(factor, math.floor(height / shrink / factor) * factor)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
    elif tall * wide < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        tall = math.ceil(height * grow / factor) * factor
        wide = math.ceil(width * grow / factor) * factor
    return tall, wide
