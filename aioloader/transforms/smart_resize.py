"""The size to which Qwen2-VL resizes an image. Pure.

Source of the rule: `smart_resize` of the image processor of Qwen2-VL as published.
"""

from __future__ import annotations

import math

MAX_ASPECT = 200
"""Largest ratio of the sides of an image."""


def smart_resize(
    height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Return the height and width to resize an image to.

    Both are multiples of `factor`, the number of pixels is between the limits, and the ratio of the sides is kept as far as
    that allows.

    Args:
        height, width: extents in pixels.
        factor: side of a patch times the patches that are merged.
        min_pixels, max_pixels: limits of height x width.

    Raises:
        ValueError: one side is more than 200 times as long as the other.
    """
    if max(height, width) / min(height, width) > MAX_ASPECT:
        raise ValueError(
            f"an image of {height} x {width} pixels is refused: the ratio of its sides must be at most {MAX_ASPECT}"
        )
    # Python's rounding of halves to even numbers belongs to the rule.
    high = round(height / factor) * factor
    wide = round(width / factor) * factor
    if high * wide > max_pixels:
        scale = math.sqrt(height * width / max_pixels)
        high = max(factor, math.floor(height / scale / factor) * factor)
        wide = max(factor, math.floor(width / scale / factor) * factor)
    elif high * wide < min_pixels:
        scale = math.sqrt(min_pixels / (height * width))
        high = math.ceil(height * scale / factor) * factor
        wide = math.ceil(width * scale / factor) * factor
    return high, wide
