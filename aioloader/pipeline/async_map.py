"""Async transforms: awaited in the event loop, many at a time, between the parts of a chain that run in the executor.

A chain is cut where it waits: what comes before the first async transform and after the last one are segments of the
executor's program. To the other stations `AsyncMapExecutor` is an executor: chunks go in, results come out.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from aioloader.errors import StalledError
from aioloader.foundation.concurrency import RefCount, deferred
from aioloader.foundation.run_chunks import run_each
from aioloader.foundation.stacks import stack_of_coroutine
from aioloader.foundation.types import EPOCH, INDEX, ROW, CallSpan, Chunk, ChunkResult, Failure, WorkerState
from aioloader.pipeline.cancellation import is_ours
from aioloader.pipeline.collate import write_row
from aioloader.pipeline.grace_scope import GraceScope
from aioloader.pipeline.priority import PrioritySemaphore
from aioloader.rng import AWAITED_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

__all__ = ("AsyncMapExecutor", "cut")

_YIELD_S = 0.002
_SHOWN = 16


def cut(stages: Iterable[Any]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Cut a chain at its async stages.

    Returns:
        what runs in the executor, and what is awaited between: the second has one element less than the first, whose
        last element may be empty, and so may its first.
    """
    sync: list[list[Any]] = [[]]
    waiting: list[list[Any]] = []
    for stage in stages:
        if not stage.is_async:
            sync[-1].append(stage)
        elif waiting and len(sync) > 1 and not sync[-1]:
            waiting[-1].append(stage)
        else:
            waiting.append([stage])
            sync.append([])
    return [tuple(part) for part in sync], [tuple(part) for part in waiting]


class _Call:
    """A sample that waits."""

    __slots__ = ("batch", "coroutine", "index", "name", "since")

    def __init__(self, name: str, batch: int, index: int, coroutine: Any) -> None:
        self.name = name
        self.batch = batch
        self.index = index
        self.coroutine = coroutine
        self.since = time.perf_counter()


class _Step:
    """One async transform.

    Attributes:
        number: its place among the chain's async transforms.
        name: what it is called in a `Failure`.
    """

    def __init__(self, stage: Any, number: int) -> None:
        self.stage = stage
        self.number = number
        self.name = f"transform:{stage.name}"
        self.gate = PrioritySemaphore(stage.concurrency)


