"""One part of a record: head, data, padding; and how parts make up one record.

The rules (docs/format.md, "Parts" and "Split records"): a part is the magic number, a word holding
a 3-bit continuation flag and a 29-bit length, the data, and zero bytes up to a multiple of 4.
A record is one part flagged 0, or parts flagged 1, 2 ..., 3 whose data is joined by the magic word.
Anything else is refused here, with the byte offset at which it went wrong. Pure: no input or
output.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from recordio.errors import CorruptRecordError, TruncatedRecordError

__all__ = (
    "HEAD_SIZE",
    "MAGIC",
    "MAGIC_BYTES",
    "MAX_PAYLOAD",
    "UNKNOWN_SIZE",
    "BytesLike",
    "check_head",
    "check_non_final_length",
    "check_total",
    "extract",
    "framed_length",
    "overlap_error",
    "padded",
    "short_record_error",
    "starts_record",
    "truncated_error",
    "unpack_head",
)

BytesLike: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 0xCED7230A
MAGIC_BYTES: Final = b"\x0a\x23\xd7\xce"
HEAD_SIZE: Final = 8
MAX_PAYLOAD: Final = (1 << 29) - 1
"""Largest payload in bytes: the length field has 29 bits and the limit holds before splitting."""

UNKNOWN_SIZE: Final = 1 << 62
"""Stands for the size in bytes of a source that cannot tell it; its end shows when a read comes back short."""

WHOLE: Final = 0
FIRST: Final = 1
MIDDLE: Final = 2
LAST: Final = 3

HEAD: Final = struct.Struct("<II")
unpack_head = HEAD.unpack_from


def padded(length: int) -> int:
    """Round a length in bytes up to the next multiple of 4."""
    return (length + 3) & -4


def framed_length(length: int) -> int:
    """Bytes that a part with `length` bytes of data takes in the file."""
    return HEAD_SIZE + ((length + 3) & -4)


def check_head(magic: int, word: int, *, continuing: bool, path: str | None, offset: int) -> tuple[int, int]:
    """Split a part head into its continuation flag (0 to 3) and data length in bytes.

    Args:
        magic: First word of the head.
        word: Second word of the head.
        continuing: True inside a split record, where only flags 2 and 3 may follow.
        path: File named in errors.
        offset: Byte offset of this head in the file, named in errors.

    Raises:
        CorruptRecordError: wrong magic, or a flag that cannot stand here.
    """
    if magic != MAGIC:
        raise CorruptRecordError(
            "Invalid RecordIO File: no record head here, the magic number is missing",
            path=path,
            offset=offset,
            expected=MAGIC,
            found=magic,
        )
    flag = word >> 29
    if continuing:
        if flag not in (MIDDLE, LAST):
            raise CorruptRecordError(
                "Invalid RecordIO File: a split record is not continued, "
                "its next part has the wrong continuation flag",
                path=path,
                offset=offset,
                expected="flag 2 or 3",
                found=f"flag {flag}",
            )
    elif flag not in (WHOLE, FIRST):
        raise CorruptRecordError(
            "Invalid RecordIO File: a record begins with the wrong continuation flag",
            path=path,
            offset=offset,
            expected="flag 0 or 1",
            found=f"flag {flag}",
        )
    return flag, word & MAX_PAYLOAD


def starts_record(head: BytesLike) -> bool:
    """Whether a record's first part begins here. No sound record reaches over such a place: it would be split there."""
    if len(head) < HEAD_SIZE:
        return False
    magic, word = unpack_head(head)
    return magic == MAGIC and word >> 29 not in (MIDDLE, LAST)


def check_non_final_length(length: int, *, path: str | None, offset: int) -> None:
    """Refuse a first or middle part whose length is not a multiple of 4.

    Raises:
        CorruptRecordError: writers cut only at aligned words, so such a length is damage.
    """
    if length & 3:
        raise CorruptRecordError(
            "Invalid RecordIO File: a first or middle part must have a length divisible by 4",
            path=path,
            offset=offset,
            expected="a multiple of 4",
            found=length,
        )


