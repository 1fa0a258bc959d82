"""Encodings of the columns of MDS samples: bytes to values. Pure.

Source: the package mosaicml-streaming (`streaming.base.format.mds.encodings`); docs/formats.md, "MDS (MosaicML
Streaming)", has the table of encodings. Numbers are little endian.

Pickled values (`pkl`) are refused: unpickling runs code that the data contain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array

_WORD: Final = 4
_MOST_DIMENSIONS: Final = 63
_PIXEL_NBYTES: Final = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "RGBa": 4, "RGBX": 4}
_MOST_MODE_NBYTES: Final = 16

# Codes of dtypes in arrays that have their own dtype.
_DTYPES: Final = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_SHAPE: Final = re.compile(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*")


class EncodingKind(Enum):
    """Kind of the values of an encoding."""

    BYTES = "bytes"
    """Any bytes."""
    TEXT = "text"
    """UTF-8 text."""
    JSON = "json"
    """JSON text."""
    IMAGE = "image"
    """Encoded image."""
    PIXELS = "pixels"
    """Pixels: uint8 (height, width, 3) or (height, width, 1), a view of the data."""
    IMAGES = "images"
    """List of encoded images, or of pixels."""
    ARRAY = "array"
    """Array."""
    NUMBER = "number"
    """Number: a numpy scalar, an int of any size, or a Decimal."""


@dataclass(frozen=True)
class Encoding:
    """Encoding of a column.

    Attributes:
        kind: of the values.
        nbytes: size of every value; None if it varies.
        decode: takes the bytes of a value, and returns the value: a memoryview of bytes, text, JSON and encoded images.
            Raises ValueError if they are not a value of this encoding.
    """

    kind: EncodingKind
    nbytes: int | None
    decode: Callable[[memoryview], Any]


def parse_encoding(text: str) -> Encoding:
    """Return the encoding of a name in an index.

    Args:
        text: such as "jpeg", "int" or "ndarray:float32:3,4".

    Raises:
        ValueError: values of this encoding are not read; the text says why.
    """
    if text == "pkl":
        raise ValueError(
            "its values are pickled, and unpickling runs code that the data contain: leave the column out, or write "
            "the set again with another encoding, such as json or ndarray"
        )
    name, colon, arguments = text.partition(":")
    if name == "ndarray":
        return _array_encoding(arguments if colon else None)
    found = _ENCODINGS.get(text)
    if found is None:
        raise ValueError(
            f"the encoding {text!r} is not known; known are {', '.join((*_ENCODINGS, 'ndarray'))}"
        )
    return found


def _array_encoding(arguments: str | None) -> Encoding:
    """Return the encoding of arrays with the arguments DTYPE, or DTYPE:EXTENT,EXTENT..., or none."""
    if not arguments:
        return Encoding(EncodingKind.ARRAY, None, partial(decode_array, dtype=None, shape=None))
    dtype, colon, extents = arguments.partition(":")
    if dtype not in _DTYPES.values() or (colon and not _SHAPE.fullmatch(extents)):
        raise ValueError(f"the encoding 'ndarray:{arguments}' is malformed")
    if not colon:
        return Encoding(EncodingKind.ARRAY, None, partial(decode_array, dtype=dtype, shape=None))
    shape = tuple(map(int, extents.split(",")))
    nbytes = np.dtype(dtype).itemsize * _product(shape)
    if len(shape) > _MOST_DIMENSIONS or nbytes >= 1 << 32:
        raise ValueError(f"the encoding 'ndarray:{arguments}' has an array that is too large")
    return Encoding(EncodingKind.ARRAY, nbytes, partial(decode_array, dtype=dtype, shape=shape))


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product


# -- values ----------------------------------------------------------------------------------------------------------


def _as_stored(data: memoryview) -> memoryview:
    """Return the bytes themselves."""
    return data


def _number(data: memoryview, *, dtype: str) -> Any:
    kind = np.dtype(dtype)
    if len(data) != kind.itemsize:
        raise ValueError(f"a value of {len(data)} bytes is not {dtype}")
    return np.frombuffer(data, kind)[0]


def _digits(data: memoryview) -> int:
    return int(str(data, "utf-8"))


def _float_text(data: memoryview) -> np.float64:
    return np.float64(float(str(data, "utf-8")))


def _decimal_text(data: memoryview) -> Decimal:
    text = str(data, "utf-8")
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:40]!r} is not a decimal number") from None


def decode_array(data: memoryview, *, dtype: str | None, shape: tuple[int, ...] | None) -> Array:
    """Return an array, with new memory.

    Args:
        data: [code of the dtype] [number of dimensions, and size of an extent] [extents] values; each part in brackets
            only where the encoding leaves it open.
        dtype: of the values; None: the first byte is its code.
        shape: of the array; None: the data have it.

    Raises:
        ValueError: the bytes are not an array of that size.
    """
    at = 0
    if dtype is None:
        code = data[0] if len(data) else 0
        if code not in _DTYPES:
            raise ValueError(f"{code} is not the code of a dtype")
        dtype, at = _DTYPES[code], 1
    if shape is None:
        head = data[at] if len(data) > at else 0
        dimensions, width = head >> 2, 1 << (head & 3)
        begin = at + 1
        at = begin + dimensions * width
        if len(data) < at:
            raise ValueError("the data end inside the shape of the array")
        shape = tuple(np.frombuffer(data[begin:at], f"<u{width}").tolist()) if dimensions else ()
    kind = np.dtype(dtype)
    nbytes = _product(shape) * kind.itemsize
    if at + nbytes != len(data):
        raise ValueError(
            f"an array of {dtype} with the shape {shape} has {nbytes} bytes, and the data {len(data) - at}"
        )
    try:
        array: Array = np.empty(shape, kind)
    except OverflowError as error:  # extents of an array without elements
        raise ValueError(str(error)) from None
    if nbytes:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[at:], np.uint8)
    return array


def decode_pixels(data: memoryview) -> Array:
    """Return the pixels of an image that is stored without compression (`pil`).

    Args:
        data: width, height and length of the mode (uint32), the mode, and the pixels, without padding. Modes RGB, L,
            RGBA, RGBa, RGBX, LA and 1 are read; alpha is dropped.

    Returns:
        uint8 (height, width, 3) RGB or (height, width, 1) grey; a view of the data where that is possible.

    Raises:
        ValueError: the mode is another one, or the data do not have the size that follows from the extents.
    """
    if len(data) < 3 * _WORD:
        raise ValueError("the data end inside the extents of the image")
    width, height, length = np.frombuffer(data[: 3 * _WORD], "<u4").tolist()
    start = 3 * _WORD + length
    if length > _MOST_MODE_NBYTES or len(data) < start:
        raise ValueError(f"the mode of the image has {length} bytes")
    mode = str(data[3 * _WORD : start], "utf-8", "backslashreplace")
    bits = mode == "1"
    if not bits and mode not in _PIXEL_NBYTES:
        known = ", ".join((*_PIXEL_NBYTES, "1"))
        raise ValueError(f"pixels of the mode {mode!r} cannot be converted to RGB or grey; modes {known} can")
    row = (width + 7) // 8 if bits else width * _PIXEL_NBYTES[mode]
    if not width or not height or height * row != len(data) - start:
        found = len(data) - start
        raise ValueError(
            f"{width} x {height} pixels of the mode {mode!r} have {height * row} bytes, and the data {found}"
        )
    flat = np.frombuffer(data[start:], np.uint8)
    if bits:
        unpacked = np.unpackbits(flat.reshape(height, row), axis=1, count=width)
        return (unpacked * np.uint8(255))[:, :, None]
    pixels = flat.reshape(height, width, _PIXEL_NBYTES[mode])
    return pixels[:, :, :1] if mode in ("L", "LA") else pixels[:, :, :3]


def decode_list(data: memoryview, *, skipped: int, each: Callable[[memoryview], Any]) -> list[Any]:
    """Return the values of a list.

    Args:
        data: the number of values and the size of each (uint32), then the values.
        skipped: bytes before the number.
        each: decodes a value.

    Raises:
        ValueError: the sizes do not add up to that of the data, or a value is damaged.
    """
    if len(data) < skipped + _WORD:
        raise ValueError("the data end before the number of values")
    count = int.from_bytes(data[skipped : skipped + _WORD], "little")
    at = skipped + _WORD + _WORD * count
    if len(data) < at:
        raise ValueError(f"the data end inside the sizes of {count} values")
    sizes = np.frombuffer(data[skipped + _WORD : at], "<u4").tolist() if count else []
    if at + sum(sizes) != len(data):
        raise ValueError(f"the list has {at + sum(sizes)} bytes by its sizes, and the data {len(data)}")
    values = []
    for size in sizes:
        values.append(each(data[at : at + size]))
        at += size
    return values


def _of_number(dtype: str) -> Encoding:
    return Encoding(EncodingKind.NUMBER, np.dtype(dtype).itemsize, partial(_number, dtype=f"<{_code(dtype)}"))


def _code(dtype: str) -> str:
    kind = np.dtype(dtype)
    return f"{kind.kind}{kind.itemsize}"


def _of_list(each: Callable[[memoryview], Any], skipped: int = _WORD) -> Encoding:
    return Encoding(EncodingKind.IMAGES, None, partial(decode_list, skipped=skipped, each=each))


_JPEG_ARRAY = _of_list(_as_stored, skipped=0)
_ENCODINGS: Final = {
    "bytes": Encoding(EncodingKind.BYTES, None, _as_stored),
    "str": Encoding(EncodingKind.TEXT, None, _as_stored),
    "json": Encoding(EncodingKind.JSON, None, _as_stored),
    "int": _of_number("int64"),
    **{name: _of_number(name) for name in _DTYPES.values()},
    "str_int": Encoding(EncodingKind.NUMBER, None, _digits),
    "str_float": Encoding(EncodingKind.NUMBER, None, _float_text),
    "str_decimal": Encoding(EncodingKind.NUMBER, None, _decimal_text),
    "jpeg": Encoding(EncodingKind.IMAGE, None, _as_stored),
    "png": Encoding(EncodingKind.IMAGE, None, _as_stored),
    "pil": Encoding(EncodingKind.PIXELS, None, decode_pixels),
    "list[jpeg]": _of_list(_as_stored),
    "list[png]": _of_list(_as_stored),
    "list[pil]": _of_list(decode_pixels),
    "jpeg_array": _JPEG_ARRAY,
    "jpegarray": _JPEG_ARRAY,
}
