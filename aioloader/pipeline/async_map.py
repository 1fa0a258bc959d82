"""Async transforms: awaited in the event loop, many at a time, between the parts of a chain that run in the executor.

A chain is cut at its async transforms: the transforms before the first one and after the last one are segments of the
executor's program. To the other stages `AsyncMapExecutor` is an executor: chunks go in, results come out.

Cancellation around async code of the caller: whose it is, and time for the code to end.

anyio cancels a task again at every await until it has left the scope. Code written for asyncio expects one
cancellation, and awaits in its ``finally``, for example to close a connection. So under asyncio the first cancellation
goes through, and a shield keeps off those that would follow, for `GRACE_S` seconds. Under trio every cancellation is of
the other kind, and code written for trio expects it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel

from aioloader.abc import Executor, Program, SlabMemory, Stage
from aioloader.errors import StalledError
from aioloader.foundation.concurrency import TURN_S, RefCount, deferred, run_each
from aioloader.foundation.error_log import printable
from aioloader.foundation.stacks import stack_of_coroutine
from aioloader.foundation.types import (
    EPOCH,
    INDEX,
    POSITION,
    ROW,
    CallSpan,
    Chunk,
    ChunkResult,
    Failure,
    WorkerState,
)
from aioloader.pipeline.collate import write_row
from aioloader.rng import AWAITED_DOMAIN, Rng, current_rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence


T = TypeVar("T")

GRACE_S = 0.5


def is_ours(error: BaseException, *, shielded: bool = False) -> bool:
    """Return True if an exception ends the epoch or the program; False if the caller's code has failed.

    A cancellation of something that the caller's code awaited looks the same to it. Call it where the exception was
    caught.

    Args:
        error: the exception that the caller's code raised.
        shielded: only its cancel scope ends this task: asyncio's own cancellation comes from the caller's code, or
            reaches the tasks around this one too.
    """
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return True
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup((cancelled, KeyboardInterrupt, GeneratorExit)) is not None
    if not isinstance(error, cancelled):
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # trio: only trio itself raises its Cancelled
    if task is None or not task.cancelling():
        return False
    if shielded:
        task.uncancel()
    return not shielded


class GraceScope:
    """Context in which coroutines of the caller run. When cancelled, each may await for `GRACE_S` seconds more.

    Every call of asyncio's own `Task.cancel` reaches them, as always. For one task.
    """

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> GraceScope:
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool:
        return bool(self._scope.__exit__(*error))

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return await coroutine
        try:
            result: T = await _Steps(coroutine, self._cancelled)
            return result
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._end_shield()

    def _cancelled(self) -> None:
        if self._timer is None and anyio.current_effective_deadline() == -math.inf:
            self._scope.shield = True
            self._timer = self._loop.call_later(GRACE_S, self._end_shield)

    def _end_shield(self) -> None:
        self._scope.shield = False


class _Steps:
    """A coroutine that runs step by step; `cancelled` is called before a cancellation is thrown into it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], cancelled: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._cancelled = cancelled

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    if error is None:
                        awaited = self._coroutine.send(value)
                    else:
                        awaited = self._coroutine.throw(error)
                except StopIteration as end:
                    return end.value
                value = error = None
                try:
                    value = yield awaited
                except GeneratorExit:
                    self._coroutine.close()
                    raise
                except BaseException as raised:
                    error = raised
                    if isinstance(error, asyncio.CancelledError):
                        self._cancelled()
        finally:
            error = None  # breaks the cycle error -> traceback -> frame -> error


_SHOWN = 16


def cut(stages: Iterable[Stage]) -> tuple[list[tuple[Stage, ...]], list[tuple[Stage, ...]]]:
    """Cut a chain at its async stages.

    Returns:
        the segments that run in the executor, and the groups of async stages between them: one group less than
        segments. The first and the last segment may be empty.
    """
    sync: list[list[Stage]] = [[]]
    waiting: list[list[Stage]] = []
    for stage in stages:
        if not stage.is_async:
            sync[-1].append(stage)
        elif waiting and len(sync) > 1 and not sync[-1]:
            waiting[-1].append(stage)
        else:
            waiting.append([stage])
            sync.append([])
    return [tuple(part) for part in sync], [tuple(part) for part in waiting]


@dataclass(slots=True, eq=False)
class _Waiter:
    admitted: anyio.Event = field(default_factory=anyio.Event)
    cancelled: bool = False


