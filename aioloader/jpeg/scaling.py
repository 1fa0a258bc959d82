"""When a decoder may shrink the picture while it decodes, and where a crop then lies.

Rule: a decoder can leave out the high frequencies of every 8 x 8 block and give it as 4 x 4, 2 x 2 or 1 x 1 pixels.
That is faster and changes the result a little, so it is only done where it was asked for, and only as far as every
pixel of the target still has at least one decoded pixel of its own in both directions. Other fractions than 1/2, 1/4
and 1/8 are slower than decoding everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Scale", "scale_for", "scaled_size")

Scale = Literal[1, 2, 4, 8]


def scale_for(box_size: Sequence[int], target_size: Sequence[int]) -> Scale:
    """The largest divisor by which a crop may shrink in the decoder.

    Args:
        box_size: two extents of the crop, in stored pixels.
        target_size: the two extents, in the same order, that the crop is resized to; at least 1.

    Returns:
        8, 4 or 2 if the crop is at least that many times larger than the target in both directions, else 1.
    """
    ratio = min(box_size[0] // target_size[0], box_size[1] // target_size[1])
    return 8 if ratio >= 8 else 4 if ratio >= 4 else 2 if ratio >= 2 else 1


def scaled_size(extent: int, scale: int) -> int:
    """Extent in pixels of a picture that is decoded at 1/`scale` (partial pixels count as whole ones).

    To get just this scale from ``simplejpeg.decode_jpeg``, give it ``min_height=scaled_size(height, scale)``,
    ``min_width=scaled_size(width, scale)`` and ``min_factor=scale``.

    Pixel i of the scaled picture covers the stored pixels ``i * scale`` to ``(i + 1) * scale`` (exclusive), so a
    stored coordinate x becomes ``x / scale``. `Cut.left` and `Cut.top` are multiples of 8, or 0.

    Args:
        extent: width or height in pixels.
        scale: 1, 2, 4 or 8.
    """
    return -(-extent // scale)
