"""The actor that makes samples on a node of a Ray cluster. It needs nothing of Ray itself."""

from __future__ import annotations

import mmap
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import WorkerError
from aioloader.executors.process.worker import answer_of, portable_error
from aioloader.executors.ray.messages import ChunkRequest, ChunkResponse, pack_buffers, unpack_parcel
from aioloader.executors.runner import Runner
from aioloader.foundation.types import ChunkResult

if TYPE_CHECKING:
    from aioloader.abc import Program
    from aioloader.foundation.types import Chunk, RowLayout

__all__ = ("RayWorker",)


class RayWorker:
    """Runs parcels, one after the other, in a memory of its own."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._runner: Runner | None = None
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._layout: tuple[bytes, RowLayout] | None = None

    def load(self, program: bytes) -> bytes | None:
        """Take the loader's program; gives the pickled exception if that cannot be done."""
        try:
            self._program = pickle.loads(program)
            self._runner = Runner(self._program, self._memory)
        except BaseException as error:
            return portable_error(error)
        return None

    def run(self, *fields: Any) -> ChunkResponse:
        """Make the samples of a parcel.

        Args:
            fields: those of a `ChunkRequest`.
        """
        parcel = ChunkRequest(*fields)
        empty = np.zeros(0, np.int32)
        try:
            chunk, size = unpack_parcel(parcel, self._layout_of(parcel.layout))
            runner = self._ready(size)
            np.frombuffer(self._memory, np.uint8)[: parcel.payload.nbytes] = parcel.payload
            result = runner.run(chunk)
            written, failures, packed, counters = answer_of(result, pack_buffers)
        except BaseException as error:
            return ChunkResponse(empty, [], [], None, ChunkResult().counters, portable_error(error))
        arrays = self._rows(chunk) if len(written) else []
        return ChunkResponse(np.frombuffer(written, np.int32), arrays, failures, packed, counters, None)

    def _layout_of(self, blob: bytes | None) -> RowLayout | None:
        if blob is None:
            return None
        if self._layout is None or self._layout[0] != blob:
            self._layout = (blob, pickle.loads(blob))
        return self._layout[1]

    def _ready(self, size: int) -> Runner:
        """The runner, with memory for `size` bytes at least."""
        if self._runner is None or self._program is None:
            raise WorkerError("this worker was given no program")
        if len(self._memory) < size:
            # Arrays of the last answer may still be on their way: the old memory stays as long as they live.
            self._memory = mmap.mmap(-1, -(-size * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE)
            self._runner = Runner(self._program, self._memory)
        return self._runner

    def _rows(self, chunk: Chunk) -> list[Any]:
        """The rows of every leaf. They are sent before the next parcel is worked on, so no copy is needed."""
        assert chunk.layout is not None
        return [
            None
            if leaf is None
            else np.ndarray(
                (chunk.rows, *[extent or 0 for extent in leaf.shape]), leaf.dtype, self._memory, base
            )
            for leaf, base in zip(chunk.layout.leaves, chunk.bases, strict=True)
        ]