class PrioritySemaphore:
    """Semaphore that admits the waiter with the lowest `priority` first, regardless of the order of arrival.

    anyio has none with priorities. For the tasks of one event loop. A task does not wait while there is room.

    Args:
        limit: maximum number of tasks inside, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: list[tuple[int, int, _Waiter]] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def entered(self, priority: int) -> AsyncIterator[None]:
        """Hold one place while the context is open."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(priority)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, priority: int) -> None:
        waiter = _Waiter()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), waiter))
        try:
            await waiter.admitted.wait()
        except BaseException:
            if waiter.admitted.is_set():  # admitted and cancelled at the same time
                self._leave()
            waiter.cancelled = True
            raise

    def _leave(self) -> None:
        """Free one place; the next waiter gets it at once."""
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.cancelled:
                waiter.admitted.set()
                return
        self._free += 1


@dataclass(slots=True, eq=False)
class _Call:
    """A call of an async transform in progress."""

    name: str
    batch: int
    index: int
    coroutine: Coroutine[Any, Any, Any]
    since: float = field(default_factory=time.perf_counter)


class _AsyncStage:
    """One async transform.

    Attributes:
        number: its place among the chain's async transforms.
        name: its stage name in a `Failure`.
        limit: admits as many calls as `concurrency` allows, those of the earliest batch first.
    """

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.number = number
        self.name = f"transform:{stage.name}"
        self.limit = PrioritySemaphore(stage.concurrency)


