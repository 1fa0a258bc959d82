"""Executor in threads of this process: no start-up cost, no pickling; for work that releases the GIL."""

from __future__ import annotations

import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from aioloader.abc import Executor
from aioloader.errors import StalledError
from aioloader.executors.runner import Runner, bulk_method
from aioloader.foundation.concurrency import RefCount, deferred, run_each
from aioloader.foundation.stacks import stack_of
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import (
    INDEX,
    LENGTH,
    ROW,
    Chunk,
    ChunkResult,
    Failure,
    StageTimer,
    WorkerState,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioloader.abc import Program, SlabMemory

# Copying this many bytes in the event loop's thread blocks it for less time than another thread's answer would.
_COPIED_HERE = 1 << 19


@dataclass(slots=True, eq=False, kw_only=True)
class _Task(StageTimer):
    """Chunk in a thread, which writes `place`, `place_at`, `stage` and `thread`; the loop reads them."""

    part: Chunk
    thread: threading.Thread | None = None
    stack: str | None = None
    cancelled: bool = False
    place: int = -1
    place_at: float = field(default_factory=time.monotonic)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    timed_out: bool = False

    def enter(self) -> None:
        """Note that the chunk begins, in this thread."""
        self.place_at = time.monotonic()
        self.thread = threading.current_thread()

    def begin(self, place: int) -> bool:
        if not self.cancelled:
            self.stage = "decode"
            self.place_at = time.monotonic()
            self.place = place
        return not self.cancelled


class ThreadExecutor(Executor):
    """Executor that runs chunks in threads.

    Small payloads that are the samples themselves are copied in the event loop's thread: that takes less time than
    waking another one. A thread cannot be ended from outside. One that makes no progress is abandoned: its sample is a
    failure, and its memory is not used again before the thread ends.

    Args:
        workers: number of threads, at least 1.
        timeout: seconds without progress on a sample after which it counts as failed.
    """

    kind = "thread"
    shares_memory = False
    workers = 0

    def __init__(self, workers: int, timeout: float = 120.0) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self.timeout = timeout
        self._threads = Threads(workers, "aioloader-worker")
        self._local = threading.local()
        self._running: set[_Task] = set()

    def open(self, program: Program, memory: SlabMemory) -> None:
        self._program = program
        self._region: Any = memory.memory
        self._copies_only = bulk_method(program) is not None and (program.batchify is None or program.lists)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deferred(self._watch))
            yield
            tasks.cancel_scope.cancel()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(min(0.5, self.timeout / 8))
            now = time.monotonic()
            for task in self._running:
                if task.thread is None or task.timed_out:
                    continue
                place = task.place if task.place >= 0 else None
                if now - task.place_at > task.part.patience_at(place, self.timeout):
                    task.timed_out = True
                    task.stack = _stack(task.thread)
                    task.cancelled = True
                    task.scope.cancel()

    def _work(self, chunk: Chunk, task: _Task) -> ChunkResult:
        task.enter()
        runner: Runner | None = getattr(self._local, "runner", None)
        if runner is None:
            runner = self._local.runner = Runner(self._program, self._region)
        return runner.run(chunk, task)

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        return await run_each(chunks, self._run_chunk)

    async def _run_chunk(self, chunk: Chunk) -> ChunkResult:
        result = ChunkResult()
        part = chunk
        holders = RefCount(chunk.release)
        try:
            while len(part):
                task = _Task(part=part)
                outcome = await self._run_once(part, task, holders)
                if outcome is not None:
                    result.merge(outcome)
                    break
                # The stuck thread may still write to its row, so the batch must not be delivered from that memory.
                result.tainted = True
                if part.custom_collate and task.stage == "collate":
                    raise self._stuck(task)
                # Before the first sample it is not known which one it waits for.
                stuck = np.arange(len(part)) == task.place if task.place >= 0 else np.ones(len(part), bool)
                result.failures += [
                    Failure(row, task.stage, self._stuck(task))
                    for row in part.index_table[ROW, stuck].tolist()
                ]
                if self._program.raises:
                    break
                part = part.part(~stuck)
        finally:
            holders.leave()
        return result

    async def _run_once(self, part: Chunk, task: _Task, holders: RefCount) -> ChunkResult | None:
        """Return the result, or None if the thread is stuck."""
        outcome = None
        self._running.add(task)
        holders.enter()
        stays = False
        try:
            if (
                self._copies_only
                and part.samples is None
                and int(part.index_table[LENGTH].sum()) <= _COPIED_HERE
            ):
                return self._work(part, task)
            with task.scope:
                try:
                    outcome = await self._threads.run_abandonable(
                        self._work, part, task, abandoned=holders.leave
                    )
                except anyio.get_cancelled_exc_class():
                    stays = True
                    raise
        finally:
            task.cancelled = True
            self._running.discard(task)
            if not stays:
                holders.leave()
        return outcome

    def _stuck(self, task: _Task) -> StalledError:
        error = StalledError(
            self.timeout, " in a thread, which cannot be ended; executor='process' can end its workers"
        )
        if task.stack is not None:
            error.add_note(f"the thread was at:\n{task.stack}")
        return error

    @property
    def queued(self) -> int:
        return self._threads.backlog

    def activity(self) -> object:
        return [(id(task), task.place) for task in self._running]

    async def workers_now(self) -> list[WorkerState]:
        now = time.monotonic()
        return [_state(task, now) for task in self._running if task.thread is not None]

    def close(self) -> None:
        for task in list(self._running):
            task.cancelled = True
        self._threads.close()
        self._local = threading.local()
        self._region = None  # nothing runs any more: release the memory


def _stack(thread: threading.Thread | None) -> str | None:
    return None if thread is None or thread.ident is None else stack_of(thread.ident)


def _state(task: _Task, now: float) -> WorkerState:
    place = task.place
    indices = tuple(task.part.index_table[INDEX, max(0, place) :].tolist())
    name = "thread" if task.thread is None else f"thread {task.thread.name}"
    index = indices[0] if place >= 0 else None
    seconds = now - task.place_at
    return WorkerState(
        name=name,
        doing="working",
        batch=task.part.batch,
        index=index,
        outstanding=indices,
        seconds=seconds,
        stack=_stack(task.thread),
    )
