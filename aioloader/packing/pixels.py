"""Operations on pixels for packing: decode, crop, resize, convert channels."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from aioloader.errors import DecodeError
from aioloader.transforms import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.lazy_image import Scratch

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_local = threading.local()


def decoded(data: bytes, color: int, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image and apply its EXIF orientation.

    Args:
        data: the encoded image.
        color: `flag` of `decode_image`.
        max_pixels: see `decode_image`.

    Returns:
        As `decode_image`. The caller may alter it. Once nothing refers to it any more, its memory is reused for later
        images of this thread.

    Raises:
        DecodeError: not an image, damaged, or too large.
    """
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = Scratch()
    return decode_image(data, flag=color, max_pixels=max_pixels, scratch=scratch)


def is_grey_jpeg(data: bytes) -> bool:
    """Return whether this is a JPEG with one component.

    Raises:
        DecodeError: it is a JPEG, and its header is damaged.
    """
    if data[:2] != b"\xff\xd8":
        return False
    from simplejpeg import decode_jpeg_header

    try:
        colorspace: str = decode_jpeg_header(data, strict=False)[2]
    except ValueError as error:
        raise DecodeError(str(error), format="jpeg", nbytes=len(data)) from error
    return colorspace.lower() == "gray"


def middle(image: Array) -> Array:
    """Return the middle square as a view."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def shrunk(image: Array, shorter: int | None) -> Array:
    """Scale an image down to a shorter side of at most `shorter` pixels; return a smaller `image` itself."""
    height, width = image.shape[:2]
    side = min(height, width)
    if shorter is None or side <= shorter:
        return image
    import cv2

    size = (width * shorter // side, height * shorter // side)
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return small[:, :, None] if small.ndim == 2 else small


def to_bgr(image: Array) -> Array:
    """Convert an image to OpenCV's order of colours, C-contiguous; `image` itself may be overwritten."""
    return _swapped(image, image if image.flags.c_contiguous else None)


def _swapped(image: Array, out: Array | None = None) -> Array:
    """Exchange red and blue."""
    channels = image.shape[2]
    if channels not in (3, 4):
        return np.ascontiguousarray(image)
    import cv2

    code = cv2.COLOR_RGB2BGR if channels == 3 else cv2.COLOR_RGBA2BGRA
    return np.asarray(cv2.cvtColor(image, code, dst=out))
