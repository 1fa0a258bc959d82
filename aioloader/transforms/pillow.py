"""Decoding, conversion to RGB and the bicubic filter of Pillow, for processors whose published results it made.

Pillow is an optional extra, imported when one of these functions first needs it: ``pip install "aioloader[service]"``.
"""

from __future__ import annotations

import struct
import sys
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from aioloader.errors import DecodeError, MissingPackageError
from aioloader.foundation.decodes import decoder_messages
from aioloader.foundation.thread_start import let_threads_run
from aioloader.transforms.raw import raw_buffer

if TYPE_CHECKING:
    from PIL.Image import Image

    from aioloader.foundation.types import Array
    from aioloader.transforms.formats import ImageHeader

# Without a name Pillow tries all its readers, of which some run other programs.
_NAMES = {
    "jpeg": "JPEG",
    "png": "PNG",
    "bmp": "BMP",
    "gif": "GIF",
    "webp": "WEBP",
    "tiff": "TIFF",
    "pnm": "PPM",
    "jp2": "JPEG2000",
    "avif": "AVIF",
}
_WHITE = (255, 255, 255, 255)
_ORIENTATION = 0x112
_MOST_16 = (1 << 16) - 1
_STRIP_NBYTES = 1 << 20


def _pillow() -> Any:
    """Return the module ``PIL.Image``."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingPackageError("pillow", extra="service") from error
    return Image


def is_pillow_image(x: object) -> TypeGuard[Image]:
    """Return True if an object is an image of Pillow, which is not imported for it."""
    # Another thread may be importing the module: it has no class yet, and nobody an image of it.
    known = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return known is not None and isinstance(x, known)


def decode_by_pillow(data: memoryview, header: ImageHeader, *, exif: str, alpha: str) -> Array:
    """Decode an image with Pillow.

    Args:
        data: the encoded image, a flat memoryview of bytes.
        header: its header, of another format than "raw"; an image with more pixels than it announces is refused.
        exif, alpha: see `pixels_of_pillow`.

    Returns:
        uint8 (height, width, 3) RGB; the first frame of several.

    Raises:
        DecodeError: the data is damaged, truncated, or of a kind that Pillow cannot read or convert to RGB.
        MissingPackageError: Pillow is not installed.
    """
    pillow = _pillow()
    try:
        with (
            decoder_messages.caught(None),
            pillow.open(BytesIO(data), formats=[_NAMES[header.format]]) as image,
        ):
            if image.width * image.height > header.width * header.height:
                raise ValueError(f"another header announces {image.width} x {image.height} pixels")
            return pixels_of_pillow(image, exif=exif, alpha=alpha)
    except MemoryError:
        raise
    except Exception as error:
        # For damaged data its readers raise errors of many classes.
        reason = f"Pillow: {type(error).__name__}: {error}"
        raise DecodeError(reason, format=header.format, nbytes=len(data)) from error


def pixels_of_pillow(image: Image, *, exif: str, alpha: str) -> Array:
    """Return the pixels of a Pillow image in RGB.

    Args:
        image: of any mode that Pillow converts to RGB.
        exif: "apply" turns it upright by its EXIF orientation; "ignore" leaves it as stored.
        alpha: "white" composes transparent pixels with white; "drop" ignores alpha.

    Returns:
        uint8 (height, width, 3), read-only.

    Raises:
        ValueError: Pillow cannot convert the mode.
    """
    if exif == "apply":
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = _with_alpha(image)
        if alpha == "white":
            pillow = _pillow()
            image = pillow.alpha_composite(pillow.new("RGBA", image.size, _WHITE), image)
    return np.asarray(image.convert("RGB"))


def encode_pillow(image: Image) -> memoryview:
    """Return a Pillow image as encoded bytes, which decode to the same pixels as its file.

    A raw image has neither alpha, an orientation nor 16 bits; pixels that have become a PNG without compression.

    Raises:
        ValueError: its pixels have no scale, such as floats, or Pillow cannot convert its mode.
        Exception: of Pillow, for damaged data.
    """
    image.load()
    width, height = image.size
    rows = max(1, _STRIP_NBYTES // (4 * width))
    strips = []
    for top in range(0, height, rows):
        strips.append(_pixels(image.crop((0, top, width, min(top + rows, height)))))
        # Pillow keeps the interpreter's lock while it converts, so that an event loop would wait for a whole image.
        let_threads_run()
    pixels = np.concatenate(strips)
    orientation = _orientation(image)
    if orientation == 1 and pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return raw_buffer(pixels)
    return _png(pixels, orientation)


def _pixels(image: Image) -> Array:
    """Return pixels (height, width, channels): uint8 in RGB or RGBA, or uint16 grey."""
    if image.has_transparency_data:
        return np.asarray(_with_alpha(image))
    if image.mode != "F" and not image.mode.startswith("I"):
        return np.asarray(image.convert("RGB"))
    values = np.asarray(image)
    if image.mode == "F" or not 0 <= values.min() <= values.max() <= _MOST_16:
        raise ValueError(
            f"its pixels, of Pillow's mode {image.mode!r}, have no scale: convert them to 8 bits by the scale that "
            "they have"
        )
    return values[:, :, None].astype(np.uint16)


def _with_alpha(image: Image) -> Image:
    return (image.convert("LA") if image.mode == "La" else image).convert("RGBA")


def _orientation(image: Image) -> int:
    try:
        found = image.getexif().get(_ORIENTATION)
    except Exception:  # damaged metadata, which decoding ignores too
        return 1
    return found if isinstance(found, int) and 2 <= found <= 8 else 1


def _png(pixels: Array, orientation: int) -> memoryview:
    """Encode pixels as a PNG without compression."""
    height, width, channels = pixels.shape
    row_nbytes = width * channels * pixels.itemsize
    rows = np.zeros((height, 1 + row_nbytes), np.uint8)  # a row begins with its filter: none
    rows[:, 1:] = (
        np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder(">"))).view(np.uint8).reshape(height, -1)
    )
    colours = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8 * pixels.itemsize, colours, 0, 0, 0)
    tags = struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, body in (
        (b"IHDR", header),
        (b"eXIf", tags),
        (b"IDAT", zlib.compress(rows.data, 0)),
        (b"IEND", b""),
    ):
        parts += (
            struct.pack(">I4s", len(body), kind),
            body,
            struct.pack(">I", zlib.crc32(body, zlib.crc32(kind))),
        )
    return memoryview(b"".join(parts))


def resize_bicubic(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize an image by Pillow's antialiased bicubic filter, which computes in integers and rounds after each axis.

    Args:
        pixels: uint8 (height, width, 3 or 1), any strides.
        size: (height, width) of the result.

    Returns:
        uint8, that size; `pixels` itself if it has that size.

    Raises:
        MissingPackageError: Pillow is not installed.
    """
    height, width = size
    if pixels.shape[:2] == size:
        return pixels
    pillow = _pillow()
    source = pillow.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(source.resize((width, height), pillow.Resampling.BICUBIC)).reshape(height, width, -1)


def resize_bicubic_floats(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize an image as `resize_bicubic`, but in floating point: clamped and rounded once, at the end.

    Args, results and errors are those of `resize_bicubic`. It takes about twice as long.
    """
    height, width = size
    if pixels.shape[:2] == size:
        return pixels
    pillow = _pillow()
    made = np.empty((height, width, pixels.shape[2]), np.uint8)
    for channel in range(pixels.shape[2]):
        plane = pillow.fromarray(pixels[:, :, channel].astype(np.float32))
        values = np.array(plane.resize((width, height), pillow.Resampling.BICUBIC))
        made[:, :, channel] = np.rint(values.clip(0, 255, out=values), out=values)
    return made
