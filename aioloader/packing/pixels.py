"""Operations on pixels for packing: decode, crop, resize, convert channels."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.jpeg.orientation import read_orientation
from aioloader.transforms import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.decode import check_extents, checked_header, upright
from aioloader.transforms.formats import ImageHeader, read_header
from aioloader.transforms.lazy_image import Scratch

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_local = threading.local()


def decoded(data: bytes, color: int, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image and apply its EXIF orientation.

    Args:
        data: the encoded image.
        color: 1: RGB; 0: grey; -1: the image's channels: grey, RGB, or RGB with alpha.
        max_pixels: see `decode_image`.

    Returns:
        uint8 (height, width, 1, 3 or 4), with -1 also uint16. The caller may alter it. Once nothing refers to it any
        more, its memory is reused for later images of this thread.

    Raises:
        DecodeError: not an image, damaged, or too large.
    """
    if color == -1:
        header = read_header(data)
        if header.format not in ("jpeg", "raw"):
            image = by_opencv(data, -1, max_pixels)
            if image.ndim == 2:
                image = image[:, :, None]
            image = _swapped(image)
            if header.exif is not None and header.format != "tiff":  # OpenCV orients TIFFs itself
                image = upright(image, read_orientation(data, *header.exif))
            return np.ascontiguousarray(image)
        color = 0 if is_grey_jpeg(data) else 1
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = Scratch()
    return decode_image(data, flag=color, max_pixels=max_pixels, scratch=scratch)


def by_opencv(data: bytes, flag: int, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image with `cv2.imdecode`, after checking its header.

    Args:
        data: the encoded image.
        flag: flag of `cv2.imdecode`: 1: BGR, 0: grey, -1: unchanged.
        max_pixels: images of more pixels are refused.

    Returns:
        (height, width) or (height, width, channels), uint8 or the dtype of the file.

    Raises:
        DecodeError: not an image, damaged, or too large.
    """
    import cv2

    header = checked_header(data, max_pixels)
    try:
        image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    except cv2.error as error:
        raise DecodeError(str(error), format=header.format, nbytes=len(data)) from error
    if image is None:
        raise DecodeError("OpenCV cannot decode it", format=header.format, nbytes=len(data))
    check_extents(ImageHeader(header.format, *image.shape[:2]), max_pixels, len(data))
    return np.asarray(image)


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
