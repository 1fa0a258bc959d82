"""Runs chunks where they are asked for: in the caller's thread, sample by sample."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio.lowlevel

from aioloader.executors.program import Program, Runner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioloader._types import Chunk, ChunkResult
    from aioloader.executors.slabs import SlabMemory

__all__ = ("YIELD_S", "InlineExecutor")

# A pass that never suspends still lets the loop run this often.
YIELD_S = 0.002


class InlineExecutor:
    """Runs chunks in the caller's thread. The loop is blocked for the time of one sample at most."""

    workers = 1

    def open(self, program: Program, memory: SlabMemory) -> None:
        """See `aioloader.abc.Executor.open`."""
        self._runner = Runner(program, memory.memory)
        self._yielded_at = time.monotonic()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`."""
        yield

    async def run(self, chunk: Chunk) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        steps = self._runner.steps(chunk)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    result: ChunkResult = stop.value
                    return result
                if time.monotonic() - self._yielded_at > YIELD_S:
                    await anyio.lowlevel.checkpoint()
                    self._yielded_at = time.monotonic()
        finally:
            chunk.settled()

    def run_blocking(self, chunk: Chunk) -> ChunkResult:
        """The same without an event loop."""
        try:
            return self._runner.run(chunk)
        finally:
            chunk.settled()

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