def truncated_error(
    *, path: str | None, offset: int, needed: int, held: int | None, what: str = "the file"
) -> TruncatedRecordError:
    """The error for a record of which `needed` bytes were announced and only `held` (None: fewer) are there."""
    return TruncatedRecordError(
        f"Invalid RecordIO File: {what} ends inside a record",
        path=path,
        offset=offset,
        expected=f"{needed} bytes",
        found="fewer" if held is None else f"{held} bytes",
    )


def extract(data: BytesLike, *, path: str | None = None, offset: int = 0) -> memoryview | bytes:
    """Return the payload of the first record in a buffer of framed bytes.

    Args:
        data: Framed bytes, beginning at a record head; bytes after the record are ignored.
        path: File named in errors.
        offset: Byte offset in that file at which `data` begins; errors give absolute offsets.

    Returns:
        A memoryview into `data` (no copy) for a record stored in one part; new bytes for a split
        record, which has to be joined.

    Raises:
        CorruptRecordError: `data` does not begin with a record.
        TruncatedRecordError: the record, padding included, is longer than `data`.
    """
    view = data if type(data) is memoryview else memoryview(data)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    size = view.nbytes
    if size >= 8:
        magic, word = unpack_head(view)
        if magic == MAGIC and word <= MAX_PAYLOAD and ((word + 11) & -4) <= size:
            return view[8 : 8 + word]
    return _extract_parts(view, path, offset)


def _extract_parts(view: memoryview, path: str | None, offset: int) -> bytes:
    size = view.nbytes
    parts: list[memoryview] = []
    position = 0
    total = 0
    while True:
        if size - position < HEAD_SIZE:
            raise truncated_error(path=path, offset=offset + position, needed=HEAD_SIZE, held=size - position)
        magic, word = unpack_head(view, position)
        flag, length = check_head(magic, word, continuing=bool(parts), path=path, offset=offset + position)
        if position + framed_length(length) > size:
            raise truncated_error(
                path=path,
                offset=offset + position,
                needed=framed_length(length),
                held=size - position,
            )
        if flag in (FIRST, MIDDLE):
            check_non_final_length(length, path=path, offset=offset + position)
        total += length
        check_total(total, path=path, offset=offset)
        parts.append(view[position + HEAD_SIZE : position + HEAD_SIZE + length])
        if flag in (WHOLE, LAST):
            return MAGIC_BYTES.join(parts)
        total += len(MAGIC_BYTES)
        position += framed_length(length)


def overlap_error(*, path: str | None, offset: int, held: int) -> CorruptRecordError:
    """The error for a record that goes on where the next one begins, `held` bytes after it."""
    return CorruptRecordError(
        "Invalid RecordIO File: the record reaches over the head of the next one, so its length was damaged",
        path=path,
        offset=offset,
        expected=f"at most {held} bytes",
        found="more",
    )


def short_record_error(*, path: str | None, offset: int, held: int, found: int) -> CorruptRecordError:
    """The error for a record that ends after `found` bytes, where no head follows, `held` bytes before the next one."""
    return CorruptRecordError(
        "Invalid RecordIO File: no record follows where this one ends, so its length was damaged",
        path=path,
        offset=offset,
        expected=f"{held} bytes",
        found=f"{found} bytes",
    )


def check_total(total: int, *, path: str | None, offset: int, limit: int = MAX_PAYLOAD) -> None:
    """Refuse a split record whose joined payload passes `limit` bytes.

    Raises:
        CorruptRecordError: no writer makes such a record, and joining it could exhaust memory.
    """
    if total > limit:
        raise CorruptRecordError(
            "Invalid RecordIO File: the parts of one record add up to more than a record may hold",
            path=path,
            offset=offset,
            expected=f"at most {limit} bytes",
            found=f"{total} bytes or more",
        )
