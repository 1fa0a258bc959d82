"""Table of an executor's workers: which worker has which chunks, what waits, and what runs again after a death.

The process and the Ray executor use it, each with a kind of workers. Chunks wait in one queue, those of the
earliest batch first, and go to the workers that have the fewest. Several epochs may share the workers: one epoch at a
time supervises them, the others wait for their turn. A chunk whose first attempt succeeds is handled here alone;
`aioloader.executors.retry` decides what happens to any other.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio

from aioloader.abc import Executor
from aioloader.executors.retry import ChunkRetry, Outcome, WorkerDeath
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.foundation.types import Chunk, ChunkResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

# Chunks that a worker has at most: one being worked on and one waiting, so that it is never idle between chunks.
OUTSTANDING = 2
# Time that workers have to leave when the executor is closed.
CLOSE_S = 0.4
_DRAIN_S = 0.25


@dataclass(slots=True, eq=False)
class BatchRun:
    """Chunks of one batch that are in flight.

    Attributes:
        result: merged result of the chunks that are done; None if none is.
        error: of the first chunk that was given up, or None.
        attempts: the current attempt of each chunk that is not done.
        done: called with the result, or the error, when no chunk is left.
        abandoned: the batch was cancelled, so that `done` is not called.
    """

    done: Callable[[ChunkResult | BaseException], object]
    result: ChunkResult | None = None
    error: BaseException | None = None
    attempts: list[Attempt] = field(default_factory=list)
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
    """Place of one worker in the table; the worker in it may change. A subclass reaches a worker of its kind.

    Attributes:
        slot: the number of the place.
        state: "none" (to be started), "up", or "dead" (its chunks are not retried yet).
        ready: the worker has loaded the program.
        dismissed: it was asked to leave.
        timed_out: it was ended because it made no progress.
        running: chunks sent and not answered, by number, oldest first.
        room: the most chunks that it may have now.
        active_at: time at which it last made progress, or was given work while it had none (monotonic seconds).
        failed_starts: workers in this place that ended one after the other before they were ready.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.failed_starts = 0
        self.clear()

    def clear(self) -> None:
        """Make room for a new worker."""
        self.state: Literal["none", "up", "dead"] = "none"
        self.ready = False
        self.dismissed = False
        self.timed_out = False
        self.running: dict[int, Attempt] = {}
        self.room = 0
        self.active_at = time.monotonic()

    @property
    def capacity(self) -> int:
        """Return the most chunks that the worker can take, regardless of the others."""
        return OUTSTANDING if self.ready and self.state == "up" else 0

    def send(self, attempt: Attempt) -> None:
        """Send a chunk to the worker and enter it in `running`; or resolve the attempt if it cannot be sent."""
        raise NotImplementedError

    def cancel(self, attempt: Attempt) -> None:
        """Make the worker give up a chunk; its attempt is resolved when the worker no longer touches its memory."""
        raise NotImplementedError

    async def end_if_stuck(self, now: float) -> None:
        """End the worker if it has made no progress for too long."""
        raise NotImplementedError


H = TypeVar("H", bound=WorkerHandle)


