"""RecordParser: push bytes in, take records out, or be told that more bytes are needed.

Strategy: pushed chunks are kept in a list and joined only when enough bytes for the next step are
there, so any way of cutting the input costs linear time. A step is a part head (8 bytes) or a
part's data with its padding. If the size of the whole input is known, a length that runs past it is
refused at once, before anybody waits for, or allocates, that much. Without it, memory is bounded by
`max_record_bytes` plus the last chunk. Format rules: docs/format.md. Pure: no input or output.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Literal

from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    LAST,
    MAGIC,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    MIDDLE,
    WHOLE,
    BytesLike,
    check_head,
    check_non_final_length,
    check_total,
    framed_length,
    truncated_error,
    unpack_head,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("END", "NEED_MORE", "RecordParser", "Sentinel")


class Sentinel(enum.Enum):
    """What `RecordParser.next_record` returns when it has no record to give."""

    NEED_MORE = "need more"
    END = "end"


NEED_MORE: Literal[Sentinel.NEED_MORE] = Sentinel.NEED_MORE
"""Push more bytes, or call `finish` if there are none."""
END: Literal[Sentinel.END] = Sentinel.END
"""`finish` was called and the input ended between two records."""


class RecordParser:
    """Turns a stream of framed bytes into records, without any input or output of its own.

    Args:
        path: File named in errors.
        offset: Byte offset in the file of the first byte that will be pushed; must be a record
            head.
        size: Bytes in the whole file, if known. Lengths that run past it are refused at once.
        max_record_bytes: Largest payload to accept, at most 2**29 - 1.
        tolerant: Take part flags as MXNet's sequential reader does: 0 and 3 end a record, whatever
            came before, all others ask for another part; lengths of parts are not looked at, and a
            record that lacks its last parts at the end of the input is left out.

    Attributes:
        record_offset: Byte offset of the record last returned; -1 before the first.
        offset: Byte offset of the next byte not yet consumed by a finished part.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        offset: int = 0,
        size: int | None = None,
        max_record_bytes: int = MAX_PAYLOAD,
        tolerant: bool = False,
    ) -> None:
        self.path = path
        self.size = size
        self.max_record_bytes = min(max_record_bytes, MAX_PAYLOAD)
        self.tolerant = tolerant
        self.offset = offset
        self.record_offset = -1
        self._start = offset
        self._chunks: list[bytes] = []
        self._held = 0
        self._buffer = b""
        self._position = 0
        self._needed = HEAD_SIZE
        self._parts: list[bytes] = []
        self._total = 0
        self._finished = False

    @property
    def needed(self) -> int:
        """Bytes that must still be pushed before `next_record` can make progress (0: none)."""
        return max(0, self._needed - self._available())

    def push(self, data: BytesLike) -> None:
        """Add bytes that follow what was pushed before. Mutable buffers are copied.

        Raises:
            ValueError: `finish` was already called.
        """
        if self._finished:
            raise ValueError("push() after finish(): the end of the input was already announced")
        chunk = data if isinstance(data, bytes) else bytes(data)
        if chunk:
            self._chunks.append(chunk)
            self._held += len(chunk)

    def finish(self) -> None:
        """Say that no more bytes will come, so that an unfinished record is an error."""
        self._finished = True

    def next_record(self) -> bytes | Sentinel:
        """Return the next payload, or `NEED_MORE`, or `END`.

        Raises:
            CorruptRecordError: the bytes break a rule of the format.
            TruncatedRecordError: the input ended, or by its known size will end, inside a record.
        """
        while True:
            available = self._available()
            if available < self._needed:
                return self._starved(available)
            if self._chunks:
                self._gather()
            magic, word = unpack_head(self._buffer, self._position)
            if self.tolerant and magic == MAGIC:
                flag, length = LAST if word >> 29 in (WHOLE, LAST) else MIDDLE, word & MAX_PAYLOAD
            else:
                flag, length = check_head(
                    magic, word, continuing=self._inside(), path=self.path, offset=self.offset
                )
            framed = framed_length(length)
            if available < framed:
                self._announce(flag, length, framed)
                return self._starved(available)
            self._check_part(flag, length)
            begin = self._position + HEAD_SIZE
            data = self._buffer[begin : begin + length]
            if not self._inside():
                self._start = self.offset
            self._position += framed
            self.offset += framed
            self._needed = HEAD_SIZE
            if flag == WHOLE:
                self.record_offset = self._start
                return data
            self._parts.append(data)
            self._total += length + len(MAGIC_BYTES)
            if flag == LAST:
                record = MAGIC_BYTES.join(self._parts)
                self._parts.clear()
                self._total = 0
                self.record_offset = self._start
                return record

    def __iter__(self) -> Iterator[bytes]:
        """Yield the records that the bytes pushed so far complete."""
        while not isinstance(record := self.next_record(), Sentinel):
            yield record

    def _inside(self) -> bool:
        return bool(self._parts)

    def _available(self) -> int:
        return len(self._buffer) - self._position + self._held

    def _gather(self) -> None:
        rest = self._buffer[self._position :]
        if rest:
            self._chunks.insert(0, rest)
        self._buffer = b"".join(self._chunks) if len(self._chunks) > 1 else self._chunks[0]
        self._chunks.clear()
        self._held = 0
        self._position = 0

    def _check_part(self, flag: int, length: int) -> None:
        if flag in (FIRST, MIDDLE) and not self.tolerant:
            check_non_final_length(length, path=self.path, offset=self.offset)
        check_total(
            self._total + length,
            path=self.path,
            offset=self.offset,
            limit=self.max_record_bytes,
        )

    def _announce(self, flag: int, length: int, framed: int) -> None:
        self._check_part(flag, length)
        if self.size is not None and self.offset + framed > self.size:
            raise truncated_error(
                path=self.path,
                offset=self.offset,
                needed=framed,
                held=max(0, self.size - self.offset),
            )
        self._needed = framed

    def _starved(self, available: int) -> Sentinel:
        if not self._finished:
            return NEED_MORE
        if available == 0 and (self.tolerant or not self._inside()):
            return END
        raise truncated_error(
            path=self.path,
            offset=self.offset,
            needed=self._needed,
            held=available,
            what="the input",
        )
