"""Worker pool with retries and supervision, the base of the process and the Ray executor.

Chunks wait in one queue, those of the earliest batch first, and go to the workers that have the fewest. Several epochs
may share the workers: one epoch at a time supervises them, the others wait for their turn. A chunk whose first attempt
succeeds is handled here alone; `aioloader.executors.retry` decides what happens to any other.
"""

from __future__ import annotations

import heapq
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import anyio

from aioloader.executors.retry import ChunkRetry, Outcome, WorkerDeath
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.foundation.types import Chunk, ChunkResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

# Chunks that a worker has at most: one being worked on and one waiting, so that it is never idle between chunks.
OUTSTANDING = 2
# Time that workers have to leave when the executor is closed.
CLOSE_S = 0.4
_DRAIN_S = 0.25


@dataclass(slots=True, eq=False)
class BatchRun:
    """Chunks of one batch that are in flight.

    Attributes:
        result: merged result of the chunks that are done.
        error: of the first chunk that was given up, or None.
        attempts: the current attempt of each chunk that is not done.
        done: event, set when no chunk is left.
        abandoned: the batch was cancelled, so that no task waits for it.
    """

    result: ChunkResult = field(default_factory=ChunkResult)
    error: BaseException | None = None
    attempts: set[Attempt] = field(default_factory=set)
    done: anyio.Event = field(default_factory=anyio.Event)
    abandoned: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """A chunk, or the rest of it, sent to a worker once.

    Attributes:
        batch: the batch of the chunk.
        chunk: the whole chunk.
        part: the samples of this attempt.
        retry: retry state of the chunk; None at its first attempt.
        number: identifies the attempt; in the order of submission.
        lane: which of a worker's outstanding chunks it is.
        ended: its outcome is known, and no worker touches its memory any more.
    """

    batch: BatchRun
    chunk: Chunk
    part: Chunk
    retry: ChunkRetry | None = None
    number: int = 0
    lane: int = 0
    ended: bool = False


class WorkerHandle:
    """One place in the pool; the worker in it may change.

    Attributes:
        state: "none" (to be started), "up", or "dead" (its chunks are not retried yet).
        ready: the worker has loaded the program.
        dismissed: it was asked to leave.
        timed_out: it was ended because it made no progress.
        running: chunks sent and not answered, by number, oldest first.
        active_at: time at which it last made progress, or was given work while it had none (monotonic seconds).
        place: its number in the pool.
        failed_starts: workers in this place that ended one after the other before they were ready.
    """

    def __init__(self) -> None:
        self.place = 0
        self.failed_starts = 0
        self.clear()

    def clear(self) -> None:
        """Make room for a new worker."""
        self.state: Literal["none", "up", "dead"] = "none"
        self.ready = False
        self.dismissed = False
        self.timed_out = False
        self.running: dict[int, Attempt] = {}
        self.active_at = time.monotonic()

    @property
    def capacity(self) -> int:
        """Return the most chunks that the worker may have now."""
        return OUTSTANDING if self.ready and self.state == "up" else 0


H = TypeVar("H", bound=WorkerHandle)


