"""A chunk that leaves this machine, and its result: what lies in slab memory travels by value. Pure.

A chunk names places in the slab memory. Elsewhere there is none, so the bytes of its samples are put together into one
array, the places are turned to places in that array, and the rows are numbered from 0. What comes back are the rows,
which `write_rows` writes to where the chunk said.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np

from aioloader.executors.process.worker import read_error
from aioloader.executors.retry import Unreadable
from aioloader.foundation.types import (
    LENGTH,
    ROW,
    START,
    Array,
    Chunk,
    ChunkResult,
    Failure,
    IntArray,
    RowLayout,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.executors.shared_memory import SlabMemory

__all__ = (
    "ChunkRequest",
    "ChunkResponse",
    "pack_buffers",
    "pack_parcel",
    "unpack_buffers",
    "unpack_parcel",
    "write_rows",
)

_ALIGN = 64


class ChunkRequest(NamedTuple):
    """A chunk without its memory.

    Attributes:
        batch: number of the batch.
        index_table: int64 (8, n), see `Chunk`; starts are places in `payload`, rows are 0 to n-1 (those of
            the batch where `custom_collate`).
        payload: uint8 (nbytes,), the bytes of all samples.
        extras: see `aioloader.foundation.types.Chunk`.
        layout: the pickled layout of the rows, or None.
        rows: samples of the whole batch.
        custom_collate: the chunk is a whole batch, to be collated.
        segment: see `aioloader.foundation.types.Chunk`.
        samples: (pickle, buffers) of the chunk's samples, or None.
    """

    batch: int
    index_table: IntArray
    payload: Array
    extras: Array | None
    layout: bytes | None
    rows: int
    custom_collate: bool
    segment: int = 0
    samples: tuple[bytes, list[Array]] | None = None


class ChunkResponse(NamedTuple):
    """What came out of a parcel.

    Attributes:
        written: int32 (m,), places of the samples that stand in `arrays`.
        arrays: (n, ...) for every leaf of the layout; None for one without rows.
        failures: (row, stage, pickled exception) of the samples that failed.
        packed: (pickle, buffers) of values, objects and batch; None where there are none.
        counters: what was counted, see `aioloader.foundation.types.ChunkResult.counters`.
        error: the pickled exception that ended the chunk, or None.
    """

    written: Array
    arrays: list[Array | None]
    failures: list[tuple[int, str, bytes]]
    packed: tuple[bytes, list[Array]] | None
    counters: tuple[Any, ...]
    error: bytes | None


def pack_parcel(chunk: Chunk, memory: SlabMemory) -> ChunkRequest:
    """Take a chunk's bytes out of the slab memory."""
    index_table = chunk.index_table.copy()
    length = index_table[LENGTH]
    room = -(-length // _ALIGN) * _ALIGN
    starts = np.cumsum(room) - room
    payload = np.empty(int(room.sum()), np.uint8)
    region = np.frombuffer(memory.memory, np.uint8)
    for place, (start, nbytes) in enumerate(zip(index_table[START].tolist(), length.tolist(), strict=True)):
        at = int(starts[place])
        payload[at : at + nbytes] = region[start : start + nbytes]
    index_table[START] = starts
    layout: bytes | None = None
    if not chunk.custom_collate:
        index_table[ROW] = np.arange(len(chunk))
        if chunk.layout is not None:
            layout = cloudpickle.dumps(chunk.layout, protocol=5)
    samples = None if chunk.samples is None else pack_buffers(chunk.samples)
    return ChunkRequest(
        chunk.batch,
        index_table,
        payload,
        chunk.extras,
        layout,
        chunk.rows,
        chunk.custom_collate,
        chunk.segment,
        samples,
    )


def pack_buffers(value: Any) -> tuple[bytes, list[Array]]:
    """A pickle and its large buffers, uint8 (n,) each, which are views."""
    buffers: list[pickle.PickleBuffer] = []
    blob: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return blob, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def unpack_buffers(packed: tuple[bytes, list[Array]]) -> Any:
    """The inverse of `pack_buffers`, with memory of its own: what Ray gives is read-only, and keeps its store's."""
    blob, buffers = packed
    return pickle.loads(blob, buffers=[bytearray(each) for each in buffers])


def unpack_parcel(parcel: ChunkRequest, layout: RowLayout | None) -> tuple[Chunk, int]:
    """The chunk of a parcel, for a memory that begins with its payload; and the bytes that this memory needs."""
    size = -(-parcel.payload.nbytes // _ALIGN) * _ALIGN
    bases: tuple[int, ...] = ()
    rows = parcel.rows
    if not parcel.custom_collate:
        rows = parcel.index_table.shape[1]
        if layout is not None:
            offsets, total = layout.offsets(rows)
            bases = tuple(size + offset for offset in offsets)
            size += total
    extras = (
        None if parcel.extras is None else parcel.extras.copy()
    )  # Ray gives arrays that cannot be written to
    samples = None if parcel.samples is None else unpack_buffers(parcel.samples)
    chunk = Chunk(
        parcel.batch,
        parcel.index_table,
        extras,
        layout,
        bases,
        rows,
        parcel.custom_collate,
        (0, 0),
        None,
        samples,
        parcel.segment,
    )
    return chunk, size


def write_rows(answer: ChunkResponse, chunk: Chunk, memory: SlabMemory) -> ChunkResult | Unreadable:
    """Write an answer's rows to the slab memory and give what else came out.

    Args:
        answer: of the parcel that was made of `chunk`.
        chunk: the chunk.
        memory: where its rows lie.

    Raises:
        Exception: what ended the chunk.
    """
    if answer.error is not None:
        raise read_error(answer.error)
    rows: Sequence[int] = chunk.index_table[ROW].tolist()
    if chunk.custom_collate:
        rows = range(chunk.rows)
    result = ChunkResult(written=[rows[place] for place in answer.written.tolist()])
    if result.written:
        assert chunk.layout is not None
        for leaf, base, array in zip(chunk.layout.leaves, chunk.bases, answer.arrays, strict=True):
            if leaf is not None and array is not None:
                shape = (chunk.rows, *[extent or 0 for extent in leaf.shape])
                _copy_rows(memory.array(base, shape, leaf.dtype), result.written, array, answer.written)
    result.failures = [
        Failure(rows[place], stage, read_error(blob)) for place, stage, blob in answer.failures
    ]
    if answer.packed is not None:
        try:
            values, objects, result.batch = unpack_buffers(answer.packed)
        except Exception as error:
            return Unreadable(error)
        result.values = {rows[place]: value for place, value in values.items()}
        result.objects = {
            leaf: {rows[place]: value for place, value in those.items()} for leaf, those in objects.items()
        }
    result.counters = answer.counters
    return result


def _copy_rows(target: Array, rows: list[int], source: Array, places: Array) -> None:
    first, count = rows[0], len(rows)
    if count == len(source) and rows == list(range(first, first + count)) and places[0] == 0:
        target[first : first + count] = source  # in one piece, which takes half the time
    else:
        target[rows] = source[places]