class WorkerTable(Generic[H]):
    """Workers of one executor, and the chunks that they have or that wait for them.

    The executor keeps the workers alive (see `serving`) and reports what they do: `answer`, `lost` and `give_up`.

    Args:
        timeout: seconds without progress after which a worker is ended.

    Attributes:
        handles: the places, by number.
        count: how many of them are used; the worker of any other leaves when it has no chunk.
        raises: the first failed sample ends the batch; see `aioloader.abc.Program`.
        restarts: workers that were replaced.
        failure: reason why no worker can be started, or None.
        closed: the executor was closed.
        ending: chunks that were cancelled and are not resolved, by number.
        changed: set when the supervisor has something to do.
        users: epochs that are served.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.handles: list[H] = []
        self.count = 0
        self.raises = False
        self.restarts = 0
        self.failure: BaseException | None = None
        self.closed = False
        self.ending: dict[int, Attempt] = {}
        self.changed = Notification()
        self.users = 0
        self._drained = Notification()
        self._leader: anyio.Lock | None = None
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Attempt]] = []
        # For each number of chunks that a worker may have already, the workers that can take another one: a bit for
        # each place, so that finding the first costs the same for any number of workers.
        self._vacant = [0] * OUTSTANDING

    @property
    def queued(self) -> int:
        """Return the number of chunks that wait for a worker."""
        return len(self._queue)

    @property
    def ready(self) -> int:
        """Return the number of workers that can take chunks."""
        return sum(handle.state == "up" and handle.ready for handle in self.handles[: self.count])

    # -- serving -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, supervise: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Return a context in which chunks run.

        Args:
            supervise: starts workers, takes their answers, and replaces those that die, until cancelled.
        """
        if self.users == 0:
            # The first epoch begins, possibly in another event loop than the last one.
            self._leader = anyio.Lock()
            self._drained = Notification()
            self.changed = Notification()
        self.users += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(deferred(self._lead), supervise)
                yield
                tasks.cancel_scope.cancel()
        finally:
            # Cancelled chunks end within one sample: wait for them a moment, so that their memory is free for the
            # next epoch. Those that take longer are collected when the workers are next served.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    if self.ending:
                        tasks.start_soon(deferred(self._lead), supervise)
                    while self.ending:
                        await self._drained.wait()
                    tasks.cancel_scope.cancel()
            self.users -= 1

    async def _lead(self, supervise: Callable[[], Awaitable[None]]) -> None:
        """Supervise the workers, once no other epoch does."""
        assert self._leader is not None
        async with self._leader, anyio.create_task_group() as tasks:
            tasks.start_soon(deferred(self._watch))
            await supervise()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(min(0.5, self.timeout / 8))
            now = time.monotonic()
            for handle in self.handles:
                if handle.state == "up":
                    await handle.end_if_stuck(now)

    def wants(self, handle: H) -> bool:
        """Return whether a worker belongs in a place."""
        used = handle.slot < self.count or bool(handle.running)
        return used and not self.closed and self.failure is None

    # -- chunks ------------------------------------------------------------------------------------------------------

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """Run the chunks of a batch; see `aioloader.abc.Executor.run`."""
        outcomes: list[ChunkResult | BaseException] = []
        ended = Notification()

        def done(outcome: ChunkResult | BaseException) -> None:
            outcomes.append(outcome)
            ended.set()

        cancel = self.start(chunks, done)
        try:
            while not outcomes:
                await ended.wait()
        except BaseException:
            cancel()
            raise
        outcome = outcomes.pop()
        if isinstance(outcome, ChunkResult):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # breaks the cycle error -> traceback -> frame -> error

    def start(
        self, chunks: Sequence[Chunk], done: Callable[[ChunkResult | BaseException], object]
    ) -> Callable[[], object]:
        """Begin to run the chunks of a batch; see `aioloader.abc.Executor.start`."""
        batch = BatchRun(done)
        for chunk in chunks:
            batch.attempts.append(Attempt(batch, chunk, chunk))
        for attempt in batch.attempts[:]:
            self._submit(attempt)
        return functools.partial(self._abandon, batch)

    def _submit(self, attempt: Attempt) -> None:
        attempt.number = next(self._numbers)
        if self.failure is not None:
            self._finish(attempt, self.failure)
        else:
            heapq.heappush(self._queue, (attempt.part.batch, attempt.number, attempt))
            self._send_queued()

    def assign(self) -> None:
        """Send queued chunks, after the capacity of any workers has changed."""
        self._count_room()
        self._send_queued()

    def _count_room(self) -> None:
        any_ready = any(handle.ready and handle.capacity for handle in self.handles)
        for handle in self.handles:
            used = handle.slot < self.count
            # A chunk would wait until the worker has started, and the batches behind it too.
            waits = any_ready and not handle.ready
            handle.room = handle.capacity if used and not waits else 0
            self._note(handle)

    def _note(self, handle: H) -> None:
        """Note whether a worker may take another chunk, after one was sent to it or answered by it."""
        bit, running = 1 << handle.slot, len(handle.running)
        for outstanding in range(OUTSTANDING):
            if outstanding == running < handle.room:
                self._vacant[outstanding] |= bit
            else:
                self._vacant[outstanding] &= ~bit

    def _send_queued(self) -> None:
        """Send queued chunks to the workers that have the fewest, as long as one may take more."""
        while self._queue:
            if self._queue[0][2].batch.abandoned:
                heapq.heappop(self._queue)
                continue
            places = next(filter(None, self._vacant), 0)
            if not places:
                return
            handle = self.handles[(places & -places).bit_length() - 1]
            attempt = heapq.heappop(self._queue)[2]
            try:
                handle.send(attempt)
            except Exception as error:  # whoever calls this may be another batch, or the loop itself
                handle.running.pop(attempt.number, None)
                attempt.ended = True
                self._finish(attempt, error)
            self._note(handle)

    def _abandon(self, batch: BatchRun) -> None:
        """End the attempts of a batch that was cancelled."""
        batch.abandoned = True
        for attempt in batch.attempts[:]:
            handle = next((each for each in self.handles if attempt.number in each.running), None)
            if handle is None:
                self.resolve(attempt, ChunkResult())  # still queued: no worker has seen it
            else:
                self.cancel(handle, attempt)

    def cancel(self, handle: H, attempt: Attempt) -> None:
        """Make a worker give up a chunk, which is not resolved yet."""
        self.ending[attempt.number] = attempt
        handle.cancel(attempt)

    def answer(self, handle: H, number: int, outcome: Outcome) -> None:
        """Take a worker's answer to a chunk."""
        attempt = handle.running.pop(number, None)
        self._note(handle)
        if attempt is not None and not attempt.ended:
            self.resolve(attempt, outcome)
        if self._queue:
            self._send_queued()

    def resolve(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take the outcome of an attempt, whose worker does not touch the chunk's memory any more."""
        attempt.ended = True
        if self.ending and self.ending.pop(attempt.number, None) is not None:
            self._drained.set()
        batch, retry, error, rest = attempt.batch, attempt.retry, None, None
        if retry is None and isinstance(outcome, ChunkResult):
            if batch.result is None:
                batch.result = outcome
            else:
                batch.result.merge(outcome)
        elif not batch.abandoned:
            retry = retry or ChunkRetry(attempt.chunk, self.timeout, raises=self.raises)
            batch.result = batch.result or ChunkResult()
            error = retry.handle_outcome(attempt.part, outcome, batch.result)
            rest = None if error is not None else retry.next_part()
        if rest is None:
            self._finish(attempt, error)
        else:
            following = Attempt(batch, attempt.chunk, rest, retry)
            batch.attempts.remove(attempt)
            batch.attempts.append(following)
            self._submit(following)

    def _finish(self, attempt: Attempt, error: BaseException | None) -> None:
        """Release the memory of a chunk that is done; keep its error for the batch if it failed."""
        batch = attempt.batch
        attempt.chunk.release()
        batch.error = batch.error or error
        batch.attempts.remove(attempt)
        if not batch.attempts and not batch.abandoned:
            outcome = batch.error if batch.error is not None else batch.result or ChunkResult()
            batch.error = None  # breaks the cycle error -> traceback -> frame -> batch -> error
            batch.done(outcome)

    # -- death -------------------------------------------------------------------------------------------------------

    def lost(self, handle: H, describe: Callable[[Attempt, bool], WorkerDeath]) -> None:
        """Retry the chunks of a worker that is gone, and make room for the next worker.

        Args:
            handle: its place.
            describe: called with each of its chunks, and whether it was sent that one first; returns what its end
                means for that chunk.
        """
        handle.state = "dead"
        running, handle.running = handle.running, {}
        self._count_room()
        for number, attempt in enumerate(running.values()):
            if not attempt.ended:
                self.resolve(attempt, describe(attempt, not number))
        if not handle.dismissed:
            self.restarts += 1
        handle.clear()
        self._send_queued()  # a worker that still starts may have room now

    def give_up(self, error: BaseException) -> list[tuple[H, Attempt]]:
        """Fail the chunks that wait, now and later: no worker can be started. Return those that workers have."""
        self.failure = self.failure or error
        queued, self._queue = self._queue, []
        for _, _, attempt in queued:
            if not attempt.batch.abandoned:
                self.resolve(attempt, self.failure)
        return [(handle, attempt) for handle in self.handles for attempt in handle.running.values()]


class SupervisedExecutor(Executor, Generic[H]):
    """Base of the executors whose workers are in a `WorkerTable`."""

    _table: WorkerTable[H]

    def serving(self) -> AbstractAsyncContextManager[None]:
        return self._table.serving(self._supervise)

    async def _supervise(self) -> None:
        """Keep the workers alive; see `WorkerTable.serving`."""
        raise NotImplementedError

    def run(self, chunks: Sequence[Chunk]) -> Coroutine[Any, Any, ChunkResult]:
        return self._table.run(chunks)

    def start(
        self, chunks: Sequence[Chunk], done: Callable[[ChunkResult | BaseException], object]
    ) -> Callable[[], object]:
        return self._table.start(chunks, done)

    @property
    def restarts(self) -> int:
        """Return how many workers were replaced."""
        return self._table.restarts

    @property
    def failure(self) -> BaseException | None:
        """Return the reason why no worker can be started, or None."""
        return self._table.failure

    @property
    def queued(self) -> int:
        """Return the number of chunks that wait for a worker."""
        return self._table.queued
