"""Headers of images, format, height, width and orientation, numbers of their frames, and pointers in place of files.

Rule: nothing is decoded and nothing allocated; every read is checked against the length of the data, every loop moves
forward, and makes no more steps than `most_steps`. JPEG: segments up to the frame header (ITU T.81, B.2.2), and
up to the scan if those have no orientation. PNG, WebP: all chunks. The others: fixed places of their headers. Pure.
"""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioloader.errors import DecodeError, UnknownFormatError
from aioloader.jpeg.frame import APP1, EXIF, XMP, find_orientation, read_orientation
from aioloader.transforms.raw import RAW_MAGIC, read_raw_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LFS_POINTER = b"version https://git-lfs"
"""First bytes of a pointer."""
LFS_TEXT = "a pointer of Git LFS in place of the file"
LFS_ADVICE = "`git lfs pull` in its folder downloads it"


def refuse_pointer(path: str) -> None:
    """Raise UnknownFormatError if a local file is a pointer; called where it has turned out to be damaged."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise UnknownFormatError(path, LFS_TEXT, advice=LFS_ADVICE)


# The first characters of JPEG, PNG, GIF, WebP, TIFF and BMP files. Nothing is tried twice: spaces, which both parts
# match, would take time that grows with the square of their number.
_BASE64 = re.compile(r"(/9j/|iVBORw0KGgo|R0lGOD|UklGR|SUkqA|TU0AK|Qk0)[A-Za-z0-9+/_\s-]*+={0,2}\s*+")
_BASE64_HEAD = 4096
_LEAST_BASE64 = 64


class ImageHeader(NamedTuple):
    """Header of an image.

    Attributes:
        format: "jpeg", "png", "bmp", "gif", "webp", "tiff", "pnm", "jp2", "avif" or "raw" (see `encode_raw`).
        height, width: extents in pixels as stored, before any EXIF orientation; at least 1.
        orientation: 1 to 8, how the stored image is turned upright: as its EXIF block says or, where that does not,
            its XMP packet, or (AVIF) its `irot` and `imir`; None if the data says nothing.
    """

    format: str
    height: int
    width: int
    orientation: int | None = None


ENDS_EARLY = "the data ends within the header"
"""Reason of a `DecodeError`: more bytes of the same image may be all that is missing."""

_PNM_NUMBER = rb"(?:\s|#[^\r\n]*[\r\n])*([0-9]+)"
PNM_HEADER = re.compile(
    rb"P[1-6]" + _PNM_NUMBER + rb"[^0-9]" + _PNM_NUMBER + rb"(?:[^0-9]" + _PNM_NUMBER + rb")?"
)
"""Width, height and, unless it is a bitmap, the highest value: exactly as OpenCV reads them, else a comment could hide
the numbers that OpenCV will find."""

# More entries than any camera writes; limits the work that a damaged count can cause.
_MAX_ENTRIES = 512


# Segments, chunks and other steps of a header that take 1 ms.
QUICK_STEPS = 1024
# Steps of any image, and the bytes that each further one has at least.
_STEPS = 2048
_BYTES_OF_STEP = 128
# What is searched for boxes without following them.
_SEARCHED = 1 << 16
CODESTREAM: Final = b"\xff\x4f\xff\x51"
# Fill bytes that are one step.
_FILL = re.compile(rb"\xff{1,256}")


class LongHeaderError(Exception):
    """Error raised for a header that takes more than `QUICK_STEPS`, where reading must not take long."""


def most_steps(nbytes: int) -> int:
    """Return the most steps that reading the header of an image of some bytes may take."""
    return _STEPS + nbytes // _BYTES_OF_STEP


class _Unreadable(Exception):
    """Error raised when a header ends early or is invalid; `read_header` converts it to a DecodeError."""


def _jpeg(data: Any, most: int) -> ImageHeader:
    # The hot path, a few microseconds for a photograph.
    n = len(data)
    place = 2
    exif = xmp = extents = None
    reason = ENDS_EARLY
    for _ in range(most):
        if place + 4 > n:
            break
        if data[place] != 0xFF:
            reason = "bytes between the header's segments that belong to none of them"
            break
        marker = data[place + 1]
        if marker == 0xFF:
            place = _FILL.match(data, place).end() - 1  # type: ignore[union-attr]
            continue
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:
            place += 2
            continue
        if marker in (0xD8, 0xD9, 0xDA):
            reason = "no frame header before the image data"
            break
        length = data[place + 2] << 8 | data[place + 3]
        if length < 2:
            reason = "a segment of impossible length"
            break
        if marker == APP1:
            if exif is None and bytes(data[place + 4 : place + 10]) == EXIF:
                exif = (place + 10, min(place + 2 + length, n))
            elif bytes(data[place + 4 : place + 4 + len(XMP)]) == XMP:
                xmp = (place + 4 + len(XMP), min(place + 2 + length, n))
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and extents is None:
            if place + 9 > n:
                break
            extents = struct.unpack_from(">HH", data, place + 5)
            if extents[0] == 0:
                raise _Unreadable(
                    "the frame header has no height (a height that follows the data is not supported)"
                )
            if exif is not None or xmp is not None:
                break
        place += 2 + length
    else:
        raise LongHeaderError
    if extents is None:
        raise _Unreadable(reason)
    orientation = None if exif is None and xmp is None else find_orientation(data, exif, xmp)
    return ImageHeader("jpeg", extents[0], extents[1], orientation)


_XMP_KEYWORD = b"XML:com.adobe.xmp\0"
_PROFILE_KEYWORD = b"Raw profile type exif\0"
# The block of a camera is smaller than 64 KiB; the text of a profile has two characters for each byte.
_LONGEST_TEXT = 1 << 18


def _png(data: Any, most: int) -> ImageHeader:
    length, name, width, height = struct.unpack_from(">I4sII", data, 8)
    if name != b"IHDR" or length != 13:
        raise _Unreadable("the first chunk is not IHDR")
    place = 33
    exif = profile = packet = None
    for _ in range(most):
        if place + 12 > len(data):
            break
        length, name = struct.unpack_from(">I4s", data, place)
        body = place + 8
        if name == b"eXIf":
            exif = exif or (body, min(body + length, len(data)))
        elif name in (b"tEXt", b"zTXt", b"iTXt"):
            if bytes(data[body : body + len(_PROFILE_KEYWORD)]) == _PROFILE_KEYWORD:
                profile = (name, body + len(_PROFILE_KEYWORD), body + length)
            elif bytes(data[body : body + len(_XMP_KEYWORD)]) == _XMP_KEYWORD:
                packet = (name, body + len(_XMP_KEYWORD), body + length)
        place += 12 + length
    else:
        raise LongHeaderError
    found = None
    if exif is not None:
        found = read_orientation(data, *exif)
    elif profile is not None:
        # ImageMagick's: an empty line, the name, the size, and the bytes in hexadecimal digits.
        lines = _text(data, *profile).split(b"\n", 3)
        # `translate` takes 0.2 ms for a text of line breaks, `replace` 4.
        digits = lines[3].translate(None, b"\n") if len(lines) > 3 else b""
        try:
            found = read_orientation(bytes.fromhex(digits.decode("latin-1")))
        except ValueError:
            found = None
    if found is None and packet is not None:
        text = _text(data, *packet)
        found = find_orientation(text, None, (0, len(text)))
    return ImageHeader("png", height, width, found)


def _text(data: Any, chunk: bytes, start: int, stop: int) -> bytes:
    """Return the text of a chunk of a PNG, behind its keyword, as far as it is of use; b"" if it is malformed."""
    text = bytes(data[start : min(stop, start + _LONGEST_TEXT)])
    packed = chunk == b"zTXt"
    if chunk == b"iTXt":
        packed = text[:1] == b"\1"
        text = text[2:].split(b"\0", 2)[-1]
    elif packed:
        text = text[1:]
    if not packed:
        return text
    try:
        return zlib.decompressobj().decompress(text, _LONGEST_TEXT)
    except zlib.error:
        return b""


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
    exif = xmp = None
    for _ in range(most):
        if place + 8 > len(data):
            return ImageHeader("webp", height, width, find_orientation(data, exif, xmp))
        chunk, length = struct.unpack_from("<4sI", data, place)
        if chunk == b"EXIF":
            exif = exif or (place + 8, min(place + 8 + length, len(data)))
        elif chunk == b"XMP ":
            xmp = xmp or (place + 8, min(place + 8 + length, len(data)))
        place += 8 + length + (length & 1)
    raise LongHeaderError


class TiffEntry(NamedTuple):
    """Entry of the table of a TIFF page.

    Attributes:
        code: struct's format of a value, with the byte order; "" for types of no use here.
        values: number of values.
        place: offset of the first value in the data.
    """

    code: str
    values: int
    place: int


_TIFF_CODES = {1: "B", 3: "H", 4: "I", 7: "B", 16: "Q"}


def tiff_entries(data: Any) -> dict[int, TiffEntry]:
    """Return the entries of the first page of a TIFF or BigTIFF file by their tags.

    Raises:
        struct.error: the data ends before the table does.
    """
    order = "<" if data[0] == 0x49 else ">"
    if data[2 if order == "<" else 3] == 43:
        (table,) = struct.unpack_from(order + "Q", data, 8)
        (count,) = struct.unpack_from(order + "Q", data, table)
        first, step, word = table + 8, 20, "Q"
    else:
        (table,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, table)
        first, step, word = table + 2, 12, "I"
    room = struct.calcsize(word)
    entries: dict[int, TiffEntry] = {}
    for place in range(first, first + step * min(count, _MAX_ENTRIES), step):
        tag, kind, values = struct.unpack_from(order + "HH" + word, data, place)
        code = _TIFF_CODES.get(kind, "")
        at = place + 4 + room
        if code and struct.calcsize(code) * values > room:
            (at,) = struct.unpack_from(order + word, data, at)
        entries.setdefault(tag, TiffEntry(code and order + code, values, at))
    return entries


def tiff_value(data: Any, entries: dict[int, TiffEntry], tag: int, default: int) -> int:
    """Return the first value of an entry; `default` if there is no such entry, or its type is unknown."""
    entry = entries.get(tag)
    if entry is None or not entry.values or not entry.code:
        return default
    value: int = struct.unpack_from(entry.code, data, entry.place)[0]
    return value


ORIENTATION: Final = 274
_XMP_PACKET: Final = 700


def _tiff(data: Any, most: int) -> ImageHeader:
    entries = tiff_entries(data)
    width, height = tiff_value(data, entries, 256, 0), tiff_value(data, entries, 257, 0)
    turned = entries.get(ORIENTATION)
    if turned is not None:
        value = tiff_value(data, entries, ORIENTATION, 1) if turned.code and turned.values == 1 else 1
        return ImageHeader("tiff", height, width, value if 1 <= value <= 8 else 1)
    xmp = entries.get(_XMP_PACKET)
    span = None if xmp is None else (xmp.place, xmp.place + xmp.values)
    return ImageHeader("tiff", height, width, find_orientation(data, None, span))


def _pnm(data: Any, most: int) -> ImageHeader:
    head = bytes(data[:1024])
    found = PNM_HEADER.match(head)
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
    start = head.find(CODESTREAM)
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
            return body if bytes(data[body : body + 4]) == CODESTREAM else -1
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, place + 8)
        if length < body - place:
            return -1
        place += length
    raise LongHeaderError


_IROT = re.compile(rb"\0\0\0\x09irot(.)", re.DOTALL)
_IMIR = re.compile(rb"\0\0\0\x09imir(.)", re.DOTALL)
# Orientation by quarter turns to the left, and the axis of a mirror after them: 0 exchanges top and bottom, 1 left and
# right, -1: none.
_AVIF_TURNS = {
    **{(0, -1): None, (1, -1): 8, (2, -1): 3, (3, -1): 6},
    **{(0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7},
    **{(0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5},
}


def _avif(data: Any, most: int) -> ImageHeader:
    head = bytes(data[:_SEARCHED])
    height = width = 0
    start = head.find(b"ispe")
    for _ in range(most):
        if start < 0:
            # Rotation and mirroring are properties of the image; it is rotated first, and EXIF does not count.
            angle, axis = (
                -1 if box is None else box[1][0] for box in (_IROT.search(head), _IMIR.search(head))
            )
            turn = _AVIF_TURNS.get((angle & 3 if angle >= 0 else 0, axis))
            return ImageHeader("avif", height, width, turn)
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
    return None if name == "pnm" and not PNM_HEADER.match(head) else name


def read_header(data: Any, *, quick: bool = False) -> ImageHeader:
    """Read an image's header; nothing is decoded.

    Args:
        data: bytes, bytearray or a flat memoryview of bytes.
        quick: take 1 ms at most. Otherwise 64 MiB of the smallest chunks may take half a second.

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
            raise DecodeError(_instead(data), nbytes=n)
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