class PoolExecutor(Generic[H]):
    """Base of executors that supervise workers. A subclass starts a worker, sends chunks to it, and ends it.

    Args:
        timeout: seconds without progress after which a worker is ended.

    Attributes:
        restarts: workers that were replaced.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.restarts = 0
        # See `Program`; set by `open` where the sample is known at which a worker hangs.
        self._raises = False
        self._handles: list[H] = []
        self._closed = False
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Attempt]] = []
        # For each number of chunks that a worker may have already, the workers that can take another one: a bit for
        # each place, so that finding the first costs the same for any number of workers. None: to be made.
        self._vacant: list[int] | None = None
        self._any_ready = False
        self._ending: dict[int, Attempt] = {}
        self._fatal: BaseException | None = None
        self._drained = Notification()
        self._changed = Notification()
        self._leader: anyio.Lock | None = None
        self._users = 0

    # -- what a subclass defines -----------------------------------------------------------------------------------

    @property
    def workers(self) -> int:
        """Return the number of workers."""
        raise NotImplementedError

    async def _supervise(self) -> None:
        """Start workers, take their answers, and replace those that die, until cancelled."""
        raise NotImplementedError

    def _send(self, handle: H, attempt: Attempt) -> None:
        """Send a chunk to a worker and enter it in `handle.running`; or end the attempt if it cannot be sent."""
        raise NotImplementedError

    def _cancel(self, handle: H, attempt: Attempt) -> None:
        """Make a worker give up a chunk; its attempt is resolved when the worker no longer touches its memory."""
        raise NotImplementedError

    def _describe_death(self, handle: H, attempt: Attempt, oldest: bool) -> WorkerDeath:
        """Return what a dead worker's end means for one of its chunks; `oldest`: the one that it was sent first."""
        raise NotImplementedError

    def _count_failed_start(self, handle: H) -> Exception | None:
        """Count a worker that ended before it was ready; return the error if no more are to be started."""
        raise NotImplementedError

    def _fail_running(self, handle: H, error: BaseException) -> None:
        """Fail the chunks of a worker, because no worker can be started any more."""
        raise NotImplementedError

    async def _end_if_stuck(self, handle: H, now: float) -> None:
        """End a worker that has made no progress for too long."""
        raise NotImplementedError

    # -- serving -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        if self._users == 0:
            # The first epoch begins, possibly in another event loop than the last one.
            self._leader = anyio.Lock()
            self._drained = Notification()
            self._changed = Notification()
        self._users += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(deferred(self._lead))
                yield
                tasks.cancel_scope.cancel()
        finally:
            # Cancelled chunks end within one sample: wait for them a moment, so that their memory is free for the
            # next epoch. Those that take longer are collected when the workers are next served.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    if self._ending:
                        tasks.start_soon(deferred(self._lead))
                    while self._ending:
                        await self._drained.wait()
                    tasks.cancel_scope.cancel()
            self._users -= 1

    async def _lead(self) -> None:
        """Supervise the workers, once no other epoch does."""
        assert self._leader is not None
        async with self._leader, anyio.create_task_group() as tasks:
            tasks.start_soon(deferred(self._watch))
            await self._supervise()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(min(0.5, self.timeout / 8))
            now = time.monotonic()
            for handle in self._handles:
                if handle.state == "up":
                    await self._end_if_stuck(handle, now)

    # -- chunks ------------------------------------------------------------------------------------------------------

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        batch = BatchRun()
        attempts = [Attempt(batch, chunk, chunk) for chunk in chunks]
        batch.attempts.update(attempts)
        for attempt in attempts:
            self._submit(attempt)
        try:
            await batch.done.wait()
        except BaseException:
            batch.abandoned = True
            for attempt in list(batch.attempts):
                self._abandon(attempt)
            raise
        if batch.error is not None:
            try:
                raise batch.error
            finally:
                batch.error = None  # breaks the cycle error -> traceback -> frame -> batch -> error
        return batch.result

    def _submit(self, attempt: Attempt) -> None:
        attempt.number = next(self._numbers)
        if self._fatal is not None:
            self._finish(attempt, self._fatal)
        else:
            heapq.heappush(self._queue, (attempt.part.batch, attempt.number, attempt))
            self._send_queued()

    def _assign(self) -> None:
        """Send queued chunks after the capacity of any workers has changed."""
        self._vacant = None
        self._send_queued()

    def _send_queued(self) -> None:
        """Send queued chunks to the workers that have the fewest, as long as one may take more."""
        while self._any_queued():
            handle = self._least_busy()
            if handle is None:
                return
            self._send(handle, heapq.heappop(self._queue)[2])
            self._note(handle)

    def _least_busy(self) -> H | None:
        """Return the first of the workers that have the fewest chunks; None if none may take another one."""
        if self._vacant is None:
            self._vacant = [0] * OUTSTANDING
            self._any_ready = any(handle.ready and handle.state == "up" for handle in self._handles)
            for place, handle in enumerate(self._handles):
                handle.place = place
                self._note(handle)
        for outstanding, places in enumerate(self._vacant):
            while places:
                first = places & -places
                handle = self._handles[first.bit_length() - 1]
                if len(handle.running) == outstanding < self._capacity(handle):
                    return handle
                places ^= first  # a worker that is gone or was dismissed
        return None

    def _note(self, handle: H) -> None:
        """Note whether a worker may take another chunk, after one was sent to it or answered by it."""
        if self._vacant is None:
            return
        bit, running = 1 << handle.place, len(handle.running)
        capacity = self._capacity(handle)
        for outstanding in range(OUTSTANDING):
            if outstanding == running < capacity:
                self._vacant[outstanding] |= bit
            else:
                self._vacant[outstanding] &= ~bit

    def _capacity(self, handle: H) -> int:
        """Return how many chunks a worker may have."""
        if handle.place >= self.workers:  # it leaves when it has no chunk
            return 0
        # A chunk would wait until the worker has started, and the batches behind it too.
        return handle.capacity if handle.ready or not self._any_ready else 0

    def _any_queued(self) -> bool:
        """Drop abandoned chunks from the head of the queue; return whether a chunk is left."""
        while self._queue and self._queue[0][2].batch.abandoned:
            heapq.heappop(self._queue)
        return bool(self._queue)

    def _abandon(self, attempt: Attempt) -> None:
        """End an attempt whose batch was cancelled."""
        for handle in self._handles:
            if attempt.number in handle.running:
                self._ending[attempt.number] = attempt
                self._cancel(handle, attempt)
                return
        self._resolve(attempt, ChunkResult())  # still queued: no worker has seen it

    def _handle_answer(self, handle: H, number: int, outcome: Outcome) -> None:
        """Take a worker's answer to a chunk."""
        attempt = handle.running.pop(number, None)
        self._note(handle)
        if attempt is not None and not attempt.ended:
            self._resolve(attempt, outcome)
        self._send_queued()

    def _resolve(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take the outcome of an attempt, whose worker does not touch the chunk's memory any more."""
        attempt.ended = True
        if self._ending.pop(attempt.number, None) is not None:
            self._drained.set()
        batch, retry, error, rest = attempt.batch, attempt.retry, None, None
        if retry is None and isinstance(outcome, ChunkResult):
            batch.result.merge(outcome)
        elif not batch.abandoned:
            retry = retry or ChunkRetry(attempt.chunk, self.timeout, raises=self._raises)
            error = retry.handle_outcome(attempt.part, outcome, batch.result)
            rest = None if error is not None else retry.next_part()
        if rest is None:
            self._finish(attempt, error)
        else:
            following = Attempt(batch, attempt.chunk, rest, retry)
            batch.attempts.remove(attempt)
            batch.attempts.add(following)
            self._submit(following)

    def _finish(self, attempt: Attempt, error: BaseException | None) -> None:
        """Release the memory of a chunk that is done; keep its error for the batch if it failed."""
        batch = attempt.batch
        attempt.chunk.release()
        batch.error = batch.error or error
        batch.attempts.remove(attempt)
        if not batch.attempts:
            batch.done.set()

    @property
    def queued(self) -> int:
        """Return the number of chunks that wait for a worker."""
        return len(self._queue)

    # -- death -------------------------------------------------------------------------------------------------------

    def _handle_death(self, handle: H) -> None:
        """Retry the chunks of a worker that is gone, and make room for the next worker."""
        handle.state = "dead"
        self._vacant = None
        running, handle.running = handle.running, {}
        for number, attempt in enumerate(running.values()):
            if not attempt.ended:
                self._resolve(attempt, self._describe_death(handle, attempt, oldest=not number))
        if not handle.dismissed:
            self.restarts += 1
            error = None if handle.ready else self._count_failed_start(handle)
            if error is not None:
                self._give_up(error)
        handle.clear()

    def _give_up(self, error: BaseException) -> None:
        """Fail all chunks, now and later: no worker can be started."""
        self._fatal = self._fatal or error
        queued, self._queue = self._queue, []
        for _, _, attempt in queued:
            if not attempt.batch.abandoned:
                self._resolve(attempt, self._fatal)
        for handle in self._handles:
            self._fail_running(handle, self._fatal)
