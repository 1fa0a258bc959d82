"""Decoder of whole images: encoded bytes to pixels.

Rule: JPEG goes to simplejpeg in strict mode, where a warning is an error, so that a truncated or damaged file never
passes as an image. One warning is accepted, because no data is lost: extraneous bytes before the EOI marker. OpenCV,
which fills missing data with grey, gets a JPEG only if simplejpeg does not support its sampling factors, and only after
the file was followed to its EOI marker. Raw images (docs/format.md) are copied. All other formats go to OpenCV (see
`opencv_formats`), which refuses truncated files itself.
"""

from __future__ import annotations

import struct
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from aioloader.errors import BitDepthWarning, DecodeError
from aioloader.jpeg.cut import harmless, markers_are_whole
from aioloader.jpeg.frame import count_components, read_frame
from aioloader.transforms.base import drop_grey_axis
from aioloader.transforms.formats import ImageHeader, read_header
from aioloader.transforms.opencv_formats import decode_by_opencv, sample_bits
from aioloader.transforms.raw import raw_image

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

DEFAULT_MAX_PIXELS = 178_956_970
"""Default of `max_pixels`: the number of 3-byte pixels that fit in half a GiB, the limit of Pillow too."""

# Progressive files have about ten. libjpeg-turbo's tools have the same limit.
_MOST_SCANS = 500
# The decoder visits every block in each scan, which takes 0.15 ns a pixel, however few bytes it has: 64 scans take
# about as long as decoding the image does. More of them are allowed as long as they take a third of a second.
_SCANS_OF_ANY_SIZE = 64
_MOST_SCANNED_PIXELS = 1 << 31

# Of texts, colours and so on. An encoder writes a dozen.
_MOST_PNG_CHUNKS = 1024
_PNG_PIXELS = (b"IDAT", b"fdAT", b"fcTL")

# Headers of the last JPEG that was found to have one scan, if they are no longer than this: images of one size written
# by one program have the same headers.
_MOST_KNOWN = 4096
_known_headers = b""

_warned = False


class BufferPool(Protocol):
    """Pool of memory for pixels, such as `Scratch`."""

    def take(self, nbytes: int) -> Array:
        """Return a buffer that nothing else refers to: uint8 (nbytes,), C-contiguous and writable."""
        ...


def decode_image(
    data: Any,
    *,
    flag: int = 1,
    exif: str = "apply",
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    scratch: BufferPool | None = None,
    path: str | None = None,
) -> Array:
    """Decode an image: JPEG, PNG, BMP, WebP, TIFF, PNM, a raw image (`encode_raw`), and GIF, JPEG 2000 and AVIF where
    OpenCV was built for them.

    Alpha is dropped, palettes are resolved, 16-bit samples become 8-bit, with a `BitDepthWarning` the first time, CMYK
    becomes RGB (Adobe's inverted values are assumed, as in other decoders), only the first frame of several is read.
    The pixels are those of ``ImageOps.exif_transpose(image).convert("RGB")`` of Pillow, within one level.

    Args:
        data: the encoded image, bytes-like.
        flag: 1 for colour; 0 for grey; -1 for the channels and the depth of the file: grey, RGB or RGBA, 8 or 16 bits,
            or the numbers of a TIFF.
        exif: "apply" turns the image upright by the orientation in its EXIF block or its XMP packet (JPEG, PNG, WebP,
            TIFF), or by its `irot` and `imir` (AVIF); "ignore" leaves it as stored.
        max_pixels: images whose header announces more pixels than this are refused before anything is decoded or
            allocated; None for no limit.
        scratch: pool for the pixels, a `Scratch`; None for new memory.
        path: file that the data is from, for the error.

    Returns:
        uint8 (height, width, 3) RGB, or (height, width, 1) grey; writable, C-contiguous. In `scratch` its memory is
        used again only after the array and all its views are deleted. With ``flag=-1`` (height, width, 1, 3 or 4),
        uint8, uint16 (white is 65535, also of samples of 10 or 12 bits), or the dtype of a TIFF.

    Raises:
        DecodeError: the data is not an image, or is damaged, truncated, too large, or of a kind that is not supported.
        ValueError: `flag` or `exif` is not allowed.
    """
    try:
        if exif != "apply" and exif != "ignore":
            raise ValueError(f"exif must be 'apply' or 'ignore', got {exif!r}")
        if flag != 1 and flag != 0 and flag != -1:
            raise ValueError(f"flag must be 1 (colour), 0 (grey) or -1 (as stored), got {flag!r}")
        if type(data) is not bytes:
            data = memoryview(data)
            if data.format != "B" or data.ndim != 1:
                data = data.cast("B")
        header = checked_header(data, max_pixels)
        if header.format == "jpeg":
            image = _decode_jpeg(data, header, flag, scratch, path)
        elif header.format == "raw":
            image = _copy_raw(data, flag, scratch)
        else:
            image = decode_by_opencv(data, header, flag, path)
            check_extents(ImageHeader(header.format, *image.shape[:2]), max_pixels, len(data))
            if flag != -1:
                _warn_of_bits(sample_bits(data, header), header.format, path)
        if exif == "apply" and header.orientation is not None:
            image = upright(image, header.orientation, scratch)
        return image
    except DecodeError as error:
        if path is not None:
            error.add_note(f"file: {path}")
        raise


