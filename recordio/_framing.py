"""Framing of records: heads, data and padding, and the parts of one record.

The rules (docs/format.md, "Parts" and "Split records"): a part is the magic number, a word that holds a 3-bit
continuation flag and a 29-bit length, the data, and zero bytes up to a multiple of 4. A record is one part with
flag 0, or parts with the flags 1, 2 ..., 3 whose data is joined by the magic word. Wherever a payload holds the magic
word at an offset that is a multiple of 4, the writer cuts the record there and drops those four bytes; the reader
inserts them again. A magic word at any other offset is stored unchanged. Input that breaks a rule is refused with
the byte offset of the fault. Pure: no input or output.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from recordio.errors import CorruptRecordError, PayloadTypeError, RecordTooLargeError, TruncatedRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BytesLike: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 0xCED7230A
MAGIC_BYTES: Final = b"\x0a\x23\xd7\xce"
HEAD_SIZE: Final = 8
MAX_PAYLOAD: Final = (1 << 29) - 1
"""Largest payload in bytes: the length field has 29 bits, and the limit applies before splitting."""

UNKNOWN_SIZE: Final = 1 << 62
"""Size in bytes of a source that cannot report its size; its end is found when a read returns less than requested."""

WHOLE: Final = 0
FIRST: Final = 1
MIDDLE: Final = 2
LAST: Final = 3

_HEAD: Final = struct.Struct("<II")
unpack_head = _HEAD.unpack_from
_pack_head = _HEAD.pack

_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_WORD = np.dtype("<u4")
_LONG_PAYLOAD = 2048

MANY_PARTS: Final = 32
"""Parts of a record after which the following ones are found and joined many at a time; nearly all records have fewer.
One at a time they take many times the time and the memory of their bytes, of which an empty part has eight."""
_RUN_BYTES: Final = 1 << 22
_FIRST_RUN_BYTES: Final = 1 << 12
_EMPTY_MIDDLE: Final = np.array(MAGIC | MIDDLE << 61, "<u8")


def _invalid(
    fault: str, path: str | None, offset: int, expected: object, found: object
) -> CorruptRecordError:
    message = f"Invalid RecordIO File: {fault}"
    return CorruptRecordError(message, path=path, offset=offset, expected=expected, found=found)


def framed_length(length: int) -> int:
    """Return the bytes that a part with `length` bytes of data occupies in the file."""
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
        CorruptRecordError: The magic number is wrong, or the flag is not allowed at this point.
    """
    if magic != MAGIC:
        raise _invalid("no record head here, the magic number is missing", path, offset, MAGIC, magic)
    flag = word >> 29
    if continuing:
        if flag not in (MIDDLE, LAST):
            fault = "a split record is not continued, its next part has the wrong continuation flag"
            raise _invalid(fault, path, offset, "flag 2 or 3", f"flag {flag}")
    elif flag not in (WHOLE, FIRST):
        fault = "a record begins with the wrong continuation flag"
        raise _invalid(fault, path, offset, "flag 0 or 1", f"flag {flag}")
    return flag, word & MAX_PAYLOAD


def check_part(
    magic: int, word: int, *, continuing: bool, path: str | None, offset: int, size: int
) -> tuple[int, int, int]:
    """Check a part head as `check_head` does, and its length against the size of the file and the rules of splitting.

    Args:
        magic, word, continuing, path, offset: As for `check_head`.
        size: Bytes in the file.

    Returns:
        Continuation flag, data length and framed length, in bytes.

    Raises:
        CorruptRecordError: The head breaks a rule.
        TruncatedRecordError: The part extends past the end of the file.
    """
    flag, length = check_head(magic, word, continuing=continuing, path=path, offset=offset)
    framed = framed_length(length)
    if offset + framed > size:
        raise truncated_error(path=path, offset=offset, needed=framed, held=size - offset)
    if flag in (FIRST, MIDDLE):
        check_non_final_length(length, path=path, offset=offset)
    return flag, length, framed


