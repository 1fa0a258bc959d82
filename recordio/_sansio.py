"""Reading algorithms without I/O, shared by the blocking and the async readers.

Each one is a generator that yields the `(offset, length)` ranges it needs and is sent their bytes; `_sources.drive`
and `recordio.aio` differ only in how they fetch them. Where the size is `UNKNOWN_SIZE`, a range may be returned short
or empty: the source ends there. Pure: no input or output.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np

from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    MAGIC,
    MANY_PARTS,
    MAX_PAYLOAD,
    MIDDLE,
    UNKNOWN_SIZE,
    WHOLE,
    check_part,
    check_total,
    extract,
    middle_run,
    overlap_error,
    starts_record,
    truncated_error,
    unpack_head,
)
from recordio._index_text import check_index_size
from recordio._parser import RecordParser, Sentinel
from recordio.errors import RecordIndexError, TruncatedRecordError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

_T = TypeVar("_T")
ReadGenerator: TypeAlias = "Generator[list[tuple[int, int]], list[bytes], _T]"

_BLOCK_BYTES: Final = 1 << 20
_SMALL_BLOCK_BYTES: Final = 1 << 16
_HEADS_BYTES: Final = 4096
_TRUSTED_BOUND: Final = 1 << 23


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Spans to read, and the place of each requested range in them.

    Attributes:
        spans: `(offset, length)` in bytes, ascending by offset.
        span_of: int64 array; entry i is the number of the span that covers request i.
        start_of: int64 array; entry i is the byte at which request i begins inside its span.
    """

    spans: list[tuple[int, int]]
    span_of: NDArray[np.int64]
    start_of: NDArray[np.int64]


def plan_reads(
    offsets: ArrayLike,
    lengths: ArrayLike,
    *,
    max_gap_bytes: int = 16 * 1024,
    max_span_bytes: int = 16 * 1024 * 1024,
) -> ReadPlan:
    """Merge ranges into spans, so that few reads cover every range.

    Two ranges are merged if the gap between them is at most `max_gap_bytes`: a small gap is read faster than another
    system call or request returns. A merged read stops growing at `max_span_bytes`, which bounds memory; a single range
    larger than that is still one span.

    Args:
        offsets: Byte offsets of the requested ranges, any order, repeats allowed.
        lengths: Their lengths in bytes.
        max_gap_bytes: Largest number of bytes that were not requested to read between two ranges.
        max_span_bytes: Size at which a merged span stops growing.

    Raises:
        ValueError: The two arrays differ in length, or contain a negative number.
    """
    begin = np.asarray(offsets, dtype=np.int64)
    size = np.asarray(lengths, dtype=np.int64)
    if begin.shape != size.shape or begin.ndim != 1:
        raise ValueError(f"offsets {begin.shape} and lengths {size.shape} must match, in 1-D")
    if begin.size == 0:
        return ReadPlan([], begin, begin)
    if begin.min() < 0 or size.min() < 0:
        raise ValueError("offsets and lengths must not be negative")
    order = np.argsort(begin, kind="stable")
    span_of = np.empty(begin.size, dtype=np.int64)
    start_of = np.empty(begin.size, dtype=np.int64)
    spans: list[tuple[int, int]] = []
    span_begin = span_end = -1
    starts, sizes = begin.tolist(), size.tolist()
    for request in order.tolist():
        first, last = starts[request], starts[request] + sizes[request]
        grown = max(span_end, last)
        if (
            not spans
            or first - span_end > max_gap_bytes
            or (grown - span_begin > max_span_bytes and last > span_end)
        ):
            spans.append((first, last - first))
            span_begin, span_end = first, last
        elif last > span_end:
            span_end = last
            spans[-1] = (span_begin, span_end - span_begin)
        span_of[request] = len(spans) - 1
        start_of[request] = first - span_begin
    return ReadPlan(spans, span_of, start_of)


def resolve_positions(positions: Sequence[int], length: int) -> list[int]:
    """Convert positions, negative ones counted from the end, to 0 .. length - 1.

    Raises:
        RecordIndexError: A position is outside.
    """
    result = []
    for given in positions:
        position = operator.index(given)
        if not -length <= position < length:
            raise RecordIndexError(
                f"position {position} is outside a file of {length} records",
                position=position,
                length=length,
            )
        result.append(position % length)
    return result


