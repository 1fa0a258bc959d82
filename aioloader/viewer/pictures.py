"""The picture of a record, small or large, as a file that a browser shows.

Decoded by the project's own reader, shrunk while it is decoded where that is possible. Small pictures are PNG, so that
their pixels are shown as they are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.jpeg import scale_for
from aioloader.transforms.interpolation import AREA, LINEAR, resize_image
from aioloader.transforms.lazy_image import LazyImageReader
from aioloader.viewer.records import IMAGE, Record, failed

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.viewer.collection import Contents

__all__ = ("Picture", "Pictures", "as_file", "fitted")

_SMALL_PIXELS = 160 * 160
_QUALITY = 88


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as a file.

    Attributes:
        content: its bytes.
        media_type: "image/jpeg" or "image/png".
        width, height: pixels.
    """

    content: bytes
    media_type: str
    width: int
    height: int


def fitted(width: int, height: int, side: int) -> tuple[int, int]:
    """(width, height) of a picture whose longer side is at most `side`; never larger than it is."""
    longer = max(width, height)
    if longer <= side:
        return width, height
    return max(1, round(width * side / longer)), max(1, round(height * side / longer))


def as_file(image: Array, *, exact: bool = False) -> Picture:
    """A picture to be shown.

    Args:
        image: uint8 (height, width, 3 or 1) RGB or grey.
        exact: keep every pixel as it is, whatever the size.
    """
    height, width, channels = image.shape
    if exact or height * width <= _SMALL_PIXELS:
        import cv2

        stored = image[..., ::-1] if channels == 3 else image
        done, encoded = cv2.imencode(".png", np.ascontiguousarray(stored), [cv2.IMWRITE_PNG_COMPRESSION, 2])
        if not done:
            raise ValueError(f"cannot write a picture of {width} x {height} pixels")
        return Picture(encoded.tobytes(), "image/png", width, height)
    import simplejpeg

    colours = "RGB" if channels == 3 else "GRAY"
    content = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=_QUALITY, colorspace=colours)
    return Picture(content, "image/jpeg", width, height)


class Pictures:
    """Makes pictures, in any thread.

    Args:
        max_pixels: larger images are refused before they are decoded.
    """

    def __init__(self, max_pixels: int | None) -> None:
        self._max_pixels = max_pixels
        self._local = threading.local()

    def make(self, contents: Contents, side: int) -> tuple[Record, Picture | None]:
        """The picture of a record.

        Args:
            contents: the record with its body.
            side: longest side, pixels.

        Returns:
            the record with the extents of the upright image, or with what is wrong with it; and the picture.
        """
        record = contents.record
        if record.kind != IMAGE:
            return record, None
        try:
            pixels, width, height = self._pixels(contents.body, side)
        except (DecodeError, ValueError, MemoryError) as error:
            return failed(record, error), None
        return replace(record, width=width, height=height), as_file(pixels)

    def _pixels(self, body: Any, side: int) -> tuple[Array, int, int]:
        reader: LazyImageReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = LazyImageReader(max_pixels=self._max_pixels, dct_scaling=True)
        picture = reader.open(body)
        width, height = picture.width, picture.height
        size = fitted(width, height, side)
        shrink = scale_for((width, height), size) if picture.shrinks else 1
        pixels = picture.region((0, 0, width, height), shrink)
        return resize_image(pixels, size, AREA if pixels.shape[1] > size[0] else LINEAR), width, height