class AsyncMapExecutor:
    """An executor that runs async transforms in the event loop, and all else in another executor.

    Args:
        executor: runs the segments of the program.
        segments: the stages of each segment; the last one is followed by no async transform.
        waiting: the async stages after each segment but the last.
        seed: the loader's seed.
        timeout: seconds after which a call counts as failed.
    """

    def __init__(
        self,
        executor: Any,
        segments: Sequence[Sequence[Any]],
        waiting: Sequence[Sequence[Any]],
        seed: int,
        timeout: float,
    ) -> None:
        self._executor = executor
        self._segments = segments
        self._stages = waiting
        self._seed = seed
        self._timeout = timeout
        self._steps: list[list[_Step]] = []
        self._users = 0
        self._begun = 0
        self._calls: set[_Call] = set()

    def __getattr__(self, name: str) -> Any:
        """What else the executor tells: its workers, what waits for them, how often they were replaced."""
        if name == "_executor":
            raise AttributeError(name)
        return getattr(self._executor, name)

    @property
    def concurrency(self) -> dict[str, int]:
        """Most calls at a time of each async transform, by name; of equal names the smallest."""
        most: dict[str, int] = {}
        for stage in (stage for group in self._stages for stage in group):
            most[stage.name] = min(stage.concurrency, most.get(stage.name, stage.concurrency))
        return most

    def open(self, program: Any, memory: Any) -> None:
        """See `aioloader.abc.Executor.open`."""
        self._memory = memory
        self._traced = program.traced
        self._executor.open(program, memory)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`."""
        if not self._users:
            # In the loop that is used now; the last one may have ended in the middle of something.
            number = iter(range(sum(map(len, self._stages))))
            self._steps = [[_Step(stage, next(number)) for stage in group] for group in self._stages]
        self._users += 1
        try:
            async with self._executor.serving():
                yield
        finally:
            self._users -= 1

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        return await run_each(chunks, self._run_chunk)

    async def _run_chunk(self, chunk: Chunk) -> ChunkResult:
        holders = RefCount(chunk.release)
        try:
            result = ChunkResult()
            rows = chunk.index_table[ROW].tolist()
            given = None if chunk.samples is None else dict(zip(rows, chunk.samples, strict=True))
            for segment, steps in enumerate(self._steps):
                if given is None or self._segments[segment]:
                    given = await self._by_value(self._part(chunk, segment, given, holders), result)
                given = await self._await_all(steps, chunk, given, result)
            last = len(self._steps)
            if given is None or self._segments[last] or chunk.custom_collate:
                if given is None or given:
                    part = self._part(chunk, last, given, holders)
                    result.merge(await self._executor.run([part]))
            else:
                await self._finish(chunk, given, result)
            return result
        finally:
            holders.leave()

    # -- in the executor ---------------------------------------------------------------------------------------------

    def _part(self, chunk: Chunk, segment: int, given: dict[int, Any] | None, holders: RefCount) -> Chunk:
        """What the executor is given of a chunk: the samples that are left of it, to be made in a segment."""
        part = replace(chunk, samples=None)
        if given is not None and len(given) < len(chunk):
            part = part.part([row in given for row in chunk.index_table[ROW].tolist()])
        samples = None if given is None else [given[row] for row in part.index_table[ROW].tolist()]
        holders.enter()
        final = segment == len(self._steps)
        return replace(
            part,
            samples=samples,
            segment=segment,
            layout=part.layout if final else None,
            custom_collate=part.custom_collate and final,
            release=holders.leave,
        )

    async def _by_value(self, part: Chunk, result: ChunkResult) -> dict[int, Any]:
        made = await self._executor.run([part])
        values: dict[int, Any] = made.values
        made.values = {}
        result.merge(made)
        return values

    # -- in the loop -------------------------------------------------------------------------------------------------

    async def _await_all(
        self, steps: Sequence[_Step], chunk: Chunk, given: dict[int, Any], result: ChunkResult
    ) -> dict[int, Any]:
        """The samples after some async transforms, in no order.

        As many tasks as can have calls under way, and as many that wait for them: otherwise a later batch would be let
        in whenever one of these tasks turns to its next sample.
        """
        entries = zip(*(chunk.index_table[each].tolist() for each in (ROW, EPOCH, INDEX)), strict=True)
        left = iter([each for each in entries if each[0] in given])
        made: dict[int, Any] = {}
        at_most = 2 * sum(step.stage.concurrency for step in steps)
        async with anyio.create_task_group() as tasks:
            for _ in range(min(len(given), at_most)):
                tasks.start_soon(deferred(self._work), left, steps, chunk, given, made, result)
        return made

    async def _work(
        self,
        left: Iterator[tuple[int, int, int]],
        steps: Sequence[_Step],
        chunk: Chunk,
        given: dict[int, Any],
        made: dict[int, Any],
        result: ChunkResult,
    ) -> None:
        yielded_at = time.monotonic()
        for row, epoch, index in left:
            # A transform that swallows its cancellation must not keep the others from it.
            await anyio.lowlevel.checkpoint_if_cancelled()
            step = steps[0]
            try:
                sample = given.pop(row)
                for step in steps:
                    async with step.gate.entered(chunk.batch):
                        sample = await self._call(step, chunk.batch, epoch, index, sample, result)
            except BaseException as error:
                if is_ours(error, shielded=True):
                    raise
                result.failures.append(Failure(row, step.name, error))
            else:
                made[row] = sample
            now = time.monotonic()
            if now - yielded_at > _YIELD_S:  # what never waits must not hold the loop
                await anyio.lowlevel.checkpoint()
                yielded_at = time.monotonic()

    async def _call(
        self, step: _Step, batch: int, epoch: int, index: int, sample: Any, result: ChunkResult
    ) -> Any:
        stage = step.stage
        rng: Any = Rng(self._seed, epoch, index, AWAITED_DOMAIN + step.number) if stage.takes_rng else None
        coroutine = stage.apply_async(sample, rng)
        call = _Call(stage.name, batch, index, coroutine)
        self._calls.add(call)
        self._begun += 1
        try:
            with (
                anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as scope,
                GraceScope() as once,
            ):
                return await once.run(coroutine)
            assert scope.cancelled_caught
            raise StalledError(self._timeout, " in an async transform; raise timeout= if this is expected")
        finally:
            self._calls.discard(call)
            now = time.perf_counter()
            result.awaited[stage.name] = result.awaited.get(stage.name, 0.0) + now - call.since
            if self._traced:
                result.calls.append(CallSpan(stage.name, index, call.since, now))

    async def _finish(self, chunk: Chunk, given: dict[int, Any], result: ChunkResult) -> None:
        """Write the samples to their rows, as far as they fit."""
        yielded_at = time.monotonic()
        for row, sample in given.items():
            result.values[row] = sample
            if chunk.layout is not None:
                write_row(self._memory, chunk.layout, chunk.bases, chunk.rows, row, result)
            if time.monotonic() - yielded_at > _YIELD_S:
                await anyio.lowlevel.checkpoint()
                yielded_at = time.monotonic()

    # -- for reports of a stall --------------------------------------------------------------------------------------

    def activity(self) -> object:
        """Something that is another whenever a sample was begun."""
        below = getattr(self._executor, "activity", None)
        return self._begun, len(self._calls), None if below is None else below()

    async def workers_now(self) -> list[WorkerState]:
        """What waits, longest first, and what every worker does."""
        now = time.perf_counter()
        oldest = sorted(self._calls, key=lambda each: each.since)[:_SHOWN]
        states = [
            WorkerState(
                f"async transform {call.name}",
                "working",
                call.batch,
                call.index,
                (call.index,),
                now - call.since,
                stack_of_coroutine(call.coroutine),
            )
            for call in oldest
        ]
        if hasattr(self._executor, "workers_now"):
            states += await self._executor.workers_now()
        return states

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
        self._executor.close()
