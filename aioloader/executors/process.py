"""Worker processes that are supervised: noticed when they die, replaced, their unfinished samples run again.

Each worker is a fresh interpreter with one private socket pair and the slab region's descriptor; nothing is shared
between workers, so the death of one cannot hang another. What is sent once is sent by value, so the caller's
``__main__`` is never imported.

A strike counts against the sample that was being worked on when a worker died, never against its neighbours: the
sample is run again alone, and gives a failure when its worker has died `_STRIKES` times. Deaths between samples
count against nobody.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from aioloader._signal import Signal
from aioloader._threads import Threads
from aioloader._types import ROW, Chunk, ChunkResult, Failure
from aioloader.errors import WorkerError
from aioloader.executors.process_handle import WorkerHandle, pickled_program
from aioloader.executors.slabs import MAX_WORKERS, SlabMemory, control_array
from aioloader.executors.wire import unpack_value
from aioloader.executors.worker import CALLED_OFF, CURRENT, PLACE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioloader.executors.program import Program

__all__ = ("ProcessExecutor",)

_STRIKES = 3
_OUTSTANDING = 2  # one being worked on, one waiting, so that a worker is never idle between chunks
_DRAIN_S = 0.25
_FAILED_STARTS = 3
_KILLED_STARTS = 50


class _Died:
    """A chunk's worker died; `place` is the sample it was working on, or None."""

    def __init__(self, place: int | None, exit_code: int | None, timed_out: bool) -> None:
        self.place = place
        self.exit_code = exit_code
        self.timed_out = timed_out

    def error(self, timeout: float) -> BaseException:
        if self.timed_out:
            return TimeoutError(
                f"no progress for {timeout:g} s; the worker was ended. Raise timeout= if this is expected"
            )
        code = self.exit_code
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            return WorkerError(f"its worker process died {_STRIKES} times, last of {name}", exit_code=code)
        return WorkerError(
            f"its worker process left {_STRIKES} times, last with status {code}", exit_code=code
        )


class _Pending:
    """A chunk on its way."""

    __slots__ = ("abandoned", "chunk", "event", "lane", "number", "outcome")

    def __init__(self, number: int, chunk: Chunk) -> None:
        self.number = number
        self.chunk = chunk
        self.lane = 0
        self.event = anyio.Event()
        self.outcome: ChunkResult | _Died | BaseException | None = None
        self.abandoned = False


