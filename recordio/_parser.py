"""RecordParser: push bytes, get records, or the information that more bytes are needed.

Strategy: pushed chunks are kept in a list and joined only when there are enough bytes for the next step, so the time is
linear however the input is split. A step is a part head (8 bytes) or a part's data with its padding. If the size of the
whole input is known, a length that extends past it is refused at once, before any caller waits for, or allocates, that
much. Without it, memory is bounded by `max_record_bytes` plus the last chunk. Format rules: docs/format.md. Pure: no
input or output.
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
    MANY_PARTS,
    MAX_PAYLOAD,
    MIDDLE,
    WHOLE,
    BytesLike,
    check_head,
    check_non_final_length,
    check_total,
    framed_length,
    join_run,
    middle_run,
    truncated_error,
    unpack_head,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sentinel(enum.Enum):
    """Result of `RecordParser.next_record` if there is no complete record."""

    NEED_MORE = "need more"
    END = "end"


NEED_MORE: Literal[Sentinel.NEED_MORE] = Sentinel.NEED_MORE
"""Push more bytes, or call `finish` if there are none."""
END: Literal[Sentinel.END] = Sentinel.END
"""`finish` was called and the input ended between two records."""


class RecordParser:
    """Parser that converts a stream of framed bytes to records, without any input or output.

    Args:
        path: File named in errors.
        offset: Byte offset in the file of the first byte that will be pushed; must be a record head.
        size: Bytes in the whole file, if known. Lengths that extend past it are refused at once.
        max_record_bytes: Largest payload to accept, at most 2**29 - 1.
        tolerant: Interpret part flags as MXNet's sequential reader does: 0 and 3 end a record, regardless of the part
            before, all others require another part; lengths of parts are not checked, and a record that lacks its
            last parts at the end of the input is omitted.

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
        """Return the bytes that must still be pushed before `next_record` can make progress (0: none)."""
        return max(0, self._needed - self._available())

    def push(self, data: BytesLike) -> None:
        """Add the bytes that follow those pushed before. Mutable buffers are copied.

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
        """Declare the end of the input, so that an incomplete record is an error."""
        self._finished = True

    def next_record(self) -> bytes | Sentinel:
        """Return the next payload, or `NEED_MORE`, or `END`.

        Raises:
            CorruptRecordError: The bytes break a rule of the format.
            TruncatedRecordError: The input ended, or according to its size will end, inside a record.
        """
        while True:
            available = self._available()
            if available < self._needed:
                return self._wait(available)
            if self._chunks:
                self._join_chunks()
            magic, word = unpack_head(self._buffer, self._position)
            if self.tolerant and magic == MAGIC:
                flag, length = LAST if word >> 29 in (WHOLE, LAST) else MIDDLE, word & MAX_PAYLOAD
            else:
                flag, length = check_head(
                    magic, word, continuing=bool(self._parts), path=self.path, offset=self.offset
                )
            framed = framed_length(length)
            if available < framed:
                self._announce(flag, length, framed)
                return self._wait(available)
            self._check_part(flag, length)
            begin = self._position + HEAD_SIZE
            data = self._buffer[begin : begin + length]
            if not self._parts:
                self._start = self.offset
            self._position += framed
            self.offset += framed
            self._needed = HEAD_SIZE
            if flag == WHOLE:
                self.record_offset = self._start
                return data
            self._parts.append(data)
            self._total += length + len(MAGIC_BYTES)
            if flag != LAST and len(self._parts) >= MANY_PARTS:
                self._take_run()
            if flag == LAST:
                record = MAGIC_BYTES.join(self._parts)
                self._parts.clear()
                self._total = 0
                self.record_offset = self._start
                return record

    def _take_run(self) -> None:
        """Take the middle parts that follow and are held already."""
        view = memoryview(self._buffer)
        end, heads = middle_run(view, self._position)
        if len(heads):
            data = join_run(view, self._position, end, heads)
            self._parts.append(data)
            self._total += len(data) + len(MAGIC_BYTES)
            self.offset += end - self._position
            self._position = end
            self._check_part(MIDDLE, 0)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the records that are complete with the bytes pushed so far."""
        while not isinstance(record := self.next_record(), Sentinel):
            yield record

    def _available(self) -> int:
        return len(self._buffer) - self._position + self._held

    def _join_chunks(self) -> None:
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

    def _wait(self, available: int) -> Sentinel:
        if not self._finished:
            return NEED_MORE
        if available == 0 and (self.tolerant or not self._parts):
            return END
        raise truncated_error(
            path=self.path,
            offset=self.offset,
            needed=self._needed,
            held=available,
            what="the input",
        )
