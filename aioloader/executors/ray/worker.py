"""Actor that makes samples on a node of a Ray cluster. It does not import Ray."""

from __future__ import annotations

import mmap
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import WorkerError
from aioloader.executors.process.worker import pack_result, portable_error
from aioloader.executors.ray.messages import ChunkRequest, ChunkResponse, pack_buffers, unpack_request
from aioloader.executors.runner import Runner
from aioloader.foundation.types import ChunkResult, RowLayout

if TYPE_CHECKING:
    from aioloader.abc import Program


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