class ProcessExecutor:
    """Runs chunks in worker processes.

    Args:
        workers: number of processes, 1 to 1024.
        timeout: seconds without progress on a sample after which its worker is ended.
    """

    def __init__(self, workers: int, timeout: float = 120.0) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers must be 1 to {MAX_WORKERS}, got {workers}")
        self.workers = workers
        self.timeout = timeout
        self.restarts = 0
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, _Pending]] = []
        self._abandoned: set[_Pending] = set()
        self._drained = Signal()
        self._leader: anyio.Lock | None = None
        self._users = 0
        self._fatal: BaseException | None = None
        self._closed = False
        self._admin = Threads(1, "aioloader-admin")
        self._handles: list[WorkerHandle] = []
        self._program: Program | None = None
        self._program_bytes: bytes | None = None

    def open(self, program: Program, memory: SlabMemory) -> None:
        """See `aioloader.abc.Executor.open`."""
        self._program = program
        self._memory = memory
        self._control = control_array(memory.memory)
        self._handles = [WorkerHandle(slot) for slot in range(self.workers)]

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers that live now."""
        return [h.process.pid for h in self._handles if h.process is not None]

    # -- serving ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`.

        Several epochs may serve at once: one of them leads, the others stand by.
        """
        if self._users == 0:
            self._leader = anyio.Lock()
            self._drained = Signal()
        self._users += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._lead)
                yield
                tasks.cancel_scope.cancel()
        finally:
            # Chunks called off are over within one sample: wait for them a moment, so that their memory is
            # free for the next epoch. Those that take longer are collected when the workers are next served.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    if self._abandoned:
                        tasks.start_soon(self._lead)
                    while self._abandoned:
                        await self._drained.wait()
                    tasks.cancel_scope.cancel()
            self._users -= 1

    async def _lead(self) -> None:
        assert self._leader is not None
        async with self._leader, anyio.create_task_group() as tasks:
            for handle in self._handles:
                tasks.start_soon(self._tend, handle)
            tasks.start_soon(self._watch)

    async def _tend(self, handle: WorkerHandle) -> None:
        """Keep one worker alive and talk to it."""
        while not self._closed and self._fatal is None:
            if handle.state == "none":
                try:
                    await self._admin.run(self._start, handle)
                except Exception as error:
                    self._give_up(error)
                    return
                self._assign()
            if handle.state == "up":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(handle.send_all)
                    async for message in handle.messages():
                        self._heard(handle, message)
                    tasks.cancel_scope.cancel()
                await self._admin.run(handle.reap)
            self._bury(handle)

    def _start(self, handle: WorkerHandle) -> None:
        if self._program_bytes is None:
            self._program_bytes = pickled_program(self._program)
        self._control[handle.slot] = 0
        handle.start(self._program_bytes, self._memory)

    def _heard(self, handle: WorkerHandle, message: Any) -> None:
        kind, *rest = message
        if kind == "ready":
            handle.ready = True
            handle.failed_starts = handle.killed_starts = 0
        elif kind == "failed":
            cause = pickle.loads(rest[0])
            error = WorkerError(
                f"a worker process cannot load the dataset and transforms: {type(cause).__name__}: {cause}; "
                "what it needs must be importable there, or use executor='thread'"
            )
            error.__cause__ = cause
            self._give_up(error)
        else:
            pending = handle.running.pop(rest[0])
            self._resolve(pending, self._result(pending.chunk, *rest[1:]))
        self._assign()

    def _result(
        self,
        chunk: Chunk,
        written: bytes,
        failures: list[tuple[int, str, bytes]],
        packed: tuple[bytes, list[Any], int] | None,
        numbers: tuple[Any, ...],
        error: bytes | None,
    ) -> ChunkResult | BaseException:
        if error is not None:
            cause: BaseException = pickle.loads(error)
            return cause
        result = ChunkResult(written=np.frombuffer(written, dtype=np.int32).tolist())
        try:
            result.failures = [Failure(row, stage, pickle.loads(blob)) for row, stage, blob in failures]
            if packed is not None:
                blob, places, needed = packed
                result.spill_nbytes = -(-needed // len(chunk))
                buffers = [self._buffer(place, chunk.whole, result) for place in places]
                result.values, result.objects, result.batch = unpack_value(blob, buffers)
        except Exception as trouble:
            unreadable = WorkerError(f"a worker's result cannot be read: {type(trouble).__name__}: {trouble}")
            unreadable.__cause__ = trouble
            return unreadable
        (
            result.samples,
            result.decode_s,
            result.transform_s,
            result.collate_s,
            result.transforms,
        ) = numbers
        return result

    def _buffer(self, place: Any, keep: bool, result: ChunkResult) -> Any:
        if isinstance(place, bytes):
            return bytearray(place)
        offset, nbytes = place
        root = self._memory.array(offset, (nbytes,), np.dtype(np.uint8))
        if not keep:
            return bytearray(root.data)
        result.roots.append(root)
        return root

    # -- chunks ----------------------------------------------------------------------------------------------------

    async def run(self, chunk: Chunk) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        result = ChunkResult()
        strikes: dict[int, int] = {}
        parts = [chunk]
        while parts:
            part = parts.pop(0)
            outcome = await self._run_once(part, chunk)
            if isinstance(outcome, ChunkResult):
                result.merge(outcome)
                continue
            if outcome.place is None:
                parts.insert(0, part)
                continue
            place = outcome.place
            row = int(part.numbers[ROW, place])
            strikes[row] = strikes.get(row, 0) + 1
            rest = part.part(np.arange(len(part)) != place)
            if strikes[row] >= _STRIKES or outcome.timed_out:
                result.failures.append(Failure(row, "transform", outcome.error(self.timeout)))
                parts.insert(0, rest)
            elif part.whole:
                parts.insert(0, part)
            else:
                parts[:0] = [rest, part.part([place])]
            parts = [some for some in parts if len(some)]
        chunk.settled()
        return result

    async def _run_once(self, part: Chunk, chunk: Chunk) -> ChunkResult | _Died:
        pending = _Pending(next(self._numbers), part)
        if self._fatal is not None:
            chunk.settled()
            raise self._fatal
        heapq.heappush(self._queue, (part.batch, pending.number, pending))
        self._assign()
        try:
            await pending.event.wait()
        except BaseException:
            part.settled = chunk.settled
            self._call_off(pending)
            raise
        outcome = pending.outcome
        if isinstance(outcome, BaseException):
            chunk.settled()
            raise outcome
        assert outcome is not None
        return outcome

    def _call_off(self, pending: _Pending) -> None:
        pending.abandoned = True
        for handle in self._handles:
            if pending.number in handle.running:
                self._control[handle.slot, CALLED_OFF + pending.lane] = pending.number
                self._abandoned.add(pending)
                return
        pending.chunk.settled()  # still queued, or already answered

    def _resolve(self, pending: _Pending, outcome: ChunkResult | _Died | BaseException) -> None:
        if pending.abandoned:
            self._abandoned.discard(pending)
            pending.chunk.settled()
            self._drained.set()
        else:
            pending.outcome = outcome
            pending.event.set()

    def _assign(self) -> None:
        """Hand queued chunks to the workers that have the least to do."""
        while self._queue:
            if self._queue[0][2].abandoned:
                heapq.heappop(self._queue)
                continue
            free = [
                handle
                for handle in self._handles
                if handle.state == "up" and len(handle.running) < (_OUTSTANDING if handle.ready else 1)
            ]
            if not free:
                return
            handle = min(free, key=lambda each: len(each.running))
            pending = heapq.heappop(self._queue)[2]
            lanes = {other.lane for other in handle.running.values()}
            pending.lane = next(lane for lane in range(_OUTSTANDING) if lane not in lanes)
            self._control[handle.slot, CALLED_OFF + pending.lane] = 0
            handle.give(pending.number, pending)

    # -- death -----------------------------------------------------------------------------------------------------

    def _bury(self, handle: WorkerHandle) -> None:
        """A worker is gone and reaped: see to the chunks it had, and make room for the next."""
        if handle.state != "dead":
            return
        current, place = (int(word) for word in self._control[handle.slot, [CURRENT, PLACE]])
        running, handle.running = handle.running, {}
        for number, pending in running.items():
            at = place if number == current and place >= 0 else None
            self._resolve(pending, _Died(at, handle.exit_code, handle.timed_out))
        code = handle.exit_code
        if not handle.ready:
            if code is not None and code < 0:
                handle.killed_starts += 1
            else:
                handle.failed_starts += 1
            if handle.failed_starts >= _FAILED_STARTS or handle.killed_starts >= _KILLED_STARTS:
                self._give_up(
                    WorkerError(
                        f"worker processes end while they start, last with status {code}; "
                        "their own messages are on standard error. Try executor='thread'",
                        exit_code=code,
                    )
                )
        self.restarts += 1
        handle.clear()

    def _give_up(self, error: BaseException) -> None:
        if self._fatal is None:
            self._fatal = error
        queued, self._queue = self._queue, []
        for _, _, pending in queued:
            if not pending.abandoned:
                self._resolve(pending, self._fatal)
        for handle in self._handles:
            running, handle.running = handle.running, {}
            for pending in running.values():
                self._resolve(pending, self._fatal)

    async def _watch(self) -> None:
        """End workers that make no progress."""
        while True:
            await anyio.sleep(min(1.0, self.timeout / 4))
            now = time.monotonic()
            for handle in self._handles:
                if handle.state != "up":
                    continue
                current, place = (int(word) for word in self._control[handle.slot, [CURRENT, PLACE]])
                busy = current if handle.ready else -1
                if handle.progress != (busy, place) or (handle.ready and current == 0):
                    handle.progress = (busy, place)
                    handle.progress_at = now
                elif now - handle.progress_at > self.timeout:
                    handle.timed_out = True
                    handle.kill()

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
        if self._closed:
            return
        self._closed = True
        for handle in self._handles:
            handle.hang_up()
        deadline = time.monotonic() + 0.4
        for handle in self._handles:
            handle.end(deadline)
        self._admin.close()