def position_batches(bounds: NDArray[np.int64], most_bytes: int = 4 * _BLOCK_BYTES) -> Iterator[range]:
    """Split positions 0 .. n - 1 into runs to be read together, by their framed lengths."""
    begin, count = 0, len(bounds)
    while begin < count:
        window = np.cumsum(np.minimum(bounds[begin : begin + 4096], _TRUSTED_BOUND))
        taken = max(1, int(np.searchsorted(window, most_bytes, side="right")))
        yield range(begin, begin + taken)
        begin += taken


def read_records(
    offsets: NDArray[np.int64],
    bounds: NDArray[np.int64],
    *,
    size: int,
    path: str | None,
    limit: int = MAX_PAYLOAD,
) -> ReadGenerator[list[bytes]]:
    """Read the records that begin at `offsets`.

    Args:
        offsets: Byte offsets of record heads, in any order.
        bounds: Upper bounds of the framed lengths, as `Index.spans` returns them. They are hints: a very large one
            (from an index of a few records) is not read blindly, and a record that is longer than its bound is still
            read completely.
        size: Bytes in the file, or `UNKNOWN_SIZE`.
        path: File named in errors.
        limit: Largest payload to accept, in bytes.

    Returns:
        Payloads in the order of `offsets`.
    """
    first = np.where(bounds > _TRUSTED_BOUND, _SMALL_BLOCK_BYTES, bounds)
    plan = plan_reads(offsets, first)
    blocks = yield plan.spans
    views = [memoryview(block) for block in blocks]
    records: list[bytes] = []
    for offset, length, span, start in zip(
        offsets.tolist(), first.tolist(), plan.span_of.tolist(), plan.start_of.tolist(), strict=True
    ):
        held = views[span][start : start + length]
        try:
            payload = extract(held, path=path, offset=offset)
        except TruncatedRecordError:
            if offset + length >= size or len(held) < length:
                raise
            payload = yield from _read_rest(held, offset, size=size, path=path, limit=limit)
        else:
            if len(payload) > limit:
                check_total(len(payload), path=path, offset=offset, limit=limit)
        records.append(bytes(payload))
    return records


def read_record(
    offset: int, bound: int, *, size: int, path: str | None, limit: int = MAX_PAYLOAD
) -> ReadGenerator[bytes]:
    """Read one record like `read_records`, without the cost of a plan."""
    length = bound if bound <= _TRUSTED_BOUND else _SMALL_BLOCK_BYTES
    (block,) = yield [(offset, length)]
    try:
        payload = extract(block, path=path, offset=offset)
    except TruncatedRecordError:
        if offset + length >= size or len(block) < length:
            raise
        return (yield from _read_rest(memoryview(block), offset, size=size, path=path, limit=limit))
    if len(payload) > limit:
        check_total(len(payload), path=path, offset=offset, limit=limit)
    return bytes(payload)


def _read_rest(
    held: memoryview, offset: int, *, size: int, path: str | None, limit: int
) -> ReadGenerator[bytes]:
    """Read a record of which the first bytes are held already."""
    parser = RecordParser(path=path, offset=offset, size=size, max_record_bytes=limit)
    parser.push(held)
    bound = offset + len(held)
    stream = RecordStream(parser, bound, size, block_bytes=_SMALL_BLOCK_BYTES)
    while isinstance(record := parser.next_record(), Sentinel):
        at_bound = stream.reached == bound
        if starts_record((yield from stream.read_block())) and at_bound:
            # The index names this place too. Its line and a head agree, so the length is wrong.
            raise overlap_error(path=path, offset=offset, held=len(held))
    return record