def orientation_may_follow(data: Any, header: ImageHeader) -> bool:
    """Return whether the orientation of an image may be behind its beginning.

    Args:
        data: the beginning.
        header: its header.
    """
    if header.orientation is not None:
        return False
    if header.format == "webp":  # its first chunk announces EXIF and XMP
        return bytes(data[12:16]) == b"VP8X" and bool(data[20] & 0x0C)
    return header.format in ("png", "tiff", "avif")


def _instead(data: Any) -> str:
    """Return what data of an unknown format is."""
    head = bytes(data[:256]).lstrip().lower()
    if head.startswith(LFS_POINTER):
        return f"it is {LFS_TEXT}: {LFS_ADVICE}"
    if head.startswith((b"<!doctype html", b"<html")):
        return (
            "it is a web page (HTML), perhaps of an error or a login, in place of the image: open its address in a "
            "browser"
        )
    if head.startswith((b"<svg", b"<?xml")):
        return "it is SVG or XML, which has no pixels: convert it to PNG first"
    if head.startswith(b"data:image/"):
        return (
            "it is the text of a data: URI: pass it as text to an image service, or decode its base64 first"
        )
    if is_base64_of_image(bytes(data[:_BASE64_HEAD]).decode("latin-1")):
        return "it is an image in base64: decode it first, base64.b64decode(data)"
    return "the first bytes match no image format that is supported"


