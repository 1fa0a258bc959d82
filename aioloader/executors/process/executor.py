"""Worker processes that are supervised: noticed when they die, replaced, their unfinished samples run again.

Each worker is a fresh interpreter with one private socket pair and the slab region's descriptor; nothing is shared
between workers, so the death of one cannot hang another. What is sent once is sent by value, so the caller's
``__main__`` is never imported.

Which samples run again after a death is decided in `aioloader.executors.retry`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from aioloader.errors import LoaderClosedError, WorkerError
from aioloader.executors.pool_base import PoolExecutor
from aioloader.executors.process.handle import WorkerHandle, end_all, pickled_program
from aioloader.executors.process.states import ask_stacks, progress_token, states_of
from aioloader.executors.process.wire import pack_value, unpack_value, unsendable
from aioloader.executors.process.worker import CALLED_OFF, CURRENT, PLACE, read_error
from aioloader.executors.retry import Died, Unreadable
from aioloader.executors.shared_memory import MAX_WORKERS, SlabMemory, control_array
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import ChunkResult, Failure

if TYPE_CHECKING:
    from aioloader.abc import Program
    from aioloader.executors.retry import Attempt
    from aioloader.foundation.types import Chunk, WorkerState

__all__ = ("ProcessExecutor",)

_OUTSTANDING = 2  # one being worked on, one waiting, so that a worker is never idle between chunks
_LEAVE_S = 0.4
_START_S = 60.0  # a worker that is still importing is not stuck
_FAILED_STARTS = 3
_KILLED_STARTS = 50


class ProcessExecutor(PoolExecutor):
    """Runs chunks in worker processes.

    Args:
        workers: number of processes, 1 to 1024.
        timeout: seconds without progress on a sample after which its worker is ended.

    Attributes:
        kind: "process".
        maps_files: workers inherit descriptors, so that a program's `maps` work there.

    Raises:
        ValueError: `workers` is out of its range.
    """

    kind = "process"
    maps_files = True

    def __init__(self, workers: int, timeout: float = 120.0) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers must be 1 to {MAX_WORKERS}, got {workers}")
        super().__init__(timeout)
        self.workers = workers
        self.restarts = 0
        self._abandoned: set[Attempt] = set()
        self._closed = False
        self._starting = threading.RLock()
        self._admin = Threads(1, "aioloader-admin")
        self._handles: list[WorkerHandle] = []
        self._program: Program | None = None
        self._program_bytes: bytes | None = None
        self._resized = Notification()

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

    @property
    def _draining(self) -> bool:
        return bool(self._abandoned)

    def resize(self, workers: int) -> None:
        """Have another number of workers: more are started, and those that are too many leave when they have no chunk.

        In the loop's thread.
        """
        self.workers = workers
        self._handles += [WorkerHandle(slot) for slot in range(len(self._handles), workers)]
        for handle in self._handles[workers:]:
            if not handle.running:
                handle.dismiss()
        self._resized.set()

    @property
    def failure(self) -> BaseException | None:
        """Why no worker can be had, or None."""
        return self._fatal

    @property
    def ready(self) -> int:
        """Workers that have loaded their program."""
        return sum(handle.state == "up" and handle.ready for handle in self._handles[: self.workers])

    async def _lead(self) -> None:
        async with anyio.create_task_group() as tasks:
            tended: set[int] = set()

            async def tend(handle: WorkerHandle) -> None:
                await self._supervise(handle)
                tended.discard(handle.slot)

            tasks.start_soon(deferred(self._watch))
            while True:
                for handle in self._handles[: self.workers]:
                    if handle.slot not in tended:
                        tended.add(handle.slot)
                        tasks.start_soon(deferred(tend), handle)
                await self._resized.wait()

    async def _supervise(self, handle: WorkerHandle) -> None:
        """Keep one worker alive and talk to it, as long as there is to be one."""
        while not self._closed and self._fatal is None and (handle.slot < self.workers or handle.running):
            if handle.state == "none":
                try:
                    await self._admin.run(self._start, handle)
                except Exception as error:
                    self._give_up(error)
                    return
                self._assign()
            if handle.state == "up":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(deferred(handle.send_all))
                    tasks.start_soon(deferred(handle.notice_end))
                    async for message in handle.messages():
                        self._heard(handle, message)
                    tasks.cancel_scope.cancel()
                await self._admin.run(handle.reap)
            self._bury(handle)

    def _start(self, handle: WorkerHandle) -> None:
        if self._program_bytes is None:
            self._program_bytes = pickled_program(self._program)
        with self._starting:
            if self._closed:
                raise LoaderClosedError("the loader was closed while its workers were being started")
            self._control[handle.slot] = 0
            maps = None if self._program is None else self._program.maps
            handle.start(self._program_bytes, self._memory, () if maps is None else maps.fds)
            if self._closed:  # by the garbage collector, in this thread
                handle.reap()

    def _heard(self, handle: WorkerHandle, message: Any) -> None:
        kind, *rest = message
        if kind == "ready":
            handle.ready = True
            handle.failed_starts = handle.killed_starts = 0
        elif kind == "failed":
            cause = read_error(rest[0])
            error = WorkerError(
                f"a worker process cannot load the dataset and transforms: {type(cause).__name__}: {cause}; "
                "what it needs must be importable there, or use executor='thread'"
            )
            error.__cause__ = cause
            self._give_up(error)
        else:
            attempt = handle.running.pop(rest[0])
            self._resolve(attempt, self._result(attempt.part, *rest[1:]))
            if handle.slot >= self.workers and not handle.running:
                handle.dismiss()
        self._assign()

    def _result(
        self,
        chunk: Chunk,
        written: bytes,
        failures: list[tuple[int, str, bytes]],
        packed: tuple[bytes, list[Any], int] | None,
        counters: tuple[Any, ...],
        error: bytes | None,
    ) -> ChunkResult | Unreadable | BaseException:
        if error is not None:
            return read_error(error)
        result = ChunkResult(written=np.frombuffer(written, dtype=np.int32).tolist())
        result.failures = [Failure(row, stage, read_error(blob)) for row, stage, blob in failures]
        try:
            if packed is not None:
                blob, places, needed = packed
                result.spill_nbytes = -(-needed // len(chunk))
                buffers = [self._buffer(place, chunk.custom_collate, result) for place in places]
                result.values, result.objects, result.batch = unpack_value(blob, buffers)
        except Exception as trouble:
            return Unreadable(trouble)
        result.counters = counters
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

    def _call_off(self, attempt: Attempt) -> None:
        for handle in self._handles:
            if attempt.number in handle.running:
                self._control[handle.slot, CALLED_OFF + attempt.lane] = attempt.number
                self._abandoned.add(attempt)
                return
        attempt.end(ChunkResult())  # still queued: no worker has seen it

    def _resolve(self, attempt: Attempt, outcome: ChunkResult | Died | Unreadable | BaseException) -> None:
        attempt.end(outcome)
        if attempt in self._abandoned:
            self._abandoned.discard(attempt)
            self._drained.set()

    def _assign(self) -> None:
        """Hand queued chunks to the workers that have the least to do."""
        while self._any_queued():
            free = [
                handle
                for handle in self._handles[: self.workers]
                if handle.state == "up"
                and not handle.dismissed
                and len(handle.running) < (_OUTSTANDING if handle.ready else 1)
            ]
            if not free:
                return
            handle = min(free, key=lambda each: len(each.running))
            attempt = self._next_queued()
            packed = None
            if attempt.part.samples is not None:
                # Packed at each attempt: what is in the spill may be overwritten by a worker that dies then.
                try:
                    packed = pack_value(attempt.part.samples, self._memory.memory, attempt.part.spill)[:2]
                except Exception as error:
                    errors = unsendable(attempt.part.samples)
                    if errors:
                        attempt.exclude(errors)
                    else:
                        self._resolve(attempt, error)
                    continue
            lanes = {other.lane for other in handle.running.values()}
            attempt.lane = next(lane for lane in range(_OUTSTANDING) if lane not in lanes)
            self._control[handle.slot, CALLED_OFF + attempt.lane] = 0
            handle.give(attempt, packed)

    # -- death -----------------------------------------------------------------------------------------------------

    def _bury(self, handle: WorkerHandle) -> None:
        """A worker is gone and reaped: see to the chunks it had, and make room for the next."""
        if handle.state != "dead":
            return
        current, place = (int(word) for word in self._control[handle.slot, [CURRENT, PLACE]])
        running, handle.running = handle.running, {}
        oldest = next(iter(running), None)
        for number, attempt in running.items():
            at = place if number == current and place >= 0 else None
            between = handle.ready and number == oldest and not current
            death = Died(at, handle.exit_code, handle.timed_out, handle.stack, between=between)
            self._resolve(attempt, death)
        code = handle.exit_code
        if not handle.ready and not handle.dismissed:
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
        if not handle.dismissed:
            self.restarts += 1
        handle.clear()

    def _give_up(self, error: BaseException) -> None:
        fatal = self._fail_queued(error)
        for handle in self._handles:
            running, handle.running = handle.running, {}
            for attempt in running.values():
                self._resolve(attempt, fatal)

    async def _watch(self) -> None:
        """End workers that make no progress."""
        while True:
            await anyio.sleep(min(1.0, self.timeout / 4))
            now = time.monotonic()
            for handle in self._handles:
                if handle.state != "up":
                    continue
                now_at = progress_token(handle, self._control)
                if handle.progress != now_at or now_at[0] == 0:
                    handle.progress = now_at
                    handle.progress_at = now
                elif now - handle.progress_at > (
                    self.timeout if handle.ready else max(self.timeout, _START_S)
                ):
                    await self._end_stuck(handle)

    async def _end_stuck(self, handle: WorkerHandle) -> None:
        """End a worker that makes no progress, once it was asked where it stands."""
        process = handle.process
        (stack,) = await ask_stacks([handle])
        if (
            handle.process is process
            and handle.state == "up"
            and progress_token(handle, self._control) == handle.progress
        ):
            handle.stack = stack
            handle.timed_out = True
            handle.kill()

    # -- for reports of a stall --------------------------------------------------------------------------------------

    def activity(self) -> object:
        """Something that is another whenever a sample was begun, or a worker came or went."""
        words = self._control[: len(self._handles), [CURRENT, PLACE]].tobytes()
        return words, self.restarts, [handle.ready for handle in self._handles]

    async def workers_now(self) -> list[WorkerState]:
        """What every worker does, with the stacks of those that have work or are still starting."""
        return await states_of(self._handles, self._control)

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
        with self._starting:  # what is being started is there afterwards, and ended like the others
            if self._closed:
                return
            self._closed = True
        end_all(self._handles, _LEAVE_S)
        self._admin.close()
        if self._handles:
            self._control = self._control.copy()  # lets go of the memory
