"""Walk a possibly damaged file: every sound record, and every gap between them.

Strategy. A valid file never holds the magic word at an aligned place other than a part head,
because writers cut records there (docs/format.md, "Split records"). So a part whose data holds one
has a wrong length, and after damage the next aligned magic word with flag 0 or 1 that begins a
sound record is where reading goes on. If bytes were lost or added, later records no longer lie at
multiples of 4; a magic word elsewhere is believed only if another head, or the end of the file,
follows its record, since payloads may hold such words by chance. Pure: bytes are asked for through
a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    MIDDLE,
    check_head,
    check_non_final_length,
    check_total,
    framed_length,
    truncated_error,
    unpack_head,
)
from recordio.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

__all__ = ("FOREIGN_BYTES", "Gap", "RecordSpan", "scan_damaged")

_BLOCK: Final = 1 << 20

FOREIGN_BYTES: Final = "no record head here; foreign bytes, or the record before them was longer"
"""Reason of a gap behind a record that looks sound."""


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """A sound record: byte offset of its head, and its framed length in bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Byte offset behind the record."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that belong to no sound record; `reason` says what is wrong where they begin."""

    offset: int
    length: int
    reason: str


class _Window:
    """Bytes of the file by position, from one block kept at a time."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self.size = size
        self._begin = 0
        self._block = b""

    def get(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the end of the file."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        at = offset - self._begin
        if at < 0 or at + length > len(self._block):
            self._begin, at = offset, 0
            self._block = self._read(offset, min(max(length, _BLOCK), self.size - offset))
        return self._block[at : at + length]

    def find_magic(self, begin: int, end: int) -> int:
        """Offset of the first magic word in [begin, end), at any alignment; -1 if there is none."""
        end = min(end, self.size)
        while end - begin >= len(MAGIC_BYTES):
            at = begin - self._begin
            if at < 0 or at + len(MAGIC_BYTES) > len(self._block):
                self.get(begin, len(MAGIC_BYTES))
                at = begin - self._begin
            # In the block itself: where such words are many, a copy for each would cost more than everything else.
            hit = self._block.find(MAGIC_BYTES, at, end - self._begin)
            if hit >= 0:
                return self._begin + hit
            begin = min(end, self._begin + len(self._block)) - len(MAGIC_BYTES) + 1
        return -1


def scan_damaged(
    read: Callable[[int, int], bytes],
    size: int,
    *,
    heads: Container[int] = frozenset(),
) -> Iterator[RecordSpan | Gap]:
    """Yield sound records and gaps in file order; together they cover the whole file.

    Args:
        read: Called with (offset, length) in bytes inside the file; returns exactly those.
        size: Bytes in the file.
        heads: Byte offsets of record heads according to an index, if there is one. A record that
            ends where no head follows, though the index has a sound one further on, was cut short
            by a damaged length and counts as damage.
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
        # Nothing sensible follows: bytes were put in behind this record, or its length is wrong, or
        # bytes of it were lost and it reaches into the next one.
        inner = _next_record(window, position + 1, position & 3, beyond=end)
        if inner < end:
            yield Gap(position, inner - position, "bytes of the record were lost, it ends too late")
            position = inner
            continue
        gap_end = _next_record(window, end, position & 3)
        shortened = gap_end in heads and end not in heads and position in heads
        if shortened or not _zero_padded(window, position, end):
            yield Gap(position, gap_end - position, "the length was damaged, the record ends too early")
        else:
            yield RecordSpan(position, end - position)
            yield Gap(
                end,
                gap_end - end,
                FOREIGN_BYTES,
            )
        position = gap_end


def _record_end(window: _Window, offset: int) -> int:
    position, continuing, total = offset, False, 0
    while True:
        head = window.get(position, HEAD_SIZE)
        if len(head) < HEAD_SIZE:
            raise truncated_error(path=None, offset=position, needed=HEAD_SIZE, held=len(head))
        magic, word = unpack_head(head)
        flag, length = check_head(magic, word, continuing=continuing, path=None, offset=position)
        framed = framed_length(length)
        if position + framed > window.size:
            raise truncated_error(path=None, offset=position, needed=framed, held=window.size - position)
        if flag in (FIRST, MIDDLE):
            check_non_final_length(length, path=None, offset=position)
        total += length
        check_total(total, path=None, offset=offset)
        _check_data(window, position + HEAD_SIZE, length)
        position += framed
        if flag not in (FIRST, MIDDLE):
            return position
        continuing = True
        total += len(MAGIC_BYTES)


def _check_data(window: _Window, begin: int, length: int) -> None:
    at, end = begin, begin + length
    while (hit := window.find_magic(at, end)) >= 0:
        if (hit - begin) & 3 == 0:
            raise CorruptRecordError(
                "Invalid RecordIO File: a record head lies inside the data, so the length is wrong",
                offset=hit,
            )
        at = hit + 1


def _is_head(window: _Window, offset: int) -> bool:
    head = window.get(offset, HEAD_SIZE)
    if len(head) < HEAD_SIZE:
        return False
    return head.startswith(MAGIC_BYTES)


def _zero_padded(window: _Window, offset: int, end: int) -> bool:
    """Whether the last part of a record, which ends at `end`, is padded as writers do it."""
    position = offset
    while True:
        _, word = unpack_head(window.get(position, HEAD_SIZE))
        length = word & MAX_PAYLOAD
        if position + framed_length(length) >= end:
            data_end = position + HEAD_SIZE + length
            return not any(window.get(data_end, end - data_end))
        position += framed_length(length)


def _next_record(window: _Window, begin: int, phase: int, *, beyond: int = -1) -> int:
    """Find the next record to trust.

    Args:
        window: The file.
        begin: Byte offset to look from.
        phase: Alignment (offset modulo 4) of the records so far; heads elsewhere need a successor.
        beyond: If given, only heads before this offset are looked at, and the records from there on
            must lead past it. Records stored inside a payload do not: they end with it at the latest.

    Returns:
        Offset of its head; the size of the file if there is none.
    """
    at = begin
    stop = window.size if beyond < 0 else min(window.size, beyond + len(MAGIC_BYTES) - 1)
    # Heads that were reached from an earlier one, in vain: from them the way is the same.
    tried: set[int] = set()
    while (hit := window.find_magic(at, stop)) >= 0:
        at = hit + 1
        if hit in tried:
            tried.discard(hit)
            continue
        head = window.get(hit, HEAD_SIZE)
        if len(head) < HEAD_SIZE or (head[7] >> 5) not in (0, FIRST):
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