class AsyncMapExecutor(Executor):
    """An executor that runs async transforms in the event loop, and everything else in another executor.

    Args:
        executor: runs the segments of the program.
        segments: the stages of each segment; no async transform follows the last one.
        waiting: the async stages after each segment but the last.
        seed: the loader's seed.
        timeout: seconds after which a call counts as failed.
    """

    def __init__(
        self,
        executor: Executor,
        segments: Sequence[Sequence[Stage]],
        waiting: Sequence[Sequence[Stage]],
        *,
        seed: int,
        timeout: float,
    ) -> None:
        self._executor = executor
        self._segments = segments
        self._waiting = waiting
        self._seed = seed
        self._timeout = timeout
        self._groups: list[list[_AsyncStage]] = []
        self._users = 0
        self._begun = 0
        self._calls: set[_Call] = set()

    @property
    def workers(self) -> int:
        """Return the number of workers of the other executor."""
        return self._executor.workers

    @property
    def spills(self) -> bool:
        """Return whether the results of the other executor go through the spill regions of their chunks."""
        return self._executor.spills

    @property
    def concurrency(self) -> dict[str, int]:
        """Return the maximum number of concurrent calls of each async transform; of equal names the smallest."""
        most: dict[str, int] = {}
        for stage in (stage for group in self._waiting for stage in group):
            most[stage.name] = min(stage.concurrency, most.get(stage.name, stage.concurrency))
        return most

    def open(self, program: Program, memory: SlabMemory) -> None:
        self._memory = memory
        self._traced = program.traced
        self._executor.open(program, memory)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        if not self._users:
            # Made for the loop that runs now; the last one may have ended in the middle of a call.
            number = iter(range(sum(map(len, self._waiting))))
            self._groups = [[_AsyncStage(stage, next(number)) for stage in group] for group in self._waiting]
        self._users += 1
        try:
            async with self._executor.serving():
                yield
        finally:
            self._users -= 1

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        return await run_each(chunks, self._run_chunk)

    async def _run_chunk(self, chunk: Chunk) -> ChunkResult:
        holders = RefCount(chunk.release)
        try:
            result = ChunkResult()
            rows = chunk.index_table[ROW].tolist()
            given = None if chunk.samples is None else dict(zip(rows, chunk.samples, strict=True))
            for segment, group in enumerate(self._groups):
                if given is None or self._segments[segment]:
                    made = await self._executor.run([self._part(chunk, segment, given, holders)])
                    given, made.values = made.values, {}
                    result.merge(made)
                    if chunk.custom_collate and made.incomplete:
                        return result  # the whole batch is made again
                given = await self._await_all(group, chunk, given, result)
            last = len(self._groups)
            if given is None or self._segments[last] or chunk.custom_collate:
                if given is None or given:
                    part = self._part(chunk, last, given, holders)
                    result.merge(await self._executor.run([part]))
            else:
                await self._write(chunk, given, result)
            return result
        finally:
            holders.leave()

    # -- in the executor ---------------------------------------------------------------------------------------------

    def _part(self, chunk: Chunk, segment: int, given: dict[int, Any] | None, holders: RefCount) -> Chunk:
        """Return the chunk for the executor: the samples that are left of `chunk`, to be made in a segment."""
        part = replace(chunk, samples=None)
        if given is not None and len(given) < len(chunk):
            part = part.part([row in given for row in chunk.index_table[ROW].tolist()])
        samples = None if given is None else [given[row] for row in part.index_table[ROW].tolist()]
        holders.enter()
        final = segment == len(self._groups)
        return replace(
            part,
            samples=samples,
            segment=segment,
            layout=part.layout if final else None,
            custom_collate=part.custom_collate and final,
            release=holders.leave,
        )

    # -- in the loop -------------------------------------------------------------------------------------------------

    async def _await_all(
        self, group: Sequence[_AsyncStage], chunk: Chunk, given: dict[int, Any], result: ChunkResult
    ) -> dict[int, Any]:
        """Return the samples after some async transforms, in no order.

        There are as many tasks as can have calls in progress, and as many that wait for them: otherwise a later batch
        would be admitted whenever one of these tasks turns to its next sample.
        """
        entries = zip(
            *(chunk.index_table[each].tolist() for each in (ROW, EPOCH, INDEX, POSITION)), strict=True
        )
        left = iter([each for each in entries if each[0] in given])
        made: dict[int, Any] = {}

        async def work() -> None:
            yielded_at = time.monotonic()
            for row, epoch, index, position in left:
                # A transform that swallows its cancellation must not keep it from the others.
                await anyio.lowlevel.checkpoint_if_cancelled()
                each = group[0]
                try:
                    sample = given.pop(row)
                    for each in group:
                        domain = AWAITED_DOMAIN + each.number
                        rng = Rng(self._seed, epoch, index, domain, position=position)
                        current_rng.set(rng)  # of this task, which calls nothing else
                        async with each.limit.entered(chunk.batch):
                            call = _Call(
                                each.stage.name, chunk.batch, index, each.stage.apply_async(sample, rng)
                            )
                            sample = await self._call(call, result)
                except BaseException as raised:
                    error = printable(raised)
                    if is_ours(error, shielded=True):
                        raise
                    result.failures.append(Failure(row, each.name, error))
                else:
                    made[row] = sample
                if (
                    time.monotonic() - yielded_at > TURN_S
                ):  # a transform that never waits must not block the loop
                    await anyio.lowlevel.checkpoint()
                    yielded_at = time.monotonic()

        at_most = 2 * sum(each.stage.concurrency for each in group)
        async with anyio.create_task_group() as tasks:
            for _ in range(min(len(given), at_most)):
                tasks.start_soon(deferred(work))
        return made

    async def _call(self, call: _Call, result: ChunkResult) -> Any:
        """Return the result of a call, and record it."""
        self._calls.add(call)
        self._begun += 1
        try:
            with (
                anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as scope,
                GraceScope() as grace,
            ):
                return await grace.run(call.coroutine)
            assert scope.cancelled_caught
            raise StalledError(self._timeout, " in an async transform; raise timeout= if this is expected")
        finally:
            self._calls.discard(call)
            now = time.perf_counter()
            result.awaited[call.name] = result.awaited.get(call.name, 0.0) + now - call.since
            if self._traced:
                result.calls.append(CallSpan(call.name, call.index, call.since, now))

    async def _write(self, chunk: Chunk, given: dict[int, Any], result: ChunkResult) -> None:
        """Write the samples to their rows, as far as they fit."""
        yielded_at = time.monotonic()
        for row, sample in given.items():
            result.values[row] = sample
            if chunk.layout is not None:
                write_row(self._memory, chunk, row, result)
            if time.monotonic() - yielded_at > TURN_S:
                await anyio.lowlevel.checkpoint()
                yielded_at = time.monotonic()

    # -- for reports of a stall --------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        return self._executor.queued

    def activity(self) -> object:
        inner = self._executor.activity()
        return self._begun, len(self._calls), inner

    async def workers_now(self) -> list[WorkerState]:
        """Return the calls in progress, longest first, and what each worker does."""
        now = time.perf_counter()
        oldest = sorted(self._calls, key=lambda each: each.since)[:_SHOWN]
        states = [
            WorkerState(
                f"async transform {call.name}",
                "working",
                batch=call.batch,
                index=call.index,
                outstanding=(call.index,),
                seconds=now - call.since,
                stack=stack_of_coroutine(call.coroutine),
            )
            for call in oldest
        ]
        return states + await self._executor.workers_now()

    def close(self) -> None:
        self._executor.close()