def starts_record(head: BytesLike) -> bool:
    """Return True if these bytes are the head of a record's first part.

    No valid record extends over such a place: the writer would have split it there.
    """
    if len(head) < HEAD_SIZE:
        return False
    magic, word = unpack_head(head)
    return magic == MAGIC and word >> 29 not in (MIDDLE, LAST)


def check_non_final_length(length: int, *, path: str | None, offset: int) -> None:
    """Refuse a first or middle part whose length is not a multiple of 4.

    Raises:
        CorruptRecordError: Writers cut only at aligned words, so another length is damage.
    """
    if length & 3:
        fault = "a first or middle part must have a length divisible by 4"
        raise _invalid(fault, path, offset, "a multiple of 4", length)


def check_total(total: int, *, path: str | None, offset: int, limit: int = MAX_PAYLOAD) -> None:
    """Refuse a split record whose joined payload exceeds `limit` bytes.

    Raises:
        CorruptRecordError: No writer makes such a record, and joining it could exhaust memory.
    """
    if total > limit:
        fault = "the parts of one record add up to more than a record may hold"
        raise _invalid(fault, path, offset, f"at most {limit} bytes", f"{total} bytes or more")


def truncated_error(
    *, path: str | None, offset: int, needed: int, held: int | None, what: str = "the file"
) -> TruncatedRecordError:
    """Return the error for a record that needs `needed` bytes where only `held` (None: fewer) exist."""
    return TruncatedRecordError(
        f"Invalid RecordIO File: {what} ends inside a record",
        path=path,
        offset=offset,
        expected=f"{needed} bytes",
        found="fewer" if held is None else f"{held} bytes",
    )


def overlap_error(*, path: str | None, offset: int, held: int) -> CorruptRecordError:
    """Return the error for a record that extends over the head of the next one, `held` bytes after its start."""
    fault = "the record extends over the head of the next one, so its length was damaged"
    return _invalid(fault, path, offset, f"at most {held} bytes", "more")


def short_record_error(*, path: str | None, offset: int, held: int, found: int) -> CorruptRecordError:
    """Return the error for a record that ends after `found` bytes, without a head there.

    The next head follows `held` bytes after the start of the record.
    """
    fault = "no record follows where this one ends, so its length was damaged"
    return _invalid(fault, path, offset, f"{held} bytes", f"{found} bytes")


