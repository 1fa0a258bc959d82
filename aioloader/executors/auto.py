"""Executor that finds the fastest executor and number of workers by doing the work of the first batches.

Nothing is run only for the measurement: each chunk of the first batches runs once, in the executor that is being tried,
and its result is delivered. So no sample is lost, made twice or drawn twice, whichever executors are tried and chosen.

The batches must not depend on the choice, which limits the trials. Code of the caller may draw from the global
generators of Python and numpy, which are only reproducible in worker processes: so it runs there from the first sample
on, unless it cannot be sent there. Transforms of this package draw from the sample's own stream, and are tried in
threads first, which start at once: if two of them are twice as fast as one, processes are not tried.

Rules for the choice of an executor and its number of workers: what to try next, and when to stop.

A trial is a kind of executor with a number of workers, all of which are busy while it is measured. Its throughput is
that of all workers if they are never idle: their number divided by the seconds that a sample takes one of them. Two
threads that block each other take twice as long for a sample, and their throughput is that of one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import cloudpickle

from aioloader.abc import Executor, Program, SlabMemory
from aioloader.executors.factory import make_executor, make_processes
from aioloader.executors.shared_memory import MAX_WORKERS, UNKNOWN_MEMORY
from aioloader.foundation.concurrency import Notification, deferred, run_each
from aioloader.foundation.host_limits import available_memory, memory_of_processes
from aioloader.foundation.threads import Threads
from aioloader.observability.derived_metrics import MIN_DISPATCHED_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from aioloader.executors.process.executor import ProcessExecutor
    from aioloader.foundation.types import Chunk, ChunkResult, WorkerState


# Factors by which twice the workers, or processes instead of threads, must be faster to be chosen.
_WORTH_DOUBLING = 1.25
_WORTH_CHANGING = 1.1
# Two threads that are not faster than one by this factor block each other.
_RELEASES_LOCK = 1.5
_CHUNKS = 3
_LEAST_S = 0.03
_ENOUGH_CHUNKS = 24


@dataclass
class Trial:
    """A number of workers of one kind, and its measurement.

    Attributes:
        kind: "thread", "process" or "inline".
        workers: number of workers; 1 for "inline".
        chunks, samples, work_s: measured while all workers were busy.
        warm: chunks that were made before.
    """

    kind: str
    workers: int
    chunks: int = 0
    samples: int = 0
    work_s: float = 0.0
    warm: int = 0

    @property
    def measured(self) -> bool:
        """Return whether the measurement is long enough."""
        if self.chunks < _CHUNKS * self.workers or not self.samples:
            return False
        return self.work_s >= _LEAST_S * self.workers or self.chunks >= _ENOUGH_CHUNKS * self.workers

    @property
    def sample_s(self) -> float:
        """Return the seconds that a sample takes one of the workers."""
        return self.work_s / max(1, self.samples)

    @property
    def throughput(self) -> float:
        """Return the samples per second of all workers together."""
        return self.workers / self.sample_s if self.sample_s else float("inf")

    def record(self, samples: int, work_s: float, full: bool) -> None:
        """Count a chunk; `full`: all workers were busy."""
        if self.warm < self.workers:  # the first ones load what they need
            self.warm += 1
        elif full:
            self.chunks += 1
            self.samples += samples
            self.work_s += work_s


class ExecutorTuner:
    """The trials so far, and the choice.

    Args:
        kinds: in the order in which they are tried: "thread", "process" or both.
        most: largest number of workers.
        inline: no workers may be chosen where samples cost next to nothing.
        fixed: the number of workers is given, and is `most`.

    Attributes:
        trial: the trial that runs now, or the one that was chosen.
        chosen: the trial that was chosen, or None; of the kind "inline" for no workers.
        reason: why, in words.
    """

    def __init__(
        self, kinds: tuple[str, ...], most: int, *, inline: bool = False, fixed: bool = False
    ) -> None:
        self._kinds = kinds
        self._most = most
        self._inline = inline
        self._fixed = fixed
        self._done: list[Trial] = []
        self.chosen: Trial | None = None
        self.reason = ""
        self.trial = Trial(kinds[0], 1 if inline or len(kinds) > 1 or not fixed else most)
        if len(kinds) == 1 and not inline and (fixed or most == 1):
            self._choose(self.trial, "nothing else is possible")

    def next(self, allowed: int) -> None:
        """Go to the next trial after one that is measured, or choose.

        Args:
            allowed: worker processes that fit into memory.
        """
        trial = self.trial
        self._done.append(trial)
        if self._inline and len(self._done) == 1:
            batch_s = trial.sample_s * max(1, trial.samples // max(1, trial.chunks))
            if batch_s < MIN_DISPATCHED_S:
                self._choose(
                    Trial("inline", 1),
                    f"a sample takes {1e6 * trial.sample_s:,.0f} µs, less than to hand it to a worker and back",
                )
                return
        wanted = self._next_trial(trial)
        if wanted is None:
            self._choose_best("")
            return
        if wanted.kind == "process" and wanted.workers > allowed:
            if trial.kind != "process" or allowed <= trial.workers:
                self._choose_best(f"; more than {allowed} worker processes would not fit into memory")
                return
            wanted.workers = allowed
        self.trial = wanted

    def _next_trial(self, trial: Trial) -> Trial | None:
        """Return the next trial, or None if no other is worth it."""
        first = next((each for each in self._done[:-1] if each.kind == trial.kind), None)
        last = self._done[-2] if len(self._done) > 1 and self._done[-2].kind == trial.kind else None
        grew = last is None or trial.throughput >= last.throughput * _WORTH_DOUBLING
        if trial.kind == "thread" and first is not None and trial.workers == 2:
            grew = trial.throughput >= first.throughput * _RELEASES_LOCK
        if grew and trial.workers < self._most:
            return Trial(trial.kind, self._most if self._fixed else min(self._most, 2 * trial.workers))
        if trial.kind == "thread" and "process" in self._kinds:
            one = first or trial
            if trial.throughput < 0.85 * trial.workers * one.throughput or not grew:
                return Trial(
                    "process", self._most if self._fixed else min(self._most, max(2, trial.workers // 2))
                )
        return None

    def _choose_best(self, more: str) -> None:
        best = self._done[0]
        for trial in self._done[1:]:
            worth = _WORTH_CHANGING if trial.kind == best.kind or trial.workers >= best.workers else 1.0
            if trial.throughput >= worth * best.throughput:
                best = trial
        if self._fixed and best.workers != self._most:
            given = [each for each in self._done if each.workers == self._most]
            best = max(
                given or [best], key=lambda each: each.throughput
            )  # memory may not have room for as many
        self._choose(best, self._comparison(best) + more)

    def without_processes(self, why: str) -> None:
        """Choose among the other trials that were measured, because worker processes are not available."""
        self._done = [trial for trial in self._done if trial.kind != "process"]
        if self._done:
            self._choose_best(f"; {why}")
        else:
            self._choose(self.trial, why)

    def _choose(self, trial: Trial, reason: str) -> None:
        self.trial = self.chosen = Trial(trial.kind, trial.workers)
        self.reason = reason

    def _comparison(self, best: Trial) -> str:
        others = [
            f"{describe_workers(each.kind, each.workers)} {each.throughput:,.0f}"
            for each in self._done
            if each is not best
        ]
        if not others:
            return f"a sample takes {1e3 * best.sample_s:.2f} ms"
        return f"measured {best.throughput:,.0f} samples/s, {', '.join(others)}"


def describe_workers(kind: str, workers: int) -> str:
    """Return a number of workers in words."""
    if kind == "inline":
        return "no workers"
    plural = "es" if kind == "process" else "s"
    return f"{workers} {kind}{'' if workers == 1 else plural}"


# Share of the memory that is free when the loader opens, for all worker processes together.
_SHARE_OF_MEMORY = 0.5
# Size of a worker before one was measured: an interpreter with numpy and OpenCV.
_WORKER_NBYTES = 80 << 20
_POLL_S = 0.01


class _TooLargeError(Exception):
    pass


class _SizeLimit:
    """File that only counts, and raises an error at `most` bytes."""

    def __init__(self, most: float) -> None:
        self.nbytes = 0
        self._most = most

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.nbytes += size
        if self.nbytes > self._most:
            raise _TooLargeError
        return size


class StartedExecutors:
    """The executors that were tried, one of each kind.

    Args:
        timeout: of the executors.
        processes: name of the executor of worker processes, see `make_executor`.

    Attributes:
        processes: the one with worker processes, if it was started.
    """

    def __init__(self, timeout: float, processes: str) -> None:
        self._timeout = timeout
        self._name_of_processes = processes
        self._inner: dict[str, Executor] = {}
        self._former: list[Executor] = []
        self._groups: list[anyio.abc.TaskGroup] = []
        self.processes: ProcessExecutor | None = None

    def open(self, program: Program, here: Program, memory: SlabMemory) -> None:
        """Take what executors need; `here` is the program in this process."""
        self._program = program
        self._program_here = here
        self._memory = memory

    def of(self, kind: str) -> Executor:
        """Return the executor of a kind."""
        return self._inner[kind]

    def __iter__(self) -> Iterator[Executor]:
        return iter(self._inner.values())

    def prepare(self, trial: Trial, most: int) -> None:
        """Make the executor of a trial, with at least its workers. In the loop's thread, or before there is a loop.

        Args:
            trial: the trial.
            most: number of threads that an executor of threads has.
        """
        kind, workers = trial.kind, trial.workers
        if kind not in self._inner:
            if kind == "process":
                self.processes = make_processes(self._name_of_processes, workers, self._timeout)
                self._add(kind, self.processes)
            else:
                self._add(kind, make_executor(kind, most, self._timeout))
        if kind == "process" and self.processes is not None and workers > self.processes.workers:
            self.processes.resize(workers)

    def keep(self, chosen: Trial, most: int) -> None:
        """End the workers that were not chosen."""
        if self.processes is not None:
            self.processes.resize(chosen.workers if chosen.kind == "process" else 0)
        if chosen.kind == "thread" and chosen.workers < most:
            self._former.append(self._inner.pop("thread"))
            self._add("thread", make_executor("thread", chosen.workers, self._timeout))

    def _add(self, kind: str, inner: Executor) -> None:
        inner.open(self._program if kind == "process" else self._program_here, self._memory)
        self._inner[kind] = inner
        for tasks in self._groups:
            tasks.start_soon(deferred(_serve), inner)

    @property
    def served(self) -> bool:
        """Return whether an epoch serves them."""
        return bool(self._groups)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Return a context in which all of them are served, also those that are made meanwhile."""
        async with anyio.create_task_group() as tasks:
            self._groups.append(tasks)
            try:
                for inner in self._inner.values():
                    tasks.start_soon(deferred(_serve), inner)
                yield
            finally:
                self._groups.remove(tasks)
            tasks.cancel_scope.cancel()

    def start_soon(self, fn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an async function in a task of the latest epoch that serves them."""
        self._groups[-1].start_soon(deferred(fn))

    def close(self) -> None:
        """Close all."""
        for inner in (*self._inner.values(), *self._former):
            inner.close()


async def _serve(inner: Executor) -> None:
    async with inner.serving():
        await anyio.sleep_forever()


class WorkerMemory:
    """Memory of worker processes, which limits their number.

    Attributes:
        room: bytes for all of them together.
    """

    def __init__(self) -> None:
        self.room = 0
        self._worker_nbytes = _WORKER_NBYTES
        self._weighed = 0

    def open(self) -> None:
        """Find out how much memory there is."""
        free = available_memory()
        self.room = int(_SHARE_OF_MEMORY * (UNKNOWN_MEMORY if free is None else free))

    @property
    def allowed(self) -> int:
        """Return the number of worker processes that fit."""
        return self.room // max(1, self._worker_nbytes)

    async def weigh(self, processes: ProcessExecutor | None) -> None:
        """Measure the memory of a worker process, once for each number of them."""
        if processes is None or self._weighed == processes.workers:
            return

        def weigh(pids: list[int], count: int) -> None:
            self._worker_nbytes = max(memory_of_processes(pids), default=self._worker_nbytes)
            self._weighed = count

        threads = Threads(1, "aioloader-tune")
        try:
            await threads.run(weigh, processes.pids, processes.workers)
        finally:
            threads.close(0)


class AutoExecutor(Executor):
    """Executor that runs chunks in the executor that is measured to be the fastest.

    Args:
        kinds: executors to choose from: "thread", "process", "inline".
        most: largest number of workers.
        timeout: of the executors.
        processes: name of the executor of worker processes, see `make_executor`.
        fixed: the number of workers is given, and is `most`.
        watch: warn of code that draws from global generators in this process.

    Attributes:
        maps_files: see `aioloader.abc.Executor`; outside of worker processes a file that is cut off while it is
            mapped would end the caller's own process.
    """

    maps_files = False

    def __init__(
        self,
        kinds: Sequence[str],
        most: int,
        timeout: float,
        *,
        processes: str = "process",
        fixed: bool = False,
        watch: bool = True,
    ) -> None:
        self._kinds = tuple(kinds)
        self._most = min(most, MAX_WORKERS)
        self._fixed = fixed
        self._watch = watch
        self._started = StartedExecutors(timeout, processes)
        self._memory = WorkerMemory()
        self.maps_files = self._kinds == ("process",)
        self._trial = Trial(self._kinds[0], self._most)
        self._tuner: ExecutorTuner | None = None  # from `open` on
        self._why = ""
        self._active = 0
        self._draining = False
        self._moving = False
        self._proved = False
        self._freed = Notification()

    @property
    def shares_memory(self) -> bool:
        return "process" in self._kinds

    def open(self, program: Program, memory: SlabMemory) -> None:
        here = replace(program, seed_globals=False, foreign=program.foreign and self._watch)
        self._started.open(program, here, memory)
        self._memory.open()
        kinds = self._possible(program)
        tried = tuple(kind for kind in ("thread", "process") if kind in kinds)
        self._begin(ExecutorTuner(tried, self._most, inline="inline" in kinds, fixed=self._fixed))

    def _begin(self, tuner: ExecutorTuner) -> None:
        self._tuner = tuner
        self._trial = tuner.trial
        self._started.prepare(self._trial, self._most)

    def _possible(self, program: Program) -> tuple[str, ...]:
        """Return the kinds that make the same batches and are available. Blocks."""
        kinds = self._kinds
        if "process" not in kinds or len(kinds) == 1:
            return kinds
        if not program.foreign:
            return kinds  # ours: small, and the same everywhere
        size = _SizeLimit(self._memory.room / 2)
        try:
            cloudpickle.Pickler(
                size, protocol=5, buffer_callback=lambda buffer: size.write(buffer.raw()) < 0
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

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        if not self._started.served:
            self._freed = Notification()
        async with self._started.serving():
            yield

    @property
    def kind(self) -> str:
        """Return the executor in use: "thread", "process", "fork" or "inline"."""
        processes = self._started.processes
        return processes.kind if processes is not None and self.spills else self._trial.kind

    @property
    def settled(self) -> bool:
        """Return whether the choice is made, and in force."""
        return self._tuner is not None and self._trial is self._tuner.chosen

    @property
    def workers(self) -> int:
        """Return the number of workers in use now."""
        return self._trial.workers

    @property
    def spills(self) -> bool:
        """Return whether the executor in use now is one of worker processes."""
        return self._trial.kind == "process"

    @property
    def most(self) -> int:
        """Return the largest number of workers that may still be chosen."""
        return self.workers if self.settled else self._most

    @property
    def tuning(self) -> str:
        """Return the choice and its reason, in one sentence."""
        count = describe_workers(self.kind, self.workers)
        verb = "was" if self.workers == 1 and self.kind != "inline" else "were"
        if self._tuner is None or not self.settled:
            why = f" ({self._why})" if self._why else ""
            return f"Measuring is not over; so far {count} {verb} enough{why}."
        why = "; ".join(each for each in (self._why, self._tuner.reason) if each)
        return f"By measurement {count} {verb} chosen: {why}."

    # -- chunks --------------------------------------------------------------------------------------------------------

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        if self.settled and not self._draining:
            return await self._started.of(self._trial.kind).run(chunks)
        if not self._proved:
            try:
                await self._prove()
            except BaseException:
                for chunk in chunks:
                    chunk.release()
                raise
        return await run_each(chunks, self._run_chunk)

    async def _run_chunk(self, chunk: Chunk) -> ChunkResult:
        try:
            # Wait for a free worker of the trial.
            while self._draining or self._active >= self.workers:
                await self._freed.wait()
        except BaseException:
            chunk.release()
            raise
        self._active += 1
        return await self._measure(chunk)

    async def _prove(self) -> None:
        """Wait until the first worker has loaded what it needs; if none can, use threads. Nothing has run yet."""
        processes = self._started.processes
        if processes is not None and "thread" in self._kinds:
            # Once per loader; the start of a worker is an event only for its supervisor.
            while not processes.ready and processes.failure is None:  # noqa: ASYNC110  # see above
                await anyio.sleep(_POLL_S)
            if processes.failure is not None and self.spills:
                self._why = f"worker processes are not available ({processes.failure})"
                self._begin(ExecutorTuner(("thread",), self._most, fixed=self._fixed))
        self._proved = True

    async def _measure(self, chunk: Chunk) -> ChunkResult:
        trial = self._trial
        full = self._active >= trial.workers
        try:
            made = await self._started.of(self._trial.kind).run([chunk])
            if trial is self._trial and not self._draining:
                trial.record(len(chunk), made.work_s, full and self._active >= trial.workers)
        finally:
            self._active -= 1
            self._draining = self._draining and self._active > 0
            self._freed.set()
        if trial is self._trial and trial.measured and not self.settled and not self._moving:
            if self._started.processes is None and not self._next_needs_processes():
                self._apply()
            elif self._started.served:
                self._moving = True
                self._started.start_soon(self._move)
        return made

    def _next_needs_processes(self) -> bool:
        """Choose the next trial; return whether it needs worker processes."""
        assert self._tuner is not None
        if self._tuner.trial is self._trial:  # else the epoch in which it was chosen was left
            self._tuner.next(self._memory.allowed)
        return self._tuner.trial.kind == "process"

    async def _move(self) -> None:
        """Go to the next trial where there are worker processes, or some must start. Meanwhile chunks run as before.

        An epoch that ends meanwhile cancels this; the next epoch repeats it.
        """
        assert self._tuner is not None
        try:
            await self._memory.weigh(self._started.processes)
            if self._next_needs_processes():
                trial = self._tuner.trial
                self._started.prepare(trial, self._most)
                processes = self._started.processes
                assert processes is not None
                while processes.ready < trial.workers and processes.failure is None:  # noqa: ASYNC110  # see `_prove`
                    await anyio.sleep(_POLL_S)
                if processes.failure is not None:
                    self._tuner.without_processes(f"worker processes are not available ({processes.failure})")
            self._apply()
        finally:
            self._moving = False
            self._freed.set()

    def _apply(self) -> None:
        """Put the trial that was chosen into force."""
        assert self._tuner is not None
        trial = self._trial = self._tuner.trial
        self._started.prepare(trial, self._most)
        self._draining = self._active > 0
        if self.settled:
            self._started.keep(trial, self._most)
        self._freed.set()

    # -- for reports ---------------------------------------------------------------------------------------------------

    @property
    def restarts(self) -> int:
        """Return the number of worker processes that were replaced."""
        return 0 if self._started.processes is None else self._started.processes.restarts

    @property
    def pids(self) -> list[int]:
        """Return the process numbers of the workers that live now."""
        return [] if self._started.processes is None else self._started.processes.pids

    @property
    def queued(self) -> int:
        return sum(inner.queued for inner in self._started)

    def activity(self) -> object:
        return self._active, [inner.activity() for inner in self._started]

    async def workers_now(self) -> list[WorkerState]:
        return [state for inner in self._started for state in await inner.workers_now()]

    def close(self) -> None:
        self._started.close()
