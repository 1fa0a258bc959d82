"""Raw images: unencoded pixels behind a small header, so that nothing has to be decoded and any part is a view.

Rule (docs/format.md, "Raw images"). 24 bytes, little endian: magic, version, dtype, channels, height, width, offset of
the pixels; then the pixels, uint8, rows from top to bottom, RGB or grey, upright, with no padding anywhere, up to
the end of the data. The length must be exactly the one in the header: so damage is detected even if only a part is
read. Pure.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import DecodeError

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

RAW_MAGIC = b"\x8cRAW\r\n\x1a\n"
"""First bytes of a raw image: as in PNG, a byte that no text begins with, line ends that a text-mode copy alters."""

_HEADER = struct.Struct("<8sBBHIII")
_VERSION = 1
_UINT8 = 1
_START = (RAW_MAGIC, _VERSION, _UINT8)
# The limit of PNG. Products of such extents are Python integers: they cannot overflow.
_MOST = (1 << 31) - 1


class RawHeader(NamedTuple):
    """Header of a raw image.

    Attributes:
        height, width: in pixels, at least 1.
        channels: 3 (RGB) or 1 (grey).
        start: offset of the pixels in the data, in bytes.
    """

    height: int
    width: int
    channels: int
    start: int


def encode_raw(image: Array) -> bytes:
    """Encode pixels as a raw image.

    Args:
        image: uint8 (height, width, 3) RGB, or (height, width, 1) or (height, width) grey; upright, because a raw image
            has no orientation.

    Returns:
        24 bytes of header, then height x width x channels bytes.

    Raises:
        ValueError: another dtype or shape, or no pixels.
    """
    image = np.asarray(image)
    return _header_of(image) + image.tobytes()


def raw_buffer(image: Array) -> memoryview:
    """Encode pixels as `encode_raw` does, into new memory; other threads run while the pixels are copied.

    Args:
        image: see `encode_raw`.

    Raises:
        ValueError: another dtype or shape, or no pixels.
    """
    header = _header_of(image)
    out: Array = np.empty(len(header) + image.nbytes, np.uint8)
    out[: len(header)] = np.frombuffer(header, np.uint8)
    out[len(header) :].reshape(image.shape)[...] = image
    return memoryview(out.data)


def _header_of(image: Array) -> bytes:
    shape = (*image.shape, 1) if image.ndim == 2 else image.shape
    if image.dtype != np.uint8 or len(shape) != 3 or shape[2] not in (1, 3) or 0 in shape:
        raise ValueError(
            "encode_raw needs a uint8 image (height, width, 3), (height, width, 1) or (height, width) with at least "
            f"one pixel, got {image.dtype} {image.shape}"
        )
    if max(shape) > _MOST:
        raise ValueError(f"encode_raw: no side may be longer than {_MOST}, got {image.shape}")
    height, width, channels = shape
    return _HEADER.pack(*_START, channels, height, width, _HEADER.size)


def read_raw_header(data: Any) -> RawHeader:
    """Read and check a raw image's header; the pixels are not read.

    Args:
        data: the whole raw image, bytes or a flat memoryview of bytes.

    Raises:
        DecodeError: the data is not a raw image, is of another version, has an invalid header, or does not have the
            length that its header announces.
    """
    nbytes = len(data)
    if nbytes < _HEADER.size:
        raise DecodeError("the data ends within the header", format="raw", nbytes=nbytes)
    magic, version, dtype, channels, height, width, start = _HEADER.unpack_from(data)
    if magic != RAW_MAGIC:
        raise DecodeError("the first bytes are not those of a raw image", nbytes=nbytes)
    needed = start + height * width * channels
    if version != _VERSION or dtype != _UINT8 or channels not in (1, 3):
        reason = (
            f"version {version}, dtype {dtype} and {channels} channels; this release reads version {_VERSION} with "
            f"dtype {_UINT8} (uint8) and 1 or 3 channels"
        )
    elif not (1 <= height <= _MOST and 1 <= width <= _MOST):
        reason = f"the header announces height {height} and width {width}"
    elif start < _HEADER.size or needed != nbytes:
        reason = (
            f"the header announces {width} x {height} x {channels} bytes of pixels from byte {start} on, which end at "
            f"byte {needed}; the data is truncated, or its header is damaged"
        )
    else:
        return RawHeader(height, width, channels, start)
    raise DecodeError(reason, format="raw", nbytes=nbytes)


def raw_image(data: Any) -> Array:
    """Return the pixels of a raw image, without a copy.

    Args:
        data: the whole raw image, bytes-like. The result is a view of its memory: it is valid, and unchanged, for as
            long as that is.

    Returns:
        uint8 (height, width, 3) RGB or (height, width, 1) grey, C-contiguous; read-only if `data` is.

    Raises:
        DecodeError: as `read_raw_header`.
    """
    header = read_raw_header(data if type(data) is bytes else memoryview(data).cast("B"))
    return np.ndarray(header[:3], np.uint8, data, header.start)
