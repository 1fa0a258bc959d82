"""The executor that finds out which executor, and how many workers, by doing the work of the first batches.

Nothing is run for the measurement alone: each chunk of the first batches runs once, by the executor that is being
tried, and what comes out is delivered. So no sample is lost, made twice or drawn twice, whatever is tried and chosen.

What may be tried follows from what the batches must be. Code of the caller's may draw from the global generators of
Python and numpy, which are only reproducible in worker processes: so it runs there from the first sample on, nowhere
else, unless it cannot be sent there. Transforms of our own draw from the sample's own stream, and are tried in threads
first, which start at once: if two of them are twice as fast as one, processes are not tried.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import cloudpickle

from aioloader.executors.inline import InlineExecutor
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.executors.shared_memory import MAX_WORKERS
from aioloader.executors.thread import ThreadExecutor
from aioloader.executors.tuning.tuner import ExecutorTuner, Trial, describe_workers
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.foundation.host_limits import available_memory, memory_of_processes
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import ChunkResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioloader.abc import Program
    from aioloader.executors.shared_memory import SlabMemory
    from aioloader.foundation.types import Chunk, WorkerState

__all__ = ("AutoExecutor",)

# Worker processes together may take so much of the memory that is free when the loader opens.
_SHARE_OF_MEMORY = 0.5
_UNKNOWN_MEMORY = 4 << 30  # where the system does not report it
# What a worker takes before one has been looked at: an interpreter with numpy and OpenCV.
_WORKER_NBYTES = 80 << 20
_POLL_S = 0.01


class _TooLargeError(Exception):
    pass


class _Scale:
    """A file that only counts, and gives up at `most` bytes."""

    def __init__(self, most: float) -> None:
        self.nbytes = 0
        self._most = most

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.nbytes += size
        if self.nbytes > self._most:
            raise _TooLargeError
        return size


class AutoExecutor:
    """Runs chunks by the executor that turns out to be the fastest.

    Args:
        kinds: executors to choose from: "thread", "process", "inline".
        most: workers at most.
        timeout: of the executors.
        fixed: the number of workers is given, and is `most`.
        watch: warn of code that draws from global generators in this process.

    Attributes:
        kind: what is in use: "thread", "process" or "inline".
        maps_files: see `aioloader.abc.Executor`; elsewhere than in worker processes a file that is cut off while it is
            mapped would end the caller's own process.
        restarts: worker processes that were replaced.
    """

    def __init__(
        self, kinds: Sequence[str], most: int, timeout: float, *, fixed: bool = False, watch: bool = True
    ) -> None:
        self._kinds = tuple(kinds)
        self._most = min(most, MAX_WORKERS)
        self._timeout = timeout
        self._fixed = fixed
        self._watch = watch
        self.maps_files = self._kinds == ("process",)
        self._step = Trial(self._kinds[0], self._most)
        self.kind = self._kinds[0]
        self._why = ""
        self._inner: dict[str, Any] = {}
        self._groups: list[anyio.abc.TaskGroup] = []
        self._active = 0
        self._draining = False
        self._moving = False
        self._proved = False
        self._worker_nbytes = _WORKER_NBYTES
        self._weighed = 0
        self._freed = Notification()
        self._former: list[Any] = []

    def open(self, program: Program, memory: SlabMemory) -> None:
        """See `aioloader.abc.Executor.open`."""
        self._memory = memory
        self._program = program
        here = replace(program, seed_globals=False, foreign=program.foreign and self._watch)
        self._program_here = here
        free = available_memory()
        self._room = int(_SHARE_OF_MEMORY * (_UNKNOWN_MEMORY if free is None else free))
        kinds = self._possible(program)
        tried = tuple(kind for kind in ("thread", "process") if kind in kinds)
        self._begin(ExecutorTuner(tried, self._most, inline="inline" in kinds, fixed=self._fixed))

    def _begin(self, ladder: ExecutorTuner) -> None:
        self._ladder = ladder
        self._step = ladder.step
        self.kind = self._step.kind
        self._executor(self.kind, self._step.workers)

    def _possible(self, program: Program) -> tuple[str, ...]:
        """The kinds that give the same batches and can be had at all. Blocks."""
        kinds = self._kinds
        if "process" not in kinds or len(kinds) == 1:
            return kinds
        if not program.foreign:
            return kinds  # ours: small, and the same everywhere
        scale = _Scale(self._room / 2)
        try:
            cloudpickle.Pickler(
                scale, protocol=5, buffer_callback=lambda buffer: scale.write(buffer.raw()) < 0
            ).dump(program)
        except _TooLargeError:
            self._why = "the dataset is too large to be sent to worker processes"
        except Exception as error:
            self._why = (
                f"the dataset or a transform cannot be sent to worker processes ({type(error).__name__})"
            )
        else:
            return ("process",)
        return ("thread",)

    def _executor(self, kind: str, workers: int) -> Any:
        """The executor of a kind, with so many workers at least. In the loop's thread, or before there is a loop."""
        inner: Any = self._inner.get(kind)
        if inner is None:
            if kind == "thread":
                inner = ThreadExecutor(self._most, self._timeout)
            elif kind == "process":
                inner = ProcessExecutor(workers, self._timeout)
            else:
                inner = InlineExecutor()
            inner.open(self._program if kind == "process" else self._program_here, self._memory)
            self._inner[kind] = inner
            for tasks in self._groups:
                tasks.start_soon(deferred(self._serve), inner)
        if kind == "process" and workers > inner.workers:
            inner.resize(workers)
        return inner

    # -- serving -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`."""
        if not self._groups:
            self._freed = Notification()
        async with anyio.create_task_group() as tasks:
            self._groups.append(tasks)
            try:
                for inner in self._inner.values():
                    tasks.start_soon(deferred(self._serve), inner)
                yield
            finally:
                self._groups.remove(tasks)
            tasks.cancel_scope.cancel()

    @staticmethod
    async def _serve(inner: Any) -> None:
        async with inner.serving():
            await anyio.sleep_forever()

    @property
    def settled(self) -> bool:
        """Whether the choice is made, and in force."""
        return self._step is self._ladder.chosen

    @property
    def workers(self) -> int:
        """How many chunks it works on at a time, now."""
        return self._step.workers

    @property
    def most(self) -> int:
        """How many that may become."""
        return self.workers if hasattr(self, "_ladder") and self.settled else self._most

    @property
    def tuning(self) -> str:
        """What was chosen and why, in a sentence."""
        count = describe_workers(self.kind, self.workers)
        verb = "was" if self.workers == 1 and self.kind != "inline" else "were"
        if not self.settled:
            why = f" ({self._why})" if self._why else ""
            return f"Measuring is not over; so far {count} {verb} enough{why}."
        why = "; ".join(each for each in (self._why, self._ladder.reason) if each)
        return f"By measurement {count} {verb} chosen: {why}."

    # -- chunks --------------------------------------------------------------------------------------------------------

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        if self.settled and not self._draining:
            result: ChunkResult = await self._inner[self.kind].run(chunks)
            return result
        result = ChunkResult()
        errors: list[Exception] = []
        waiting = {id(chunk): chunk for chunk in chunks}

        async def one(chunk: Chunk) -> None:
            try:
                await self._place()
                del waiting[id(chunk)]
                result.merge(await self._measured(chunk))
            except Exception as error:
                errors.append(error)

        try:
            if not self._proved:
                await self._prove()
            async with anyio.create_task_group() as tasks:
                for chunk in chunks:
                    tasks.start_soon(deferred(one), chunk)
        finally:
            for chunk in waiting.values():  # those that never ran
                chunk.release()
        if errors:
            raise errors[0]
        return result

    async def _place(self) -> None:
        """Wait until the step that is being tried has a worker free, and take it."""
        while self._draining or self._active >= self.workers:
            await self._freed.wait()
        self._active += 1

    async def _prove(self) -> None:
        """Wait until the first worker has loaded what it needs; where none can, go to threads. Nothing has run yet."""
        processes = self._inner.get("process")
        if processes is not None and "thread" in self._kinds:
            # Once a loader; a worker's start is told by its handle, which has no event for those who only look on.
            while not processes.ready and processes.failure is None:  # noqa: ASYNC110
                await anyio.sleep(_POLL_S)
            if processes.failure is not None and self.kind == "process":
                self._why = f"worker processes cannot be had ({processes.failure})"
                self._begin(ExecutorTuner(("thread",), self._most, fixed=self._fixed))
        self._proved = True

    async def _measured(self, chunk: Chunk) -> ChunkResult:
        step = self._step
        full = self._active >= step.workers
        try:
            made: ChunkResult = await self._inner[self.kind].run([chunk])
            if step is self._step and not self._draining:
                step.enter(len(chunk), made.work_s, full and self._active >= step.workers)
        finally:
            self._active -= 1
            self._draining = self._draining and self._active > 0
            self._freed.set()
        if step is self._step and step.measured and not self.settled and not self._moving:
            if "process" not in self._inner and not self._to_processes():
                self._apply()
            elif self._groups:
                self._moving = True
                self._groups[-1].start_soon(deferred(self._move))
        return made

    def _to_processes(self) -> bool:
        """Choose the next step; whether it needs worker processes."""
        if self._ladder.step is self._step:  # else the pass in which it was chosen was left
            self._ladder.next(self._room // max(1, self._worker_nbytes))
        return self._ladder.step.kind == "process"

    async def _move(self) -> None:
        """The same where there are worker processes, or some have to start. Chunks that come meanwhile run as before.

        A pass that ends meanwhile takes this along; the next one goes on with it.
        """
        try:
            await self._weigh()
            if self._to_processes():
                step = self._ladder.step
                inner = self._executor("process", step.workers)
                while inner.ready < step.workers and inner.failure is None:  # noqa: ASYNC110  # as in `_prove`
                    await anyio.sleep(_POLL_S)
                if inner.failure is not None:
                    self._ladder.without_processes(f"worker processes cannot be had ({inner.failure})")
            self._apply()
        finally:
            self._moving = False
            self._freed.set()

    def _apply(self) -> None:
        """The step that was chosen is in force."""
        step = self._step = self._ladder.step
        self._executor(step.kind, step.workers)
        self.kind = step.kind
        self._draining = self._active > 0
        if self.settled:
            self._settle(step.kind, step.workers)
        self._freed.set()

    def _settle(self, kind: str, workers: int) -> None:
        """Let go of what was not chosen."""
        processes = self._inner.get("process")
        if processes is not None:
            processes.resize(workers if kind == "process" else 0)
        if kind == "thread" and workers < self._most:
            self._former.append(self._inner.pop("thread"))
            threads = ThreadExecutor(workers, self._timeout)
            threads.open(self._program_here, self._memory)
            self._inner["thread"] = threads
            for tasks in self._groups:
                tasks.start_soon(deferred(self._serve), threads)

    async def _weigh(self) -> None:
        """Find out what a worker process takes, once for each number of them."""
        processes = self._inner.get("process")
        if processes is None or self._weighed == processes.workers:
            return

        def weigh(pids: list[int], count: int) -> None:
            self._worker_nbytes = max(memory_of_processes(pids), default=self._worker_nbytes)
            self._weighed = count

        looking = Threads(1, "aioloader-tune")
        try:
            await looking.run(weigh, processes.pids, processes.workers)
        finally:
            looking.close(0)

    # -- for reports ---------------------------------------------------------------------------------------------------

    @property
    def restarts(self) -> int:
        """Worker processes that were replaced."""
        processes = self._inner.get("process")
        return 0 if processes is None else int(processes.restarts)

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers that live now."""
        processes = self._inner.get("process")
        return [] if processes is None else list(processes.pids)

    @property
    def queued(self) -> int:
        """Chunks that wait for a worker."""
        return sum(getattr(inner, "queued", 0) for inner in self._inner.values())

    def activity(self) -> object:
        """Something that is another whenever a sample was begun, or a worker came or went."""
        return self._active, [
            inner.activity() for inner in self._inner.values() if hasattr(inner, "activity")
        ]

    async def workers_now(self) -> list[WorkerState]:
        """What every worker does."""
        found: list[WorkerState] = []
        for inner in list(self._inner.values()):
            if hasattr(inner, "workers_now"):
                found += await inner.workers_now()
        return found

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`."""
        for inner in (*self._inner.values(), *self._former):
            inner.close()