def checked_header(data: Any, max_pixels: int | None) -> ImageHeader:
    """Return the header of an image that may be decoded: not too large, and not made to consume time or memory.

    Args:
        data: the encoded image, bytes or a flat memoryview of bytes.
        max_pixels: the limit; None for none.

    Raises:
        DecodeError: the image may not be decoded, or the data is not an image.
    """
    header = read_header(data)
    check_extents(header, max_pixels, len(data))
    if header.format == "jpeg":
        check_scans(data, header.height * header.width)
    elif header.format == "png":
        _check_png(data)
    return header


def check_extents(header: ImageHeader, max_pixels: int | None, nbytes: int) -> None:
    """Refuse more pixels than the limit.

    Args:
        header: the header, or one with the actual extents: in a few formats two headers can differ.
        max_pixels: the limit; None for none.
        nbytes: bytes of the encoded image.

    Raises:
        DecodeError: there are more.
    """
    pixels = header.height * header.width
    if max_pixels is not None and pixels > max_pixels:
        raise DecodeError(
            f"{header.width} x {header.height} is {pixels} pixels, more than max_pixels={max_pixels}; "
            "raise max_pixels if you trust the image",
            format=header.format,
            nbytes=nbytes,
        )


def check_scans(data: Any, pixels: int) -> None:
    """Refuse a JPEG with very many scans: a few bytes each make the decoder process the whole image.

    Args:
        data: the JPEG.
        pixels: height times width.

    Raises:
        DecodeError: there are more than any encoder writes.
    """
    # If one scan holds all components, nothing behind it is read.
    if _has_one_scan(data):
        return
    scans = bytes(data).count(b"\xff\xda")
    most = max(_SCANS_OF_ANY_SIZE, min(_MOST_SCANS, _MOST_SCANNED_PIXELS // max(pixels, 1)))
    if scans > most:
        reason = f"{scans} scans of {pixels} pixels, more than {most}; no encoder writes that many"
        raise DecodeError(reason, format="jpeg", nbytes=len(data))


def _has_one_scan(data: Any) -> bool:
    global _known_headers
    known = _known_headers
    if known and bytes(data[: len(known)]) == known:
        return True
    frame = read_frame(data)
    if frame is None:
        return False
    if frame.scan_start <= _MOST_KNOWN:
        _known_headers = bytes(data[: frame.scan_start])
    return True


def _decode_jpeg(
    data: Any, header: ImageHeader, flag: int, scratch: BufferPool | None, path: str | None
) -> Array:
    from simplejpeg import decode_jpeg

    if flag == -1:
        flag = int(count_components(data) != 1)
    colorspace, channels = ("RGB", 3) if flag else ("GRAY", 1)
    buffer = None if scratch is None else scratch.take(header.height * header.width * channels)
    image: Array
    try:
        try:
            image = decode_jpeg(data, colorspace, buffer=buffer, strict=True)
        except ValueError as error:
            if not harmless(str(error)) or not markers_are_whole(data):
                raise
            image = decode_jpeg(data, colorspace, buffer=buffer, strict=False)
    except (ValueError, RuntimeError) as error:
        reason = str(error)
    else:
        return image
    if "subsampling" not in reason:
        raise DecodeError(reason, format="jpeg", nbytes=len(data))
    if not _reaches_end(data):
        raise DecodeError("the data ends before the EOI marker", format="jpeg", nbytes=len(data))
    return decode_by_opencv(data, header, flag, path)


def _reaches_end(data: Any) -> bool:
    """Return True if a JPEG's markers lead to its EOI."""
    text = bytes(data)
    place = 2
    while place + 2 <= len(text):
        # Between segments: fill bytes. After a scan header: entropy-coded data with stuffed zeros and RSTn.
        place = text.find(b"\xff", place)
        if place < 0 or place + 2 > len(text):
            return False
        marker = text[place + 1]
        if marker == 0xD9:
            return True
        if marker == 0xFF:
            place += 1
        elif marker <= 0x01 or 0xD0 <= marker <= 0xD8:
            place += 2
        else:
            place += 2 + int.from_bytes(text[place + 2 : place + 4], "big")
    return False


def _copy_raw(data: Any, flag: int, scratch: BufferPool | None) -> Array:
    pixels = raw_image(data)
    height, width, stored = pixels.shape
    channels = stored if flag == -1 else 3 if flag else 1
    nbytes = height * width * channels
    buffer = np.empty(nbytes, np.uint8) if scratch is None else scratch.take(nbytes)
    image = buffer.reshape(height, width, channels)
    if stored == channels:
        image[...] = pixels
    else:
        import cv2

        # OpenCV does not support an axis of extent 1.
        if flag:
            cv2.cvtColor(pixels[:, :, 0], cv2.COLOR_GRAY2RGB, dst=image)
        else:
            cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY, dst=image[:, :, 0])
    return image


def _check_png(data: Any) -> None:
    """Refuse what costs the decoder more than the pixels do.

    OpenCV allocates up to 4 GiB for a chunk that is longer than the data, before it checks. libpng writes a line to
    standard error for each faulty chunk.
    """
    place, others = 8, 0
    while place + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, place)
        place += 12 + length
        if place > len(data):
            raise DecodeError("a chunk is longer than the data", format="png", nbytes=len(data))
        if name == b"IEND":
            return
        others += name not in _PNG_PIXELS
        if others > _MOST_PNG_CHUNKS:
            reason = f"more than {_MOST_PNG_CHUNKS} chunks without pixels; no encoder writes that many"
            raise DecodeError(reason, format="png", nbytes=len(data))


