"""Headers of images: format, height, width, and place of the EXIF block.

Rule: nothing is decoded and nothing allocated; every read is checked against the length of the data, every loop moves
forward, and makes no more steps than `most_steps`. JPEG: segments up to the frame header (ITU T.81, B.2.2). PNG, WebP:
all chunks. The others: fixed places of their headers. Pure.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.errors import DecodeError
from aioloader.transforms.raw import RAW_MAGIC, read_raw_header

if TYPE_CHECKING:
    from collections.abc import Callable


class ImageHeader(NamedTuple):
    """Header of an image.

    Attributes:
        format: "jpeg", "png", "bmp", "gif", "webp", "tiff", "pnm", "jp2", "avif" or "raw" (see `encode_raw`).
        height, width: extents in pixels as stored, before any EXIF orientation; at least 1.
        exif: (start, stop) of the EXIF block's TIFF structure in the data, or None.
    """

    format: str
    height: int
    width: int
    exif: tuple[int, int] | None = None


ENDS_EARLY = "the data ends within the header"
"""Reason of a `DecodeError`: more bytes of the same image may be all that is missing."""

_PNM = re.compile(rb"P[1-6](?:\s|#[^\r\n]*[\r\n])*([0-9]+)[^0-9](?:\s|#[^\r\n]*[\r\n])*([0-9]+)")

# More entries than any camera writes; limits the work that a damaged count can cause.
_MAX_ENTRIES = 512


# Segments, chunks and other steps of a header that take 2 ms, and the bytes that each further one has at least.
QUICK_STEPS = 2048
_BYTES_OF_STEP = 128
# What is searched for boxes without following them.
_SEARCHED = 1 << 16
_CODESTREAM = b"\xff\x4f\xff\x51"
# Fill bytes that are one step.
_FILL = re.compile(rb"\xff{1,1024}")


class LongHeaderError(Exception):
    """Error raised for a header that takes more than `QUICK_STEPS`, where reading must not take long."""


def most_steps(nbytes: int) -> int:
    """Return the most steps that reading the header of an image of some bytes may take."""
    return QUICK_STEPS + nbytes // _BYTES_OF_STEP


class _Unreadable(Exception):
    """Error raised when a header ends early or is invalid; `read_header` converts it to a DecodeError."""


def _jpeg(data: Any, most: int) -> ImageHeader:
    # The hot path, a few microseconds for a photograph.
    n = len(data)
    place = 2
    exif = None
    for _ in range(most):
        if place + 4 > n:
            raise _Unreadable(ENDS_EARLY)
        if data[place] != 0xFF:
            raise _Unreadable("bytes between the header's segments that belong to none of them")
        marker = data[place + 1]
        if marker == 0xFF:
            place = _FILL.match(data, place).end() - 1  # type: ignore[union-attr]
            continue
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:
            place += 2
            continue
        if marker in (0xD8, 0xD9, 0xDA):
            raise _Unreadable("no frame header before the image data")
        length = data[place + 2] << 8 | data[place + 3]
        if length < 2:
            raise _Unreadable("a segment of impossible length")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if place + 9 > n:
                raise _Unreadable(ENDS_EARLY)
            height, width = struct.unpack_from(">HH", data, place + 5)
            if height == 0:
                raise _Unreadable(
                    "the frame header has no height (a height that follows the data is not supported)"
                )
            return ImageHeader("jpeg", height, width, exif)
        if marker == 0xE1 and exif is None and bytes(data[place + 4 : place + 10]) == b"Exif\0\0":
            exif = (place + 10, min(place + 2 + length, n))
        place += 2 + length
    raise LongHeaderError


def _png(data: Any, most: int) -> ImageHeader:
    length, name, width, height = struct.unpack_from(">I4sII", data, 8)
    if name != b"IHDR" or length != 13:
        raise _Unreadable("the first chunk is not IHDR")
    place = 33
    exif = None
    for _ in range(most):
        if place + 12 > len(data):
            return ImageHeader("png", height, width, exif)
        length, name = struct.unpack_from(">I4s", data, place)
        if name == b"eXIf" and exif is None:
            exif = (place + 8, min(place + 8 + length, len(data)))
        place += 12 + length
    raise LongHeaderError


def _bmp(data: Any, most: int) -> ImageHeader:
    (size,) = struct.unpack_from("<I", data, 14)
    if size == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    # A negative height means rows from top to bottom.
    return ImageHeader("bmp", abs(height), width)


def _gif(data: Any, most: int) -> ImageHeader:
    width, height = struct.unpack_from("<HH", data, 6)
    return ImageHeader("gif", height, width)


def _webp(data: Any, most: int) -> ImageHeader:
    name = bytes(data[12:16])
    if name == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
        if len(data) < 30:
            raise _Unreadable(ENDS_EARLY)
    elif name == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif name == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise _Unreadable("the first chunk is not VP8, VP8L or VP8X")
    place = 12
    exif = None
    for _ in range(most):
        if place + 8 > len(data):
            return ImageHeader("webp", height, width, exif)
        chunk, length = struct.unpack_from("<4sI", data, place)
        if chunk == b"EXIF" and exif is None:
            start = place + 8
            # Some writers keep the prefix that the block has in a JPEG.
            if bytes(data[start : start + 6]) == b"Exif\0\0":
                start += 6
            exif = (start, min(place + 8 + length, len(data)))
        place += 8 + length + (length & 1)
    raise LongHeaderError


def _tiff(data: Any, most: int) -> ImageHeader:
    order = "<" if data[0] == 0x49 else ">"
    if data[2 if order == "<" else 3] == 43:
        (table,) = struct.unpack_from(order + "Q", data, 8)
        (count,) = struct.unpack_from(order + "Q", data, table)
        first, step, kind_value = table + 8, 20, "HHQ"
    else:
        (table,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, table)
        first, step, kind_value = table + 2, 12, "HHI"
    extents = {256: 0, 257: 0}
    value_at = struct.calcsize(order + kind_value)
    for place in range(first, first + step * min(count, _MAX_ENTRIES), step):
        tag, kind, _ = struct.unpack_from(order + kind_value, data, place)
        if tag in extents and extents[tag] == 0:
            code = {3: "H", 4: "I", 16: "Q"}.get(kind)
            if code is None:
                raise _Unreadable("an extent of an unknown type")
            (extents[tag],) = struct.unpack_from(order + code, data, place + value_at)
    return ImageHeader("tiff", extents[257], extents[256], (0, len(data)))


def _pnm(data: Any, most: int) -> ImageHeader:
    # Exactly as OpenCV reads it: else a comment could hide the numbers that OpenCV will find.
    head = bytes(data[:1024])
    found = _PNM.match(head)
    if found is None or found.end() == len(head) < len(data):
        raise _Unreadable("no width and height in the header")
    return ImageHeader("pnm", int(found[2]), int(found[1]))


def _jp2(data: Any, most: int) -> ImageHeader:
    # The box around the codestream and the codestream itself both have extents: the larger ones count.
    head = bytes(data[:_SEARCHED])
    found = []
    start = head.find(b"ihdr", 0, 4096)
    if start >= 0:
        height, width = struct.unpack_from(">II", head, start + 4)
        found.append((height, width))
    start = head.find(_CODESTREAM)
    if start < 0:
        start = _codestream(data, most)
    if start >= 0:
        width, height, left, top = struct.unpack_from(">IIII", data, start + 8)
        found.append((height - top, width - left))
    if not found:
        raise _Unreadable("no image header box and no codestream")
    height, width = max(found, key=lambda extents: extents[0] * extents[1])
    return ImageHeader("jp2", height, width)


def _codestream(data: Any, most: int) -> int:
    """Return where the codestream begins, behind boxes of any size; -1 if it does not follow from them."""
    place = 0
    for _ in range(most):
        if place + 16 > len(data):
            return -1
        length, name = struct.unpack_from(">I4s", data, place)
        body = place + (16 if length == 1 else 8)
        if name == b"jp2c":
            return body if bytes(data[body : body + 4]) == _CODESTREAM else -1
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, place + 8)
        if length < body - place:
            return -1
        place += length
    raise LongHeaderError


def _avif(data: Any, most: int) -> ImageHeader:
    head = bytes(data[:_SEARCHED])
    height = width = 0
    start = head.find(b"ispe")
    for _ in range(most):
        if start < 0:
            return ImageHeader("avif", height, width)
        # There are several for grids and alpha planes: the largest is the image.
        w, h = struct.unpack_from(">II", head, start + 8)
        if w * h > width * height:
            height, width = h, w
        start = head.find(b"ispe", start + 4)
    raise LongHeaderError


def _raw(data: Any, most: int) -> ImageHeader:
    header = read_raw_header(data)
    return ImageHeader("raw", header.height, header.width)


_MAGIC: tuple[tuple[bytes, str, Callable[[Any, int], ImageHeader]], ...] = (
    (RAW_MAGIC, "raw", _raw),
    (b"\x89PNG\r\n\x1a\n", "png", _png),
    (b"GIF87a", "gif", _gif),
    (b"GIF89a", "gif", _gif),
    (b"BM", "bmp", _bmp),
    (b"II*\0", "tiff", _tiff),
    (b"MM\0*", "tiff", _tiff),
    (b"II+\0", "tiff", _tiff),
    (b"MM\0+", "tiff", _tiff),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2", _jp2),
    (b"\xff\x4f\xff\x51", "jp2", _jp2),
)


def _recognise(data: Any) -> tuple[str, Callable[[Any, int], ImageHeader]] | None:
    head = bytes(data[:16])
    for magic, name, read in _MAGIC:
        if head.startswith(magic):
            return name, read
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp", _webp
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "avif", _avif
    if len(head) > 2 and head[0] == 0x50 and head[1] in b"123456" and head[2] in b" \t\r\n#":
        return "pnm", _pnm
    return None


def format_of(head: bytes) -> str | None:
    """Return the format of the image that begins with these bytes; None if they are not the beginning of one.

    Args:
        head: the first 512 bytes of a file, or all of a shorter one. More of them are looked at than `read_header` does
            to choose a format: text may begin with "BM" or "P1", too.
    """
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    name = (_recognise(head) or (None,))[0]
    if name == "bmp" and head[15:18] != b"\0\0\0":
        return None
    return None if name == "pnm" and not _PNM.match(head) else name


def read_header(data: Any, *, quick: bool = False) -> ImageHeader:
    """Read an image's header; nothing is decoded.

    Args:
        data: bytes, bytearray or a flat memoryview of bytes.
        quick: take 2 ms at most. Otherwise 64 MiB of the smallest chunks may take half a second.

    Raises:
        LongHeaderError: it would take longer, with `quick`.
        DecodeError: the data is empty or of an unknown format, or its header is damaged or ends early.
    """
    n = len(data)
    # JPEG first and separately: it is the format that is read millions of times.
    if n > 3 and data[0] == 0xFF and data[1] == 0xD8 and data[2] == 0xFF:
        name: str = "jpeg"
        read: Callable[[Any, int], ImageHeader] = _jpeg
    elif n == 0:
        raise DecodeError("there is no data", nbytes=0)
    else:
        known = _recognise(data)
        if known is None:
            raise DecodeError("the first bytes match no image format that is supported", nbytes=n)
        name, read = known
    try:
        header = read(data, QUICK_STEPS if quick else most_steps(n))
    except LongHeaderError:
        if quick:
            raise
        raise DecodeError(
            "its header has thousands of segments or chunks of a few bytes", format=name, nbytes=n
        ) from None
    except _Unreadable as error:
        raise DecodeError(str(error), format=name, nbytes=n) from None
    except (struct.error, IndexError, OverflowError):
        raise DecodeError(ENDS_EARLY, format=name, nbytes=n) from None
    if header.height < 1 or header.width < 1:
        extents = f"height {header.height} and width {header.width}"
        raise DecodeError(f"the header announces {extents}", format=name, nbytes=n)
    return header


def image_size(data: Any) -> tuple[str, int, int]:
    """Return format, height and width of an encoded image, as stored, from its header alone.

    Args:
        data: bytes-like.

    Returns:
        (format, height, width); format as in `ImageHeader`.

    Raises:
        DecodeError: as `read_header`.
    """
    header = read_header(memoryview(data).cast("B"))
    return header.format, header.height, header.width
