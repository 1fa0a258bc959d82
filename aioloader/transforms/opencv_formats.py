"""Decoding by OpenCV, of all formats except JPEG and raw images.

Rule: the pixels are those of Pillow's conversion to RGB, within one level. OpenCV makes others of some kinds: it
multiplies colours by alpha, leaves samples unscaled, shows the background behind transparent pixels. For these it gets
the data with a field changed, or its result is corrected; kinds for which neither is exact are refused by name.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from aioloader.errors import DecodeError
from aioloader.foundation.decodes import decoder_messages
from aioloader.transforms.formats import (
    CODESTREAM,
    ENDS_EARLY,
    ORIENTATION,
    PNM_HEADER,
    tiff_entries,
    tiff_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array
    from aioloader.transforms.formats import ImageHeader

    Correction: TypeAlias = Callable[[Array], Array]


class _Plan(NamedTuple):
    """Way to decode an image.

    Attributes:
        data: what OpenCV gets.
        mode: OpenCV's flags; None for those that follow from the flag of the caller.
        correct: makes the right array of OpenCV's, with the channels in the same order; None if that is right.
    """

    data: Any
    mode: int | None = None
    correct: Correction | None = None


class _Refused(Exception):
    """Reason why an image is not decoded; `decode_by_opencv` converts it to a DecodeError."""


def decode_by_opencv(data: Any, header: ImageHeader, flag: int, path: str | None = None) -> Array:
    """Decode an image, without turning it.

    Args:
        data: the encoded image, bytes or a flat memoryview of bytes.
        header: its header.
        flag: 1 for colour, 0 for grey, -1 for the channels and bits of the file; see `decode_image`.
        path: file that the data is from, for messages of the decoder.

    Raises:
        DecodeError: OpenCV cannot decode it, or would make wrong pixels of it.
    """
    import cv2

    prepare = _PLANS.get(header.format)
    try:
        plan = _Plan(data) if prepare is None else prepare(data, flag)
    except _Refused as error:
        raise DecodeError(str(error), format=header.format, nbytes=len(data)) from None
    except (struct.error, IndexError):
        raise DecodeError(ENDS_EARLY, format=header.format, nbytes=len(data)) from None
    if flag == -1:
        mode = cv2.IMREAD_UNCHANGED
    elif flag or plan.correct is not None:
        mode = cv2.IMREAD_COLOR
    else:
        mode = cv2.IMREAD_GRAYSCALE
    image = opencv_image(plan.data, header.format, mode if plan.mode is None else plan.mode, path)
    if plan.correct is not None:
        try:
            image = plan.correct(image)
        except _Refused as error:
            raise DecodeError(str(error), format=header.format, nbytes=len(data)) from None
    if flag == -1 and header.format in ("jp2", "avif") and image.dtype == np.uint16:
        image = _scaled(image, (1 << sample_bits(data, header)) - 1, 65535)
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels == 1 and flag == 1:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB)
    elif channels > 1 and flag == 0:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    elif channels > 1:
        order = (2, 1, 0) if channels == 3 or flag == 1 else (2, 1, 0, 3)
        if channels == 3 and image.dtype == np.uint8:
            cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
        else:
            image = np.ascontiguousarray(image[..., order])
    return image[:, :, None] if image.ndim == 2 else image


def opencv_image(data: Any, name: str, mode: int, path: str | None = None) -> Array:
    """Decode an image with OpenCV; its channels are in OpenCV's order.

    Args:
        data: the encoded image, bytes or a flat memoryview of bytes.
        name: its format, for the error.
        mode: OpenCV's flags, such as ``cv2.IMREAD_UNCHANGED``; an orientation is ignored where OpenCV can do that.
        path: file that the data is from, for messages of the decoder.

    Raises:
        DecodeError: OpenCV cannot decode it.
    """
    import cv2

    if mode != cv2.IMREAD_UNCHANGED:
        mode |= cv2.IMREAD_IGNORE_ORIENTATION
    with decoder_messages.caught(path):
        try:
            image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), mode)
        except cv2.error as error:
            reason = f"OpenCV: {' '.join(str(error).split())}"
            raise DecodeError(reason, format=name, nbytes=len(data)) from None
        if image is None:
            reason = f"truncated, damaged, or of a kind that OpenCV {cv2.__version__} cannot read"
            raise DecodeError(reason, format=name, nbytes=len(data))
    result: Array = image
    return result


def sample_bits(data: Any, header: ImageHeader) -> int:
    """Return the bits of a sample of an image, of a format that may have more than 8 of them; 8 for the others."""
    try:
        if header.format == "png":
            return int(data[24])
        if header.format == "tiff":
            return tiff_value(data, tiff_entries(data), _BITS, 1)
        if header.format == "pnm":
            return _pnm_top(data).bit_length()
        if header.format == "jp2":
            return 1 + int(data[bytes(data).index(CODESTREAM) + 42] & 0x7F)
        if header.format == "avif":
            return int(data[bytes(data[:65536]).index(b"pixi") + 9])
    except (struct.error, IndexError, ValueError, _Refused):
        pass
    return 8


# --- PNG: of an animation the image that programs without animations show ---


def _png(data: Any, flag: int) -> _Plan:
    import cv2

    mode = None
    kept, animated = [bytes(data[:8])], False
    place = 8
    while place + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, place)
        if name in (b"acTL", b"fcTL", b"fdAT"):
            animated = True
        elif name == b"IDAT" and not animated:
            return _Plan(data, mode)
        else:
            if flag == 0 and name in (b"gAMA", b"sRGB", b"iCCP", b"cICP"):
                # libpng takes the gamma into account when it makes grey of colours.
                mode = cv2.IMREAD_COLOR
            kept.append(bytes(data[place : place + 12 + length]))
        place += 12 + length
    return _Plan(b"".join(kept) if animated else data, mode)


# --- GIF: the first frame, with every colour opaque ---


def _gif(data: Any, flag: int) -> _Plan:
    if flag == -1:
        return _Plan(data)
    flags, place, fill = data[10], 13, 0
    table = b""
    if flags & 0x80:
        place += 6 << (flags & 7)
        table = bytes(data[13:place])
    while data[place] != 0x2C:
        if data[place] == 0x3B:
            raise _Refused("there is no frame")
        if data[place] == 0x21:
            if data[place + 1] == 0xF9:
                # What a frame leaves free shows its transparent colour.
                fill = data[place + 6] if data[place + 3] & 1 else 0
            place = _behind_blocks(data, place + 2)
        else:
            raise _Refused("bytes that belong to no block and no frame")
    frame, body = data[place + 9], place + 10
    if frame & 0x80:
        flags = frame
        body += 6 << (flags & 7)
        table = bytes(data[place + 10 : body])
    if not table:
        raise _Refused("there is no table of its colours")
    screen = bytes((0xF0 | flags & 7, fill if 3 * fill < len(table) else 0, 0))
    frame_head = bytes(data[place : place + 9]) + bytes((frame & 0x40,))
    codes = bytes(data[body : _behind_blocks(data, body + 1)])
    return _Plan(bytes(data[:10]) + screen + table + frame_head + codes + b"\x3b")


def _behind_blocks(data: Any, place: int) -> int:
    while size := data[place]:
        place += 1 + size
    return place + 1


# --- BMP: samples of 5 and 6 bits ---


def _bmp(data: Any, flag: int) -> _Plan:
    core = struct.unpack_from("<I", data, 14)[0] == 12
    (bits,) = struct.unpack_from("<H", data, 24 if core else 28)
    if core or bits != 16:
        return _Plan(data)
    masks = (0x7C00, 0x3E0, 0x1F)
    if struct.unpack_from("<I", data, 30)[0] == 3:
        masks = struct.unpack_from("<III", data, 54)
    if masks not in ((0x7C00, 0x3E0, 0x1F), (0xF800, 0x7E0, 0x1F)):
        raise _Refused(f"the masks {', '.join(map(hex, masks))} of its 16 bits are not supported")
    green = 6 if masks[1] == 0x7E0 else 5

    def widen(image: Array) -> Array:
        # OpenCV shifts the samples up, so that white is 248.
        return image | image >> np.array([5, green, 5], np.uint8)

    return _Plan(data, correct=widen)


# --- TIFF: alpha, orientation, and colours ---

_BITS, _COLOURS, _SAMPLES, _PLANES, _EXTRA, _KIND = 258, 262, 277, 284, 338, 339
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2
_READ = (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, 3, 5, 6)  # a palette, CMYK, YCbCr
_NOT_READ = {8: "CIELAB", 9: "ICCLAB", 10: "ITULAB", 32803: "a filter array", 32844: "LogL", 32845: "LogLuv"}


def _tiff(data: Any, flag: int) -> _Plan:
    import cv2

    entries = tiff_entries(data)

    def value(tag: int, default: int) -> int:
        return tiff_value(data, entries, tag, default)

    colours, samples, bits = value(_COLOURS, _BLACK_IS_ZERO), value(_SAMPLES, 1), value(_BITS, 1)
    unsigned, extra = value(_KIND, 1) == 1, value(_EXTRA, 0)
    if colours not in _READ:
        name = _NOT_READ.get(colours, f"PhotometricInterpretation {colours}")
        raise _Refused(f"its colours are {name}, which is not supported; convert the image to RGB")
    if flag != -1 and not unsigned:
        raise _Refused(
            "its samples are signed or floating-point numbers; flag=-1 returns them as they are stored"
        )
    if (flag == -1 or extra == 1) and bits > 8 and samples > 1 and value(_PLANES, 1) == 2:
        raise _Refused("its samples of more than 8 bits are in separate planes, which is not supported")
    if extra == 1 and (colours != _RGB or samples != 4):
        raise _Refused(
            "its colours are multiplied by alpha; only those of RGB with alpha can be divided again"
        )
    changed = bytearray(data)
    # OpenCV turns TIFF images even with the flag against it, and multiplies by alpha of this kind.
    for tag, old, new in ((ORIENTATION, None, 1), (_EXTRA, 2, 0)):
        entry = entries.get(tag)
        if entry is not None and entry.code and entry.values and old in (None, value(tag, 0)):
            struct.pack_into(entry.code, changed, entry.place, new)
    if extra == 1:
        return _Plan(changed, cv2.IMREAD_UNCHANGED, _divided if flag == -1 else _divided_in_8_bits)
    if flag != -1:
        return _Plan(changed)
    if colours not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):
        return _Plan(changed, cv2.IMREAD_COLOR)
    inverted = colours == _WHITE_IS_ZERO and bits > 8 and unsigned
    return _Plan(changed, correct=np.invert if inverted else None)


def _divided(image: Array) -> Array:
    """Return the image with its colours divided by alpha, as they were before they were multiplied by it."""
    if image.ndim != 3 or image.shape[2] != 4:
        raise _Refused("its colours are multiplied by alpha, and OpenCV does not return alpha")
    full = int(np.iinfo(image.dtype).max)
    wide = image.astype(np.uint32)
    colours, alpha = wide[..., :3], wide[..., 3:]
    divided = np.minimum(colours * full // np.maximum(alpha, 1), full)
    return np.dstack([np.where(alpha == 0, colours, divided).astype(image.dtype), image[..., 3]])


def _divided_in_8_bits(image: Array) -> Array:
    divided = _divided(image)
    return divided if divided.dtype == np.uint8 else (divided >> 8).astype(np.uint8)


# --- PNM: samples up to any number ---


def _pnm_top(data: Any) -> int:
    """Return the number of white; 1 for bitmaps."""
    found = PNM_HEADER.match(bytes(data[:1024]))
    if found is None or (found[3] is None and found[0][1:2] not in b"14"):
        raise _Refused("no highest value in the header")
    top = 1 if found[0][1:2] in b"14" else int(found[3])
    if not 1 <= top <= 65535:
        raise _Refused(f"the highest value {top} is not between 1 and 65535")
    return top


def _pnm(data: Any, flag: int) -> _Plan:
    import cv2

    top, digit = _pnm_top(data), data[1] - 0x30
    if digit in (1, 4):
        return _Plan(data)
    plain = digit < 4
    if plain:
        # OpenCV refuses a number at the very end.
        data = bytes(data) + b"\n"
    if top == 255 or (plain and top < 256):  # OpenCV scales those in text itself
        return _Plan(data)
    full = 65535 if top > 255 and flag == -1 else 255
    mode = cv2.IMREAD_UNCHANGED if flag == -1 else cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
    return _Plan(data, mode, lambda image: _scaled(image, top, full))


def _scaled(image: Array, top: int, full: int) -> Array:
    """Return samples of 8 or 16 bits of which `top` is white, scaled so that `full`, 255 or 65535, is."""
    levels = np.arange(np.iinfo(image.dtype).max + 1)
    table = np.minimum(np.rint(levels * (full / top)), full).astype(np.uint8 if full == 255 else np.uint16)
    scaled: Array = table[image]
    return scaled


# --- JPEG 2000 ---

_COLOUR_SPACE = re.compile(rb"colr\x01..(....)", re.DOTALL)


def _jp2(data: Any, flag: int) -> _Plan:
    import cv2

    space = _COLOUR_SPACE.search(bytes(data[:4096]))
    if space is not None and int.from_bytes(space[1], "big") == 18:
        raise _Refused("its colours are sYCC, which is not supported; convert the image to RGB")
    stream = bytes(data).find(CODESTREAM)
    (components,) = struct.unpack_from(">H", data, stream + 40)
    # OpenCV makes no colours of one component without the boxes of a file around it.
    return _Plan(data, cv2.IMREAD_GRAYSCALE if components < 3 and flag != -1 else None)


_PLANS: dict[str, Callable[[Any, int], _Plan]] = {
    "bmp": _bmp,
    "gif": _gif,
    "jp2": _jp2,
    "png": _png,
    "pnm": _pnm,
    "tiff": _tiff,
}
