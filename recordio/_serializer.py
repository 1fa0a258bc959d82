"""Payload in, framed parts out.

The rule (docs/format.md, "Split records"): wherever the payload holds the magic word at an offset
that is a multiple of 4, the record is cut there and those four bytes are dropped; the reader puts
them back. A magic word at any other offset is stored as it is. Pure: no input or output.
"""

from __future__ import annotations

from recordio._framing import (
    FIRST,
    HEAD,
    LAST,
    MAGIC,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    MIDDLE,
    WHOLE,
    BytesLike,
)
from recordio.errors import PayloadTypeError, RecordTooLargeError

__all__ = ("as_payload", "serialize")

_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_pack_head = HEAD.pack


def as_payload(payload: BytesLike) -> bytes | bytearray:
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
    data = as_payload(payload)
    length = len(data)
    hit = data.find(MAGIC_BYTES)
    if hit < 0:
        return b"".join((_pack_head(MAGIC, length), data, _PADDING[length & 3]))
    pieces: list[bytes | memoryview] = []
    view = memoryview(data)
    start = 0
    while hit >= 0:
        if hit & 3:
            hit = data.find(MAGIC_BYTES, hit + 1)
            continue
        flag = FIRST if start == 0 else MIDDLE
        pieces += (_pack_head(MAGIC, flag << 29 | (hit - start)), view[start:hit])
        start = hit + len(MAGIC_BYTES)
        hit = data.find(MAGIC_BYTES, start)
    flag = LAST if start else WHOLE
    rest = length - start
    pieces += (_pack_head(MAGIC, flag << 29 | rest), view[start:], _PADDING[rest & 3])
    return b"".join(pieces)
