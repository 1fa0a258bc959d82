"""Payload in, framed parts out.

The rule (docs/format.md, "Split records"): wherever the payload holds the magic word at an offset
that is a multiple of 4, the record is cut there and those four bytes are dropped; the reader puts
them back. A magic word at any other offset is stored as it is. Pure: no input or output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recordio._framing import (
    FIRST,
    HEAD,
    LAST,
    MAGIC,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    MIDDLE,
    BytesLike,
)
from recordio.errors import PayloadTypeError, RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("checked_payload", "frame", "serialize")

_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_pack_head = HEAD.pack
_WORD = np.dtype("<u4")
_MANY = 2048


def checked_payload(payload: BytesLike) -> bytes | bytearray:
    """Return a payload as flat bytes, copying only where it is not bytes or bytearray already.

    Raises:
        PayloadTypeError: `payload` is not bytes-like (text has to be encoded first).
        RecordTooLargeError: `payload` has 2**29 bytes or more.
    """
    if isinstance(payload, bytes | bytearray):
        flat: bytes | bytearray = payload
    else:
        try:
            view = memoryview(payload)
        except TypeError:
            raise PayloadTypeError(
                f"a record must be bytes-like, not {type(payload).__name__}; "
                "encode text first, for example text.encode()"
            ) from None
        _check_size(view.nbytes)
        flat = view.tobytes()
    _check_size(len(flat))
    return flat


def _check_size(length: int) -> None:
    if length > MAX_PAYLOAD:
        raise RecordTooLargeError(
            f"RecordIO only accept record less than 2^29 bytes, this one has {length}; "
            "store it as several records",
            length=length,
        )


def frame(payload: BytesLike) -> tuple[bytes, ...]:
    """Frame one record, as `serialize`, without copying a payload of bytes that needs no cut.

    Returns:
        Pieces whose concatenation stands for the record.

    Raises:
        PayloadTypeError, RecordTooLargeError: as `serialize`.
    """
    if type(payload) is bytes and len(payload) >= _MANY:
        _check_size(len(payload))
        if not _split_points(payload):
            return _pack_head(MAGIC, len(payload)), payload, _PADDING[len(payload) & 3]
    return (serialize(payload),)


def _split_points(data: bytes | bytearray) -> Sequence[int]:
    """Where the magic word stands at a multiple of 4."""
    if len(data) < _MANY:
        found = []
        hit = data.find(MAGIC_BYTES)
        while hit >= 0:
            if not hit & 3:
                found.append(hit)
            hit = data.find(MAGIC_BYTES, hit + 1)
        return found
    # Only every fourth byte can begin one: to compare words is several times as fast as to search bytes.
    same = np.frombuffer(data, _WORD, len(data) // 4) == MAGIC
    if not same.any():
        return ()
    cuts: list[int] = (4 * np.flatnonzero(same)).tolist()
    return cuts


def serialize(payload: BytesLike) -> bytes:
    """Frame one record.

    Args:
        payload: Up to 2**29 - 1 bytes; any object with a buffer.

    Returns:
        The bytes that stand for the record in a .rec file; their count is a multiple of 4.

    Raises:
        PayloadTypeError: `payload` is not bytes-like.
        RecordTooLargeError: `payload` has 2**29 bytes or more.
    """
    data = checked_payload(payload)
    length = len(data)
    cuts = _split_points(data) if length >= _MANY or data.find(MAGIC_BYTES) >= 0 else ()
    if not cuts:
        return b"".join((_pack_head(MAGIC, length), data, _PADDING[length & 3]))
    pieces: list[bytes | memoryview] = []
    view = memoryview(data)
    start = 0
    for cut in cuts:
        flag = FIRST if start == 0 else MIDDLE
        pieces += (_pack_head(MAGIC, flag << 29 | (cut - start)), view[start:cut])
        start = cut + len(MAGIC_BYTES)
    rest = length - start
    pieces += (_pack_head(MAGIC, LAST << 29 | rest), view[start:], _PADDING[rest & 3])
    return b"".join(pieces)
