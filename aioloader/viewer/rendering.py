"""Rendering of a record, its labels and boxes as text and numbers, its image as a file for a browser.

Images are decoded by the project's own reader, and scaled down during decoding if possible. Small images are PNG, so
that their pixels are displayed unchanged.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.formats.collection import IMAGE, Record, failed
from aioloader.jpeg.cut import scale_for
from aioloader.transforms.interpolation import AREA, LINEAR, resize_image
from aioloader.transforms.lazy_image import LazyImageReader

if TYPE_CHECKING:
    from aioloader.formats.collection import Box, Contents
    from aioloader.foundation.types import Array


def box_table(boxes: tuple[Box, ...], width: int, height: int) -> Array:
    """Convert boxes to the array that box transforms take.

    Returns:
        float32 (n, 5): xmin, ymin, xmax, ymax in pixels, class.
    """
    table = np.array([(b.left, b.top, b.right, b.bottom, b.label) for b in boxes], np.float32).reshape(-1, 5)
    table[:, 0:4:2] *= width
    table[:, 1:4:2] *= height
    return table


def label_text(value: float) -> str:
    """Format a label for display and for addresses: 3, 0.25."""
    if math.isfinite(value) and float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))  # with enough digits to parse to the same value


def parse_label(text: str) -> float:
    """Parse a label of an address, in single precision as in records.

    Raises:
        ValueError: it is not a number.
    """
    try:
        with np.errstate(over="ignore"):
            value = float(np.float32(float(text))) if len(text) <= 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a label: labels are numbers")
    return value


_SMALL_PIXELS = 160 * 160
_QUALITY = 88


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """Image as a file for a browser.

    Attributes:
        content: bytes of the file.
        media_type: "image/jpeg" or "image/png".
        width, height: size in pixels.
    """

    content: bytes
    media_type: str
    width: int
    height: int


def fitted(height: int, width: int, side: int) -> tuple[int, int]:
    """Return (height, width) of an image scaled down to a longer side of at most `side`."""
    longer = max(width, height)
    if longer <= side:
        return height, width
    return max(1, round(height * side / longer)), max(1, round(width * side / longer))


def as_file(image: Array, *, exact: bool = False) -> RenderedImage:
    """Encode an image for a browser.

    Args:
        image: uint8 (height, width, 3 or 1) RGB or grey.
        exact: keep every pixel's value, regardless of the size.
    """
    height, width, channels = image.shape
    if exact or height * width <= _SMALL_PIXELS:
        import cv2

        stored = image[..., ::-1] if channels == 3 else image
        done, encoded = cv2.imencode(".png", np.ascontiguousarray(stored), [cv2.IMWRITE_PNG_COMPRESSION, 2])
        if not done:
            raise ValueError(f"cannot encode an image of {width} x {height} pixels")
        return RenderedImage(encoded.tobytes(), "image/png", width, height)
    import simplejpeg

    colours = "RGB" if channels == 3 else "GRAY"
    content = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=_QUALITY, colorspace=colours)
    return RenderedImage(content, "image/jpeg", width, height)


class ImageRenderer(threading.local):
    """Renderer of stored images; usable in any thread, and each has its own image reader.

    Args:
        max_pixels: larger images are refused before they are decoded.
    """

    def __init__(self, max_pixels: int | None) -> None:
        self._reader = LazyImageReader(max_pixels=max_pixels, dct_scaling=True)

    def make(self, contents: Contents, side: int) -> tuple[Record, RenderedImage | None]:
        """Render the image of a record.

        Args:
            contents: the record with its body.
            side: longest side in pixels.

        Returns:
            the record with the size of the upright image and the image; or the record with its problem and None.
        """
        record = contents.record
        if record.kind != IMAGE or record.image is None:
            return record, None
        try:
            pixels, width, height = self._pixels(contents.body, side)
        except (DecodeError, ValueError, MemoryError) as error:
            return failed(record, error), None
        upright = record.image._replace(width=width, height=height)
        return replace(record, image=upright), as_file(pixels)

    def further(self, body: Any, side: int) -> RenderedImage | str:
        """Render another image of a sample, or return the reason why that fails."""
        try:
            return as_file(self._pixels(body, side)[0])
        except (DecodeError, ValueError, MemoryError) as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"

    def _pixels(self, body: Any, side: int) -> tuple[Array, int, int]:
        lazy = self._reader.open(body)
        width, height = lazy.width, lazy.height
        size = fitted(height, width, side)
        shrink = scale_for((height, width), size) if lazy.shrinks else 1
        pixels = lazy.region((0, 0, width, height), shrink)
        return resize_image(pixels, size, AREA if pixels.shape[1] > size[1] else LINEAR), width, height