def is_base64_of_image(text: str) -> bool:
    """Return whether a text is an image in base64, without anything before it."""
    return len(text) >= _LEAST_BASE64 and _BASE64.fullmatch(text[:_BASE64_HEAD]) is not None


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


def count_frames(data: Any, kind: str, most: int, *, quick: bool = False) -> int:
    """Count the frames of an image, or the pages of a TIFF.

    Args:
        data: the encoded image, a buffer of bytes whose header was read. Frames behind its end are not counted.
        kind: its format, as `aioloader.transforms.formats.read_header` names it.
        most: counting ends beyond this number, at least 1.
        quick: take 1 ms at most.

    Raises:
        LongHeaderError: it would take longer, with `quick`.
        DecodeError: it has very many blocks of a few bytes.

    Returns:
        1 to `most` + 1; 1 for formats without several frames, and where the structure is damaged at the start. The
        animation header of a PNG states the number, which is returned without a limit.
    """
    counters = {"gif": _gif_blocks, "webp": _webp_chunks, "tiff": _tiff_pages}
    view = memoryview(data)
    if kind == "png":
        return max(1, _png_frames(view))
    if kind not in counters:
        return 1
    count = 0
    limit = QUICK_STEPS if quick else most_steps(len(view))
    try:
        for step, is_frame in enumerate(counters[kind](view)):
            count += is_frame
            if count > most:
                break
            if step > limit:
                if quick:
                    raise LongHeaderError
                raise DecodeError(
                    "its frames have very many blocks of a few bytes", format=kind, nbytes=len(view)
                )
    except (struct.error, IndexError):  # the data ends here
        pass
    return max(1, count)


