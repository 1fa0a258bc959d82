"""Full decode of a JPEG as the oracle of partial ones: a box has the pixels of the whole image, or both are refused."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
from simplejpeg import decode_jpeg

from aioloader.errors import DecodeError
from aioloader.foundation.decodes import NO_INDEX
from aioloader.jpeg import scaled_size
from aioloader.transforms.decode import decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.fuzz.target import Finding

_MOST_PIXELS = 1 << 17
_SCALES = (1, 1, 1, 1, 1, 2, 4, 8)


class DecodeOptions(NamedTuple):
    """Options of a decode.

    Attributes:
        flag: 1 for colour, 0 for grey.
        exif: "apply" or "ignore".
        scale: 1, 2, 4 or 8: the part of the size.
        method: which of the methods of an image returns the box, below 8.
    """

    flag: int
    exif: str
    scale: int
    method: int

    @classmethod
    def of(cls, number: int, key: int) -> DecodeOptions:
        """Return the options that a byte of an input selects.

        Args:
            number: the byte.
            key: 32 bits of the input.
        """
        return cls(
            flag=0 if number & 7 == 0 else 1,
            exif="ignore" if number & 8 else "apply",
            scale=_SCALES[number >> 4 & 7],
            method=key >> 29 if number >> 7 else 0,
        )


class Oracle:
    """Comparison of boxes with a full decode. Readers are reused, as in workers, with the headers that they keep."""

    def __init__(self) -> None:
        self._readers: dict[tuple[int, str, bool], LazyImageReader] = {}

    def reader(self, options: DecodeOptions) -> LazyImageReader:
        """Return the reader for these options; it decodes rectangles even where that saves nothing."""
        key = options.flag, options.exif, options.scale > 1
        reader = self._readers.get(key)
        if reader is None:
            reader = LazyImageReader(
                options.flag, exif=options.exif, max_pixels=_MOST_PIXELS, dct_scaling=options.scale > 1
            )
            if reader.rectangles is not None:
                reader.rectangles.worth = 0.0
            self._readers[key] = reader
        return reader

    def judge(
        self, data: bytes, options: DecodeOptions, key: int, whole: Any, entry: Any = NO_INDEX
    ) -> tuple[Any, tuple[int, int, int, int]]:
        """Decode a box of a JPEG and compare it with that of the full decode.

        Args:
            data: the JPEG.
            options: options of the decode.
            key: number that selects the box.
            whole: result of `decode_whole`.
            entry: the JPEG's entry of a crop index, or the reason why there is none.

        Returns:
            The opened image and the box. If the image could not be opened: None, and a box without pixels.

        Raises:
            Finding: the box, or the error, is not that of the full decode.
        """
        found = lazy = None
        box = (0, 0, 0, 0)
        try:
            lazy = self.reader(options).open(data, entry=entry)
            box = box_of(key, lazy.width, lazy.height)
            found = decode_box(lazy, box, options)
        except DecodeError:
            pass
        if whole is not None:
            if found is None or lazy is None:
                raise Finding("a part is refused of what can be decoded whole")
            compare_box(data, lazy, box, options, found=found, whole=whole)
        return lazy, box


def key_of(data: bytes) -> int:
    """Return 32 bits of an input, which select whatever its options do not."""
    return zlib.crc32(data)


def decode_whole(data: bytes, options: DecodeOptions) -> Any:
    """Return all pixels, uint8 (height, width, channels); None if the image cannot be decoded."""
    try:
        return decode_image(data, flag=options.flag, exif=options.exif, max_pixels=_MOST_PIXELS)
    except DecodeError:
        return None


def box_of(key: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the crop that a number selects; often small, often at a border."""
    mixed = key * 0x9E3779B97F4A7C15 >> 7
    x, mixed = mixed % width, mixed // 4093
    y, mixed = mixed % height, mixed // 4093
    if key & 0x300 == 0:
        x = 0
    if key & 0xC00 == 0:
        y = 0
    most_across, most_down = width - x, height - y
    if key & 0x1000:
        most_across, most_down = min(most_across, 20), min(most_down, 20)
    return x, y, 1 + mixed % most_across, 1 + mixed // 4093 % most_down


def compare_box(
    data: bytes, lazy: Any, box: tuple[int, int, int, int], options: DecodeOptions, *, found: Any, whole: Any
) -> None:
    """Compare a box of an opened image with that of the full decode.

    Args:
        data: the JPEG.
        lazy: the opened image.
        box: the box.
        options: options of the decode.
        found: result of `decode_box`.
        whole: result of `decode_whole`, not None.

    Raises:
        Finding: they differ.
    """
    if (lazy.height, lazy.width) != whole.shape[:2]:
        raise Finding(f"{lazy.height} x {lazy.width} announced, {whole.shape} decoded")
    x, y, width, height = box
    scale = options.scale
    if not np.array_equal(found, whole[y : y + height, x : x + width]) and (
        scale == 1 or not _is_scaled(data, lazy, box, options, found)
    ):
        raise Finding(f"the box {box} at 1/{scale} differs from that of a full decode")


def decode_box(lazy: Any, box: tuple[int, int, int, int], options: DecodeOptions) -> Any:
    """Return the pixels of the box, by one of the decoding methods."""
    x, y, width, height = box
    if options.scale > 1 or options.method < 4:
        return lazy.region(box, options.scale)
    if options.method < 6:
        pixels = lazy.frame(box)
        return pixels[y : y + height, x : x + width]
    pixels = lazy.pixels(np.empty((lazy.height, lazy.width, lazy.channels), np.uint8))
    return pixels[y : y + height, x : x + width]


def _is_scaled(data: bytes, lazy: Any, box: Any, options: DecodeOptions, found: Any) -> bool:
    """Return whether these are the pixels of the whole image decoded at that scale."""
    if lazy._orientation != 1:
        return True  # the sides of rotated boxes are rounded in stored coordinates: not compared
    scale = options.scale
    rows, columns = scaled_size(lazy.height, scale), scaled_size(lazy.width, scale)
    small = decode_jpeg(
        data,
        "RGB" if options.flag else "GRAY",
        min_height=rows,
        min_width=columns,
        min_factor=scale,
        strict=False,
    )
    x, y, width, height = box
    half = scale // 2
    wanted = small[
        (y + half) // scale : (y + height + half) // scale, (x + half) // scale : (x + width + half) // scale
    ]
    return small.shape[:2] == (rows, columns) and np.array_equal(found, wanted)
