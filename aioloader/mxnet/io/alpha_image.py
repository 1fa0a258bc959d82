"""Images with an alpha channel (`data_shape` of 4 channels), which `aioloader.transforms.decode_image` drops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.mxnet.base import MXNetError
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, check_extents, checked_header
from aioloader.transforms.exif import read_orientation, upright
from aioloader.transforms.raw import raw_image

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

__all__ = ("decode_alpha",)


def decode_alpha(data: Any, exif: str = "apply", max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image that has an alpha channel.

    Args:
        data: the encoded image, bytes or a flat memoryview of bytes.
        exif: "apply" turns the image upright by its EXIF orientation; "ignore" leaves it as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.

    Returns:
        uint8 (height, width, 4), RGBA.

    Raises:
        DecodeError: not an image, damaged, or too large.
        MXNetError: it has no alpha channel, or more than 8 bits a channel.
    """
    header = checked_header(data, max_pixels)
    image: Any = raw_image(data) if header.format == "raw" else _stored(data, header.format)
    check_extents(image, header, max_pixels, len(data))
    channels = image.shape[2] if image.ndim == 3 else 1
    if channels != 4:
        raise MXNetError(f"Expected 4 channels, got {channels}; data_shape asks for images with alpha")
    if image.dtype != np.uint8:
        raise MXNetError(
            f"Expected 8 bits a channel, got {image.dtype}; images with alpha are delivered as stored"
        )
    import cv2

    image = cv2.cvtColor(image, cv2.COLOR_BGRA2RGBA)
    # OpenCV has already turned a TIFF.
    if exif == "apply" and header.exif is not None and header.format != "tiff":
        image = upright(image, read_orientation(data, *header.exif))
    result: Array = image
    return result


def _stored(data: Any, name: str) -> Any:
    """Return the pixels as they are stored, channels in OpenCV's order."""
    import cv2

    try:
        image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise _refused(f"OpenCV: {' '.join(str(error).split())}", name, data) from None
    if image is None:
        raise _refused(f"OpenCV {cv2.__version__} cannot read it", name, data)
    return image


def _refused(reason: str, name: str, data: Any) -> DecodeError:
    return DecodeError(reason, format=name, nbytes=len(data))
