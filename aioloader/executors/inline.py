"""Runs chunks where they are asked for: in the caller's thread, sample by sample."""

from __future__ import annotations

import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio.lowlevel

from aioloader.executors.runner import Runner
from aioloader.foundation.types import ChunkResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from aioloader.abc import Program, SlabMemory
    from aioloader.foundation.types import Chunk

__all__ = ("YIELD_S", "InlineExecutor")

# A pass that never suspends still lets the loop run this often.
YIELD_S = 0.002


class InlineExecutor:
    """Runs chunks in the caller's thread. The loop is blocked for the time of one sample at most."""

    kind = "inline"
    workers = 1

    def open(self, program: Program, memory: SlabMemory) -> None:
        """See `aioloader.abc.Executor.open`."""
        self._runner = Runner(program, memory.memory, interruptible=True)
        self._yielded_at = time.monotonic()
        self._lock = threading.Lock()
        self._thread = 0
        self._depth = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`."""
        yield

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        result = ChunkResult()
        shared = False
        with _settling(chunks):
            self._enter()
            try:
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
            finally:
                self._depth -= 1
        if shared:
            # Other tasks of this thread had their turns: what they took is not the samples'.
            result.work_s = 0.0
            result.cpu_s = min(result.cpu_s, result.decode_s + result.transform_s + result.collate_s)
        return result

    def run_blocking(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """The same without an event loop."""
        result = ChunkResult()
        with _settling(chunks):
            self._enter()
            try:
                for chunk in chunks:
                    result.merge(self._runner.run(chunk))
            finally:
                self._depth -= 1
        return result

    def _enter(self) -> None:
        """Passes may take turns in one thread; in two they would draw from one another's random numbers."""
        with self._lock:
            thread = threading.get_ident()
            if self._depth and self._thread != thread:
                raise RuntimeError(
                    "this loader is being used by another thread at this moment; without workers each thread needs a "
                    "loader of its own"
                )
            self._thread = thread
            self._depth += 1

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
        self.__dict__.pop("_runner", None)  # it holds the memory


@contextmanager
def _settling(chunks: Sequence[Chunk]) -> Iterator[None]:
    try:
        yield
    finally:
        for chunk in chunks:
            chunk.release()
