"""Actor that makes samples on a node of a Ray cluster. It does not import Ray.

Chunks that are sent to other machines, and their results: contents of the slab memory are sent by value. Pure.

A chunk refers to places in the slab memory, which other machines do not have. So the bytes of its samples are collected
in one array, the places are changed to places in that array, and the rows are numbered from 0. The rows are sent back,
and `write_rows` writes them to the places that the chunk names.
"""

from __future__ import annotations

import mmap
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np

from aioloader.errors import WorkerError
from aioloader.executors.retry import UnreadableResult
from aioloader.executors.runner import Runner
from aioloader.executors.transport import pack_result, portable_error, read_error
from aioloader.foundation.types import LENGTH, ROW, START, Array, Chunk, ChunkResult, Failure, RowLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Program, SlabMemory


_ALIGN = 64


class ChunkRequest(NamedTuple):
    """Chunk with the contents of its memory.

    Attributes:
        chunk: the chunk without memory, layout and samples; in its index table starts are places in `payload`, and rows
            are 0 to n-1 (those of the batch where `custom_collate`).
        payload: uint8 (nbytes,), the bytes of all samples.
        layout: the pickled layout of the rows, or None.
        samples: (pickle, buffers) of the chunk's samples, or None.
    """

    chunk: Chunk
    payload: Array
    layout: bytes | None = None
    samples: tuple[bytes, list[Array]] | None = None


class ChunkResponse(NamedTuple):
    """Result of a `ChunkRequest`.

    Attributes:
        written: int32 (m,), places of the samples that are in `arrays`.
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
    error: bytes | None = None


def pack_request(chunk: Chunk, memory: SlabMemory) -> ChunkRequest:
    """Return a chunk with its bytes, copied from the slab memory."""
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
    sent = Chunk(
        batch=chunk.batch,
        index_table=index_table,
        rows=chunk.rows,
        extras=chunk.extras,
        custom_collate=chunk.custom_collate,
        segment=chunk.segment,
        first=chunk.first,
    )
    return ChunkRequest(sent, payload, layout, samples)


def pack_buffers(value: Any) -> tuple[bytes, list[Array]]:
    """Return a pickle and its large buffers, uint8 (n,) each, which are views."""
    buffers: list[pickle.PickleBuffer] = []
    blob: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return blob, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]


def unpack_buffers(packed: tuple[bytes, list[Array]]) -> Any:
    """Return the value of `pack_buffers` in new memory: buffers of Ray are read-only, and keep memory of its store."""
    blob, buffers = packed
    return pickle.loads(blob, buffers=[bytearray(each) for each in buffers])


def unpack_request(request: ChunkRequest, layout: RowLayout | None) -> tuple[Chunk, int]:
    """Return the chunk of a request, for a memory that begins with its payload, and the bytes that it needs there."""
    size = -(-request.payload.nbytes // _ALIGN) * _ALIGN
    chunk = request.chunk
    if chunk.extras is not None:
        chunk.extras = chunk.extras.copy()  # arrays of Ray are read-only
    if request.samples is not None:
        chunk.samples = unpack_buffers(request.samples)
    if not chunk.custom_collate:
        chunk.rows = len(chunk)
        if layout is not None:
            chunk.layout = layout
            offsets, total = layout.offsets(chunk.rows)
            chunk.bases = tuple(size + offset for offset in offsets)
            size += total
    return chunk, size


def write_rows(response: ChunkResponse, chunk: Chunk, memory: SlabMemory) -> ChunkResult | UnreadableResult:
    """Write the rows of a response to the slab memory, and return the rest of the result.

    Args:
        response: to the request that was made of `chunk`.
        chunk: the chunk.
        memory: memory of its rows.

    Raises:
        Exception: the error that ended the chunk.
    """
    if response.error is not None:
        raise read_error(response.error)
    rows: Sequence[int] = chunk.index_table[ROW].tolist()
    if chunk.custom_collate:
        rows = range(chunk.rows)
    result = ChunkResult.counted(response.counters)
    result.written = [rows[place] for place in response.written.tolist()]
    if result.written:
        assert chunk.layout is not None
        targets = chunk.layout.arrays(memory.memory, chunk.bases, chunk.rows)
        for target, array in zip(targets, response.arrays, strict=True):
            if target is not None and array is not None:
                _copy_rows(target, result.written, array, response.written)
    result.failures = [
        Failure(rows[place], stage, read_error(blob)) for place, stage, blob in response.failures
    ]
    if response.packed is not None:
        try:
            values, objects, result.batch = unpack_buffers(response.packed)
        except Exception as error:
            return UnreadableResult(error)
        result.values = {rows[place]: value for place, value in values.items()}
        result.objects = {
            leaf: {rows[place]: value for place, value in those.items()} for leaf, those in objects.items()
        }
    return result


def _copy_rows(target: Array, rows: list[int], source: Array, places: Array) -> None:
    first, count = rows[0], len(rows)
    if count == len(source) and rows == list(range(first, first + count)) and places[0] == 0:
        target[first : first + count] = source  # one copy takes half the time
    else:
        target[rows] = source[places]


class RayWorker:
    """Worker that runs requests one after the other, in its own memory."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._runner: Runner | None = None
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._layout: tuple[bytes, RowLayout] | None = None

    def load(self, program: bytes) -> bytes | None:
        """Load the loader's program; return the pickled exception if that fails."""
        try:
            self._program = pickle.loads(program)
            self._runner = Runner(self._program, self._memory)
        except BaseException as error:
            return portable_error(error)
        return None

    def run(self, *fields: Any) -> ChunkResponse:
        """Make the samples of a request.

        Args:
            fields: those of a `ChunkRequest`.
        """
        request = ChunkRequest(*fields)
        try:
            chunk, size = unpack_request(request, self._layout_of(request.layout))
            runner = self._ready(size)
            np.frombuffer(self._memory, np.uint8)[: request.payload.nbytes] = request.payload
            result = runner.run(chunk)
            written, failures, packed, counters = pack_result(result, pack_buffers)
        except BaseException as error:
            counters = ChunkResult().counters
            return ChunkResponse(np.zeros(0, np.int32), [], [], None, counters, error=portable_error(error))
        arrays: list[Any] = []
        if len(written):
            assert chunk.layout is not None
            # Without a copy: they are sent before the next request is worked on.
            arrays = chunk.layout.arrays(self._memory, chunk.bases, chunk.rows)
        return ChunkResponse(
            written=np.frombuffer(written, np.int32),
            arrays=arrays,
            failures=failures,
            packed=packed,
            counters=counters,
        )

    def _layout_of(self, blob: bytes | None) -> RowLayout | None:
        if blob is None:
            return None
        if self._layout is None or self._layout[0] != blob:
            self._layout = (blob, pickle.loads(blob))
        return self._layout[1]

    def _ready(self, size: int) -> Runner:
        """Return the runner, with memory for `size` bytes at least."""
        if self._runner is None or self._program is None:
            raise WorkerError("this worker was given no program")
        if len(self._memory) < size:
            # Arrays of the last response may still be in flight: they keep the old memory alive.
            self._memory = mmap.mmap(-1, -(-size * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE)
            self._runner = Runner(self._program, self._memory)
        return self._runner
