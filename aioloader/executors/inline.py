"""Executor that runs chunks in the caller's thread, sample by sample."""

from __future__ import annotations

import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio.lowlevel

from aioloader.abc import Executor
from aioloader.executors.runner import Runner
from aioloader.foundation.types import Chunk, ChunkResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from aioloader.abc import Program, SlabMemory

# An epoch that never suspends still lets the loop run this often.
YIELD_S = 0.002


class InlineExecutor(Executor):
    """Executor that runs chunks in the caller's thread. It blocks the loop for the time of one sample at most."""

    kind = "inline"
    shares_memory = False
    workers = 1

    def open(self, program: Program, memory: SlabMemory) -> None:
        self._runner = Runner(program, memory.memory, interruptible=True)
        self._yielded_at = time.monotonic()
        self._lock = threading.Lock()
        self._thread = 0
        self._depth = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        result = ChunkResult()
        shared = False
        with self._entered(chunks):
            for chunk in chunks:
                steps = self._runner.steps(chunk)
                while True:
                    try:
                        next(steps)
                    except StopIteration as stop:
                        result.merge(stop.value)
                        break
                    if time.monotonic() - self._yielded_at > YIELD_S:
                        shared = True
                        await anyio.lowlevel.checkpoint()
                        self._yielded_at = time.monotonic()
        if shared:
            # Other tasks of this thread have run: their time is not that of the samples.
            result.work_s = 0.0
            result.cpu_s = min(result.cpu_s, result.decode_s + result.transform_s + result.collate_s)
        return result

    def run_blocking(self, chunks: Sequence[Chunk]) -> ChunkResult:
        result = ChunkResult()
        with self._entered(chunks):
            for chunk in chunks:
                result.merge(self._runner.run(chunk))
        return result

    @contextmanager
    def _entered(self, chunks: Sequence[Chunk]) -> Iterator[None]:
        """Release the chunks at the end, and refuse a second thread.

        Epochs may take turns in one thread, but in two they would mix up their random numbers.
        """
        try:
            with self._lock:
                thread = threading.get_ident()
                if self._depth and self._thread != thread:
                    raise RuntimeError(
                        "another thread is using this loader now; without workers each thread needs its own loader"
                    )
                self._thread = thread
                self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
        finally:
            for chunk in chunks:
                chunk.release()

    def close(self) -> None:
        self.__dict__.pop("_runner", None)  # it holds the memory