def extract(data: BytesLike, *, path: str | None = None, offset: int = 0) -> memoryview | bytes:
    """Return the payload of the first record in a buffer of framed bytes.

    Args:
        data: Framed bytes that begin with a record head; bytes after the record are ignored.
        path: File named in errors.
        offset: Byte offset in that file at which `data` begins; errors report absolute offsets.

    Returns:
        A memoryview into `data` (no copy) for a record stored in one part; new bytes for a split record, whose parts
        have to be joined.

    Raises:
        CorruptRecordError: `data` does not begin with a record.
        TruncatedRecordError: The record, padding included, is longer than `data`.
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
        at = offset + position
        if size - position < HEAD_SIZE:
            raise truncated_error(path=path, offset=at, needed=HEAD_SIZE, held=size - position)
        magic, word = unpack_head(view, position)
        flag, length, framed = check_part(
            magic, word, continuing=bool(parts), path=path, offset=at, size=offset + size
        )
        total += length
        check_total(total, path=path, offset=offset)
        parts.append(view[position + HEAD_SIZE : position + HEAD_SIZE + length])
        if flag in (WHOLE, LAST):
            return MAGIC_BYTES.join(parts)
        total += len(MAGIC_BYTES)
        position += framed
        if len(parts) >= MANY_PARTS:
            end, heads = middle_run(view, position)
            if len(heads):
                parts.append(memoryview(join_run(view, position, end, heads)))
                total += parts[-1].nbytes + len(MAGIC_BYTES)
                position = end


def middle_run(view: memoryview, position: int) -> tuple[int, NDArray[np.int64]]:
    """Find valid middle parts that follow one another, up to some megabytes of them.

    Args:
        view: Framed bytes, a flat view of format "B".
        position: Where the first of the parts begins.

    Returns:
        The position behind the run, and the offset of the head of each part from `position`, in words of four bytes,
        int64 (n,). There are none if what begins there is another part or damaged. The last middle part of the bytes is
        left out, because it is not known what follows it.
    """
    # What follows the run is not looked at more than once: a file may have very many records of a few dozen parts.
    nbytes = _FIRST_RUN_BYTES
    while True:
        window = view[position : position + nbytes]
        end, heads, whole = _run_in(window)
        if not whole or nbytes >= _RUN_BYTES or len(window) < nbytes:
            return position + end, heads
        nbytes *= 8


def _run_in(window: memoryview) -> tuple[int, NDArray[np.int64], bool]:
    """Find the run at the begin of some bytes; the last value is True if it may go on behind them."""
    words = np.frombuffer(window, _WORD, len(window) // 4)
    heads = np.flatnonzero(words[:-1] == MAGIC)
    if len(heads) < 2 or heads[0]:
        return 0, heads[:0], len(heads) == 1 and not heads[0]
    word = words[heads + 1]
    length = (word & MAX_PAYLOAD).astype(np.int64)
    behind = heads + (HEAD_SIZE + length) // 4
    valid = (word[:-1] >> 29 == MIDDLE) & (length[:-1] & 3 == 0) & (behind[:-1] == heads[1:])
    count = len(valid) if valid.all() else int(valid.argmin())
    return 4 * int(heads[count]), heads[:count], count == len(valid)


def empty_run(view: memoryview) -> int:
    """Return the bytes of the empty middle parts at the begin of some bytes, up to some megabytes."""
    nbytes = _FIRST_RUN_BYTES
    while True:
        window = view[:nbytes]
        empty = np.frombuffer(window, _EMPTY_MIDDLE.dtype, len(window) // HEAD_SIZE) == _EMPTY_MIDDLE
        count = len(empty) if empty.all() else int(empty.argmin())
        if count < len(empty) or nbytes >= _RUN_BYTES or len(window) < nbytes:
            return HEAD_SIZE * count
        nbytes *= 8


def join_run(view: memoryview, position: int, end: int, heads: NDArray[np.int64]) -> bytes:
    """Return the data of the parts that `middle_run` found, joined by the magic word."""
    words = np.frombuffer(view[position:end], _WORD)
    is_data = np.ones(len(words), bool)
    # The magic number of each later head is the word that joins its data to the data before.
    is_data[heads + 1] = False
    is_data[0] = False
    return words[is_data].tobytes()


def payload_spans(
    data: BytesLike, start: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    """Locate the payloads of many records in a buffer of framed bytes; the vectorized form of `extract`.

    Args:
        data: Framed bytes of all records.
        start: int64 (n,), offset of each record in `data`, at least 0.
        length: int64 (n,), bytes available of each record; `data` includes all of them.

    Returns:
        Begin and end of every payload. They are equal for an empty payload, and for a record that needs `extract`:
        it is stored in several parts, or damaged, or its bytes do not end with it and no other record follows.
    """
    view = memoryview(data).cast("B")
    begin = start + HEAD_SIZE
    # A head is read only where it is inside the record and at a multiple of 4, as records are in files.
    fit = (length >= HEAD_SIZE) & (start & 3 == 0)
    if not fit.any():
        return begin.tolist(), begin.tolist()
    words = np.frombuffer(view, _WORD, len(view) // 4)
    place = np.where(fit, start >> 2, 0)
    size = words[place + 1].astype(np.int64)
    framed = size + HEAD_SIZE + 3 & -4
    exact = framed == length
    fit &= (words[place] == MAGIC) & (size <= MAX_PAYLOAD) & (framed <= length)
    if not exact.all():
        # A length that damage made smaller is followed by bytes that are not a head.
        follows = fit & (framed + HEAD_SIZE <= length)
        behind = np.where(follows, start + framed >> 2, 0)
        fit &= exact | (follows & (words[behind] == MAGIC))
    return begin.tolist(), (begin + np.where(fit, size, 0)).tolist()


def _check_size(length: int) -> None:
    if length > MAX_PAYLOAD:
        raise RecordTooLargeError(
            f"RecordIO only accept record less than 2^29 bytes, this one has {length}; "
            "store it as several records",
            length=length,
        )


def _flat_payload(payload: BytesLike) -> bytes | bytearray:
    """Return a payload as flat bytes, copied only if it is neither bytes nor bytearray."""
    if isinstance(payload, bytes | bytearray):
        _check_size(len(payload))
        return payload
    try:
        view = memoryview(payload)
    except TypeError:
        raise PayloadTypeError(
            f"a record must be bytes-like, not {type(payload).__name__}; "
            "encode text first, for example text.encode()"
        ) from None
    _check_size(view.nbytes)
    return view.tobytes()


def _split_points(data: bytes | bytearray) -> Sequence[int]:
    """Return the multiples of 4 at which a payload holds the magic word."""
    if len(data) < _LONG_PAYLOAD:
        found = []
        hit = data.find(MAGIC_BYTES)
        while hit >= 0:
            if not hit & 3:
                found.append(hit)
            hit = data.find(MAGIC_BYTES, hit + 1)
        return found
    # Only every fourth byte can begin one: comparing words is several times as fast as searching bytes.
    same = np.frombuffer(data, _WORD, len(data) // 4) == MAGIC
    if not same[same.argmax()]:  # a third of the time of any()
        return ()
    points: list[int] = (4 * np.flatnonzero(same)).tolist()
    return points


def framed_pieces(payload: BytesLike, head: bytes = b"") -> tuple[bytes, ...]:
    """Return a framed record like `serialize`, without copying long bytes that need no split.

    Args:
        payload: as for `serialize`, without its first bytes.
        head: its first bytes, a multiple of 4.

    Returns:
        Pieces whose concatenation is the framed record.

    Raises:
        PayloadTypeError, RecordTooLargeError: as `serialize`.
    """
    if type(payload) is bytes and len(payload) >= _LONG_PAYLOAD:
        length = len(head) + len(payload)
        _check_size(length)
        if not _split_points(payload) and not _split_points(head):
            return _pack_head(MAGIC, length) + head, payload, _PADDING[length & 3]
    return (serialize(b"".join((head, payload)) if head else payload),)


def serialize(payload: BytesLike) -> bytes:
    """Return the framed bytes of one record.

    Args:
        payload: Up to 2**29 - 1 bytes; any object with a buffer.

    Returns:
        The bytes of the record in a .rec file; their count is a multiple of 4.

    Raises:
        PayloadTypeError: `payload` is not bytes-like.
        RecordTooLargeError: `payload` has 2**29 bytes or more.
    """
    data = _flat_payload(payload)
    length = len(data)
    points = _split_points(data) if length >= _LONG_PAYLOAD or data.find(MAGIC_BYTES) >= 0 else ()
    if not points:
        return b"".join((_pack_head(MAGIC, length), data, _PADDING[length & 3]))
    pieces: list[bytes | memoryview] = []
    view = memoryview(data)
    start = 0
    for point in points:
        flag = FIRST if start == 0 else MIDDLE
        pieces += (_pack_head(MAGIC, flag << 29 | (point - start)), view[start:point])
        start = point + len(MAGIC_BYTES)
    rest = length - start
    pieces += (_pack_head(MAGIC, LAST << 29 | rest), view[start:], _PADDING[rest & 3])
    return b"".join(pieces)