class RecordStream:
    """Sequential pass over a file, from one record to the next.

    Args:
        parser: Parser of the file; the bytes before `reached` were pushed already.
        reached: Byte offset up to which the file was read.
        size: Bytes in the file, or `UNKNOWN_SIZE`.
        block_bytes: Bytes to read at a time, unless one record is larger.

    Attributes:
        finished: True once the parser received the whole file.
    """

    def __init__(
        self, parser: RecordParser, reached: int, size: int, *, block_bytes: int = _BLOCK_BYTES
    ) -> None:
        self.parser = parser
        self.reached = reached
        self.block_bytes = block_bytes
        self.finished = False
        self._size = size

    def next_record(self) -> ReadGenerator[bytes | None]:
        """Return the next payload; None at the end."""
        while isinstance(record := self.parser.next_record(), Sentinel):
            if record is Sentinel.END:
                return None
            yield from self.read_block()
        return record

    def read_block(self) -> ReadGenerator[bytes]:
        """Push the next bytes of the file to the parser and return them; at its end, finish the parser."""
        if self.reached >= self._size:
            self.parser.finish()
            self.finished = True
            return b""
        length = min(max(self.parser.needed, self.block_bytes), self._size - self.reached)
        (block,) = yield [(self.reached, length)]
        self.parser.push(block)
        self.reached += len(block)
        if len(block) < length:
            self._size = self.reached
        return block

    def double_block(self) -> None:
        """Double the bytes to read at a time, up to the usual number."""
        self.block_bytes = min(self.block_bytes * 2, _BLOCK_BYTES)


def read_index_text(size: int, *, path: str | None) -> ReadGenerator[bytes]:
    """Read the text of an index: all bytes of its source.

    Args:
        size: Bytes in the source, or `UNKNOWN_SIZE`.
        path: File named in errors.

    Raises:
        CorruptIndexError: The source is larger than any index may be.
    """
    blocks: list[bytes] = []
    reached = 0
    while reached < size:
        check_index_size(reached if size == UNKNOWN_SIZE else size, path=path)
        length = min(_BLOCK_BYTES << min(len(blocks), 6), size - reached)
        (block,) = yield [(reached, length)]
        blocks.append(bytes(block))
        reached += len(block)
        size = reached if len(block) < length else size
    return b"".join(blocks)


def scan_offsets(size: int, *, path: str | None = None) -> ReadGenerator[NDArray[np.int64]]:
    """Find the records of a file by their heads alone.

    Small parts are passed inside a block that is read once; a part larger than the block is skipped, so its payload
    is never read. Where the size is not known, a block that is returned short shows it.

    Args:
        size: Bytes in the file, or `UNKNOWN_SIZE`.
        path: File named in errors.

    Returns:
        int64 array of the byte offset of each record's first part.

    Raises:
        CorruptRecordError: The file is damaged at the offset named.
    """
    offsets: list[int] = []
    position = begin = last = 0
    block = b""
    wanted = _BLOCK_BYTES
    continuing = False
    parts = 0
    while position < size:
        at = position - begin
        if not 0 <= at <= len(block) - HEAD_SIZE:
            if size - position < HEAD_SIZE:
                raise truncated_error(path=path, offset=position, needed=HEAD_SIZE, held=size - position)
            # A block that contained only one head was mostly payload: request less, and more again if it has many.
            skipped = at > len(block) + wanted
            wanted = _HEADS_BYTES if skipped else min(wanted * 4, _BLOCK_BYTES)
            read_up_to = begin + len(block)
            begin, at = position, 0
            asked = min(wanted, size - position)
            (block,) = yield [(position, asked)]
            if len(block) < asked:
                size = position + len(block)
                if not block and position > read_up_to and (yield [(position - 1, 1)]) == [b""]:
                    raise truncated_error(path=path, offset=last, needed=position - last, held=None)
                continue
        magic, word = unpack_head(block, at)
        framed = (word + 11) & -4
        if magic == MAGIC and word <= MAX_PAYLOAD and not continuing and position + framed <= size:
            flag = WHOLE  # nearly every part; `check_part` would double the time
        else:
            flag, _, framed = check_part(
                magic, word, continuing=continuing, path=path, offset=position, size=size
            )
        if not continuing:
            offsets.append(position)
        continuing = flag in (FIRST, MIDDLE)
        last = position
        position += framed
        parts = parts + 1 if continuing else 0
        if parts >= MANY_PARTS:
            position = begin + middle_run(memoryview(block), position - begin)[0]
    if continuing:
        raise truncated_error(path=path, offset=size, needed=HEAD_SIZE, held=0)
    return np.array(offsets, dtype=np.int64)
