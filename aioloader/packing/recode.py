"""Encoding of one image as by im2rec: keep the bytes, or decode, crop, resize and encode again.

Rule: OpenCV's decoder and encoders, and MXNet's order of steps and its rounding, so that the files are identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import recordio
from aioloader.errors import DecodeError
from aioloader.packing.pixels import by_opencv, middle
from aioloader.transforms.interpolation import resize_image

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_COLORS = (-1, 0, 1)
_ENCODINGS = (".jpg", ".png")
_HEADER = recordio.IRHeader(0, 0.0, 0, 0)
_HEADER_BYTES = 24


@dataclass(frozen=True, slots=True)
class Recode:
    """Function from the bytes of an image to the bytes to store, with im2rec's options.

    Attributes:
        color: 1: colour; 0: grey; -1: unchanged, with alpha. With 1 and 0 the EXIF orientation is applied.
        resize: length of the shorter side in pixels, smaller images are enlarged too; 0: unchanged.
        center_crop: crop to the middle square first.
        quality: of JPEGs 1 to 100; of PNGs the compression level, where values above 9 mean 9.
        encoding: ".jpg" or ".png".
        interpolation: OpenCV's code, 0 to 4, or 9: cubic to enlarge, area to shrink.
        pass_through: store the bytes unchanged and unchecked; the other options are ignored.

    Raises:
        ValueError: an option is not allowed.
    """

    color: int = 1
    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    encoding: str = ".jpg"
    interpolation: int = 1
    pass_through: bool = False

    def __post_init__(self) -> None:
        if self.color not in _COLORS:
            raise ValueError(f"color must be 1 (colour), 0 (grey) or -1 (as it is), got {self.color}")
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"encoding must be {' or '.join(_ENCODINGS)}, got {self.encoding!r}")
        if self.resize < 0:
            raise ValueError(f"resize must not be negative, got {self.resize}")
        if self.quality < 0 or (self.encoding == ".jpg" and not 1 <= self.quality <= 100):
            raise ValueError(f"quality must lie between 1 and 100, got {self.quality}")

    def __call__(self, data: bytes) -> bytes:
        """Encode one image.

        Raises:
            DecodeError: it is not an image, is damaged, has more pixels than `DEFAULT_MAX_PIXELS` of
                `aioloader.transforms`, or cannot be encoded.
        """
        if self.pass_through:
            return data
        image = by_opencv(data, self.color)
        if self.center_crop:
            image = middle(image)
        if self.resize:
            image = _resized(image, self.resize, self.interpolation)
        try:
            record = recordio.pack_img(_HEADER, image, self.quality, self.encoding)
        except recordio.errors.ImageEncodeError as error:
            raise DecodeError(str(error), nbytes=len(data)) from error
        return record[_HEADER_BYTES:]


def _resized(image: Array, shorter: int, interpolation: int) -> Array:
    """Resize an image to a shorter side of `shorter` pixels; the longer one is rounded down."""
    height, width = image.shape[:2]
    size = (shorter, height * shorter // width) if height > width else (width * shorter // height, shorter)
    planes = image[:, :, None] if image.ndim == 2 else image
    small = resize_image(planes, size, interpolation)
    return small[:, :, 0] if image.ndim == 2 else small
