"""Scan of a record file that may be damaged: every valid record, and every gap between them.

Strategy. A valid file never contains the magic word at an aligned place other than a part head, because writers cut
records there (docs/format.md, "Split records"). So a part whose data contains one has a wrong length, and after damage
reading continues at the next aligned magic word with flag 0 or 1 that begins a valid record. If bytes were lost or
added, later records are no longer at multiples of 4; a magic word elsewhere is accepted only if another head, or the
end of the file, follows its record, since payloads may contain such words by chance. Pure: bytes are requested through
a function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    MAGIC_BYTES,
    MANY_PARTS,
    MAX_PAYLOAD,
    MIDDLE,
    check_part,
    check_total,
    empty_run,
    framed_length,
    middle_run,
    truncated_error,
    unpack_head,
)
from recordio.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK: Final = 1 << 20

FOREIGN_BYTES: Final = "no record head here; foreign bytes, or the record before them was longer"
"""Reason of a gap behind a record that looks valid."""


class RecordSpan(NamedTuple):
    """Valid record: byte offset of its head, and its framed length in bytes."""

    offset: int
    length: int


class Gap(NamedTuple):
    """Bytes that belong to no valid record; `reason` describes the fault where they begin."""

    offset: int
    length: int
    reason: str


class _Window:
    """File that is read by position, with one block kept in memory."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self.size = size
        self._begin = 0
        self._block = b""

    def get(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at `offset`; fewer only at the end of the file."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        at = offset - self._begin
        if at < 0 or at + length > len(self._block):
            self._begin, at = offset, 0
            self._block = self._read(offset, min(max(length, _BLOCK), self.size - offset))
        return self._block[at : at + length]

    def held(self, offset: int) -> memoryview:
        """Return bytes from `offset` on that are in memory, at least a head unless the file ends."""
        self.get(offset, HEAD_SIZE)
        return memoryview(self._block)[offset - self._begin :]

    def find_magic(self, begin: int, end: int) -> int:
        """Find the first magic word in [begin, end), at any alignment; return -1 if there is none."""
        end = min(end, self.size)
        while end - begin >= len(MAGIC_BYTES):
            at = begin - self._begin
            if at < 0 or at + len(MAGIC_BYTES) > len(self._block):
                self.get(begin, len(MAGIC_BYTES))
                at = begin - self._begin
            # In the block itself: if there are many such words, a copy for each would cost more than everything else.
            hit = self._block.find(MAGIC_BYTES, at, end - self._begin)
            if hit >= 0:
                return self._begin + hit
            begin = min(end, self._begin + len(self._block)) - len(MAGIC_BYTES) + 1
        return -1


def scan_damaged(
    read: Callable[[int, int], bytes],
    size: int,
    *,
    listed: Callable[[int], bool] = lambda _: False,
) -> Iterator[RecordSpan | Gap]:
    """Yield valid records and gaps in file order; together they cover the whole file.

    Args:
        read: Called with (offset, length) in bytes inside the file; returns exactly those.
        size: Bytes in the file.
        listed: Returns True for the byte offset of a record according to an index, if there is one. A record that ends
            where no head follows, though the index has a valid one further on, was cut short by a damaged length.
    """
    window = _Window(read, size)
    position = 0
    while position < size:
        try:
            end = _record_end(window, position)
        except CorruptRecordError as error:
            gap_end = _next_record(window, position + 1, position & 3)
            yield Gap(position, gap_end - position, error.message)
            position = gap_end
            continue
        if end == size or _is_head(window, end):
            yield RecordSpan(position, end - position)
            position = end
            continue
        # No head and not the end of the file: bytes were inserted behind this record, or its length is wrong, or bytes
        # of it were lost and it extends into the next one.
        inner = _next_record(window, position + 1, position & 3, beyond=end)
        if inner < end:
            yield Gap(position, inner - position, "bytes of the record were lost, it ends too late")
            position = inner
            continue
        gap_end = _next_record(window, end, position & 3)
        shortened = listed(gap_end) and not listed(end) and listed(position)
        if shortened or not _zero_padded(window, position, end):
            yield Gap(position, gap_end - position, "the length was damaged, the record ends too early")
        else:
            yield RecordSpan(position, end - position)
            yield Gap(end, gap_end - end, FOREIGN_BYTES)
        position = gap_end


def _record_end(window: _Window, offset: int) -> int:
    position, continuing, total, parts = offset, False, 0, 0
    while True:
        if parts >= MANY_PARTS:
            # One at a time, empty parts take many times the time of their bytes.
            run, heads = middle_run(window.held(position), 0)
            position += run
            total += run - len(MAGIC_BYTES) * len(heads)
        head = window.get(position, HEAD_SIZE)
        if len(head) < HEAD_SIZE:
            raise truncated_error(path=None, offset=position, needed=HEAD_SIZE, held=len(head))
        magic, word = unpack_head(head)
        flag, length, framed = check_part(
            magic, word, continuing=continuing, path=None, offset=position, size=window.size
        )
        total += length
        check_total(total, path=None, offset=offset)
        _check_data(window, position + HEAD_SIZE, length)
        position += framed
        if flag not in (FIRST, MIDDLE):
            return position
        continuing = True
        total += len(MAGIC_BYTES)
        parts += 1


def _check_data(window: _Window, begin: int, length: int) -> None:
    at, end = begin, begin + length
    while (hit := window.find_magic(at, end)) >= 0:
        if (hit - begin) & 3 == 0:
            raise CorruptRecordError(
                "Invalid RecordIO File: a record head is inside the data, so the length is wrong",
                offset=hit,
            )
        at = hit + 1


def _is_head(window: _Window, offset: int) -> bool:
    head = window.get(offset, HEAD_SIZE)
    return len(head) == HEAD_SIZE and head.startswith(MAGIC_BYTES)


def _zero_padded(window: _Window, offset: int, end: int) -> bool:
    """Return True if the last part of a record, which ends at `end`, is padded as writers do it."""
    position = offset
    while True:
        _, word = unpack_head(window.get(position, HEAD_SIZE))
        length = word & MAX_PAYLOAD
        part_end = position + framed_length(length)
        if part_end >= end:
            data_end = position + HEAD_SIZE + length
            return not any(window.get(data_end, end - data_end))
        position = part_end


def _next_record(window: _Window, begin: int, phase: int, *, beyond: int = -1) -> int:
    """Find the next record that is accepted.

    Args:
        window: The file.
        begin: Byte offset at which the search begins.
        phase: Alignment (offset modulo 4) of the records so far; heads elsewhere need a successor.
        beyond: If not -1, only heads before this offset are examined, and the chain of records from there must extend
            past it. Records stored inside a payload do not: they end with it at the latest.

    Returns:
        Offset of its head; the size of the file if there is none.
    """
    at = begin
    stop = window.size if beyond < 0 else min(window.size, beyond + len(MAGIC_BYTES) - 1)
    # Heads on the chain of an earlier one that failed: their own chain is the same.
    tried: set[int] = set()
    while (hit := window.find_magic(at, stop)) >= 0:
        at = hit + 1
        if hit in tried:
            tried.discard(hit)
            continue
        head = window.get(hit, HEAD_SIZE)
        if len(head) < HEAD_SIZE or (head[7] >> 5) not in (0, FIRST):
            at = max(at, hit + empty_run(window.held(hit)))  # nothing lies between their heads
            continue
        try:
            end = _record_end(window, hit)
            while end < beyond and end not in tried and _is_head(window, end):
                tried.add(end)
                end = _record_end(window, end)
        except CorruptRecordError:
            # The head of a record that is itself damaged: it belongs to the same gap.
            continue
        if end > beyond and (hit & 3 == phase or end == window.size or _is_head(window, end)):
            return hit
    return window.size