def _gif_blocks(view: memoryview) -> Iterator[bool]:
    """Iterate over the blocks: True for an image descriptor (GIF89a, 20)."""
    place = 13 + _table_nbytes(view[10])
    while True:
        block = view[place]
        yield block == 0x2C
        if block == 0x2C:
            place += 10 + _table_nbytes(view[place + 9]) + 1
        elif block == 0x21:
            place += 2
        else:  # the trailer, or damage
            return
        while size := view[place]:
            yield False
            place += 1 + size
        place += 1


def _table_nbytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp_chunks(view: memoryview) -> Iterator[bool]:
    """Iterate over the chunks: True for a frame (RIFF; WebP container, ANMF)."""
    place = 12
    while place + 8 <= len(view):
        yield bytes(view[place : place + 4]) == b"ANMF"
        (size,) = struct.unpack_from("<I", view, place + 4)
        place += 8 + size + (size & 1)


def _tiff_pages(view: memoryview) -> Iterator[bool]:
    """Iterate over the directories (TIFF 6.0, section 2; BigTIFF)."""
    order = "<" if view[0] == 0x49 else ">"
    big = view[2 if order == "<" else 3] == 43
    count_code, entry, link = ("Q", 20, "Q") if big else ("H", 12, "I")
    (place,) = struct.unpack_from(order + link, view, 8 if big else 4)
    seen: set[int] = set()
    while place and place not in seen:
        seen.add(place)
        (entries,) = struct.unpack_from(order + count_code, view, place)
        yield True
        (place,) = struct.unpack_from(
            order + link, view, place + struct.calcsize(order + count_code) + entry * entries
        )


def _png_frames(view: memoryview) -> int:
    """Return the number in the animation header (APNG, acTL), which comes before the pixels; 0 if there is none."""
    place = 8
    while place + 12 <= len(view):
        (size,) = struct.unpack_from(">I", view, place)
        kind = bytes(view[place + 4 : place + 8])
        if kind == b"acTL" and size >= 4:
            return int(struct.unpack_from(">I", view, place + 8)[0])
        if kind in (b"IDAT", b"IEND"):
            return 0
        place += 12 + size
    return 0
