"""What the blocking and the async readers do, written once.

Each function is a generator that yields the ranges it wants and is sent their bytes; `_reader` and
`aio` only differ in how they fetch. Where the size is `UNKNOWN_SIZE`, a range may come back short or
empty: the source ends there. Pure: no input or output.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from recordio._framing import MAX_PAYLOAD, UNKNOWN_SIZE, check_total, extract, overlap_error, starts_record
from recordio._index_text import check_index_size
from recordio._parser import RecordParser, Sentinel
from recordio._plan import plan_reads
from recordio.errors import RecordIndexError, TruncatedRecordError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = (
    "BLOCK_BYTES",
    "ReadGenerator",
    "next_record",
    "position_batches",
    "read_index_text",
    "read_record",
    "read_records",
    "resolve_positions",
)

BLOCK_BYTES: Final = 1 << 20
"""How much a sequential pass reads at a time, unless one record is larger."""

_FIRST_LOOK: Final = 1 << 16
_TRUSTED_BOUND: Final = 1 << 23

Ranges: TypeAlias = "list[tuple[int, int]]"
ReadGenerator: TypeAlias = "Generator[Ranges, list[bytes], list[bytes]]"
StreamGenerator: TypeAlias = "Generator[Ranges, list[bytes], bytes | None]"


def resolve_positions(positions: Sequence[int], length: int) -> list[int]:
    """Turn positions, negative ones counted from the end, into 0 .. length - 1.

    Raises:
        RecordIndexError: a position outside.
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


def read_records(
    offsets: NDArray[np.int64],
    bounds: NDArray[np.int64],
    *,
    size: int,
    path: str | None,
    limit: int = MAX_PAYLOAD,
) -> ReadGenerator:
    """Read the records that begin at `offsets`.

    Args:
        offsets: Byte offsets of record heads, any order.
        bounds: Upper bounds of the framed lengths, as `Index.spans` gives them. They are hints: an
            enormous one (an index of a few records) is not read blindly, and a record that is
            longer than its bound is still read whole.
        size: Bytes in the file, or `UNKNOWN_SIZE`.
        path: File named in errors.
        limit: Largest payload to accept, in bytes.

    Returns:
        Payloads in the order of `offsets`.
    """
    first = np.where(bounds > _TRUSTED_BOUND, _FIRST_LOOK, bounds)
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
            records.append((yield from _read_on(held, offset, size=size, path=path, limit=limit)))
        else:
            if len(payload) > limit:
                check_total(len(payload), path=path, offset=offset, limit=limit)
            records.append(bytes(payload))
    return records


def read_record(
    offset: int, bound: int, *, size: int, path: str | None, limit: int = MAX_PAYLOAD
) -> Generator[Ranges, list[bytes], bytes]:
    """The same for one record, without the cost of a plan."""
    length = bound if bound <= _TRUSTED_BOUND else _FIRST_LOOK
    (block,) = yield [(offset, length)]
    try:
        payload = extract(block, path=path, offset=offset)
    except TruncatedRecordError:
        if offset + length >= size or len(block) < length:
            raise
        return (yield from _read_on(memoryview(block), offset, size=size, path=path, limit=limit))
    if len(payload) > limit:
        check_total(len(payload), path=path, offset=offset, limit=limit)
    return bytes(payload)


def _read_on(
    held: memoryview, offset: int, *, size: int, path: str | None, limit: int
) -> Generator[Ranges, list[bytes], bytes]:
    parser = RecordParser(path=path, offset=offset, size=size, max_record_bytes=limit)
    parser.push(held)
    reached = offset + len(held)
    while isinstance(record := parser.next_record(), Sentinel):
        if reached >= size:
            parser.finish()
            continue
        length = min(max(parser.needed, _FIRST_LOOK), size - reached)
        (block,) = yield [(reached, length)]
        if reached == offset + len(held) and starts_record(block):
            # The index names this place too. Its line and a head agree: it is the length that is wrong.
            raise overlap_error(path=path, offset=offset, held=len(held))
        parser.push(block)
        reached += len(block)
        size = reached if len(block) < length else size
    return record


def next_record(
    parser: RecordParser, reached: int, size: int, *, block_bytes: int = BLOCK_BYTES
) -> StreamGenerator:
    """One record from a sequential pass; None at the end.

    Args:
        parser: Holds what was read and not used; the bytes before `reached` were pushed.
        reached: Byte offset up to which the file was read.
        size: Bytes in the file, or `UNKNOWN_SIZE`.
    """
    while isinstance(record := parser.next_record(), Sentinel):
        if record is Sentinel.END:
            return None
        if reached >= size:
            parser.finish()
            continue
        length = min(max(parser.needed, block_bytes), size - reached)
        (block,) = yield [(reached, length)]
        parser.push(block)
        reached += len(block)
        size = reached if len(block) < length else size
    return record


def read_index_text(size: int, *, path: str | None) -> Generator[Ranges, list[bytes], bytes]:
    """The text of an index: everything that a source holds.

    Args:
        size: Bytes in the source, or `UNKNOWN_SIZE`.
        path: File named in errors.

    Raises:
        CorruptIndexError: it holds too much.
    """
    blocks: list[bytes] = []
    reached = 0
    while reached < size:
        check_index_size(reached if size == UNKNOWN_SIZE else size, path=path)
        length = min(BLOCK_BYTES << min(len(blocks), 6), size - reached)
        (block,) = yield [(reached, length)]
        blocks.append(bytes(block))
        reached += len(block)
        size = reached if len(block) < length else size
    return b"".join(blocks)


def position_batches(bounds: NDArray[np.int64], most_bytes: int = 4 * BLOCK_BYTES) -> Iterator[range]:
    """Cut positions 0 .. n - 1 into runs to be read together, by their framed lengths."""
    begin, count = 0, len(bounds)
    while begin < count:
        window = np.cumsum(np.minimum(bounds[begin : begin + 4096], _TRUSTED_BOUND))
        taken = max(1, int(np.searchsorted(window, most_bytes, side="right")))
        yield range(begin, begin + taken)
        begin += taken