def _warn_of_bits(bits: int, name: str, path: str | None) -> None:
    global _warned
    if bits > 8 and not _warned:
        _warned = True
        warnings.warn(BitDepthWarning(bits, format=name, path=path), stacklevel=3)


def upright(image: Array, orientation: int, scratch: BufferPool | None = None) -> Array:
    """Turn a stored image upright.

    Args:
        image: (height, width, channels), may be rows of a larger image; altered for orientations 2, 3 and 4.
        orientation: 1 to 8.
        scratch: pool for the result of orientations 5 to 8; None for new memory.

    Returns:
        `image` itself, or (width, height, channels) for orientations 5 to 8.
    """
    if orientation == 1:
        return image
    import cv2

    source = drop_grey_axis(image)
    if orientation <= 4:
        cv2.flip(source, {2: 1, 3: -1, 4: 0}[orientation], dst=source)
        return image
    height, width, channels = image.shape
    buffer = np.empty(image.nbytes, np.uint8) if scratch is None else scratch.take(image.nbytes)
    result = buffer.view(image.dtype).reshape(width, height, channels)
    plane = drop_grey_axis(result)
    cv2.transpose(source, dst=plane)
    code = {5: None, 6: 1, 7: -1, 8: 0}[orientation]
    if code is not None:
        cv2.flip(plane, code, dst=plane)
    return result


def stored_box(
    box: tuple[int, int, int, int], orientation: int, height: int, width: int
) -> tuple[int, int, int, int]:
    """Return the place in the stored image of a rectangle of the upright one.

    Args:
        box: (x, y, width, height) in the upright image.
        orientation: 1 to 8.
        height, width: extents of the stored image.

    Returns:
        (x, y, width, height) in the stored image.
    """
    x, y, w, h = box
    if orientation >= 5:  # turning upright exchanges height and width
        # Undo the flip that follows the transposition, then the transposition.
        if orientation in (6, 7):
            x = height - x - w
        if orientation in (7, 8):
            y = width - y - h
        return y, x, h, w
    if orientation in (2, 3):
        x = width - x - w
    if orientation in (3, 4):
        y = height - y - h
    return x, y, w, h
