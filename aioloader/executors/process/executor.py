"""Executor of supervised worker processes: a worker that dies is replaced, and the samples that it had run again.

The program is sent by value, so the caller's ``__main__`` is never imported.

`aioloader.executors.worker_table` assigns chunks to the workers, `aioloader.executors.process.handle` is the life of
one worker, `aioloader.executors.retry` decides which samples run again after a death.

A `WorkerPool` keeps idle worker processes, which go from one loader to the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioloader.errors import LoaderClosedError, ThreadStartError, WorkerError
from aioloader.executors.process.child import ChildProcess, end_all, sent_program
from aioloader.executors.process.handle import CLOSED_AT_START, ProcessHandle, SharedParts, stacks_of
from aioloader.executors.process.messages import CURRENT, PLACE, stage_names
from aioloader.executors.shared_memory import MAX_WORKERS, control_array
from aioloader.executors.transport import know_classes
from aioloader.executors.worker_table import CLOSE_S, SupervisedExecutor, WorkerTable
from aioloader.foundation.concurrency import deferred
from aioloader.foundation.foreign_generators import find_classes
from aioloader.foundation.forks import ForkGuard, is_alone
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from aioloader.abc import Program, SlabMemory
    from aioloader.executors.transport import SentObject
    from aioloader.foundation.types import WorkerState


class ProcessExecutor(SupervisedExecutor[ProcessHandle]):
    """Executor that runs chunks in worker processes.

    Args:
        workers: number of processes, 1 to 1024.
        timeout: seconds without progress on a sample after which its worker is ended.
        pool: idle processes that are taken before new ones are started, and where the processes go at the end.
        inherited: parts of the program, such as its dataset, that are not sent: the workers are forks of this process,
            and have them. Empty: the parts that the caller has made. None: the workers are new interpreters, and all
            is sent.
        alone: a worker is a fork only if this process `is_alone` when it is started, else a new interpreter. All is
            sent.

    Attributes:
        kind: "fork" if all workers are forks, else "process".
        maps_files: workers inherit descriptors, so that a program's `maps` work there.
        started: set when all workers have been started, or one cannot be.

    Raises:
        ValueError: `workers` is out of its range, or forks are to come from a pool.
    """

    maps_files = True

    def __init__(
        self,
        workers: int,
        timeout: float = 120.0,
        *,
        pool: WorkerPool | None = None,
        inherited: Sequence[object] | None = None,
        alone: bool = False,
    ) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers must be 1 to {MAX_WORKERS}, got {workers}")
        if pool is not None and inherited is not None:
            raise ValueError("the processes of a pool are not forks: leave pool or inherited out")
        self._inherited = inherited
        self._alone = alone
        self.started = threading.Event()
        self._pool = pool
        self._idle: list[ChildProcess] = []
        self._starting = threading.RLock()
        self._admin = Threads(1, "aioloader-admin")
        self._copies = Threads(1, "aioloader-copy")
        self._sent: SentObject | None = None
        self._table = WorkerTable(timeout)
        self._table.count = workers
        self._shared: SharedParts | None = None

    @property
    def workers(self) -> int:
        return self._table.count

    @property
    def kind(self) -> str:
        return "process" if self._inherited is None or self._alone else "fork"

    def prepare(self) -> None:
        if self._pool is None and self.kind == "process":
            with contextlib.suppress(ThreadStartError):
                start_thread(self._start_idle, "aioloader-prepare")

    def _start_idle(self) -> None:
        """Start processes until the program is known, which others are started with."""
        with contextlib.suppress(WorkerError):  # it comes again
            for slot in range(self._table.count):
                with self._starting:
                    if self._table.closed or self._shared is not None:
                        return
                    child = ChildProcess()
                    child.start(slot)
                    self._idle.append(child)

    def open(self, program: Program, memory: SlabMemory) -> None:
        self._program = program
        if self.kind == "fork":
            self._inherited = self._inherited or _parts_of_caller(program)
            know_classes(find_classes(self._inherited))
        self._table.raises = program.raises
        self._shared = SharedParts(
            self._table,
            memory,
            control_array(memory.memory),
            stage_names(program),
            self._start,
            self._admin,
            self._copies,
        )
        self._add_places()

    def _add_places(self) -> None:
        assert self._shared is not None
        places = range(len(self._table.handles), self._table.count)
        self._table.handles += [ProcessHandle(slot, self._shared) for slot in places]

    @property
    def pids(self) -> list[int]:
        """Return the process numbers of the workers that live now."""
        return [handle.process.pid for handle in self._table.handles if handle.process is not None]

    def resize(self, workers: int) -> None:
        """Change the number of workers. Surplus workers leave as soon as they have no chunk. In the loop's thread."""
        self._table.count = workers
        self._add_places()
        for handle in self._table.handles[workers:]:
            if not handle.running:
                handle.dismiss()
        self._table.assign()
        self._table.changed.set()

    @property
    def spills(self) -> bool:
        """Return True: results go through shared memory."""
        return True

    @property
    def ready(self) -> int:
        """Return the number of workers that have loaded their program."""
        return self._table.ready

    async def _supervise(self) -> None:
        table = self._table
        async with anyio.create_task_group() as tasks:
            supervised: set[int] = set()

            async def supervise(handle: ProcessHandle) -> None:
                await handle.live()
                supervised.discard(handle.slot)

            while True:
                for handle in table.handles[: table.count]:
                    if handle.slot not in supervised:
                        supervised.add(handle.slot)
                        tasks.start_soon(deferred(supervise), handle)
                await table.changed.wait()

    def _start(self, handle: ProcessHandle) -> None:
        try:
            self._start_process(handle)
        except BaseException:
            self.started.set()
            raise
        if all(each.process is not None for each in self._table.handles[: self._table.count]):
            self.started.set()

    def _start_process(self, handle: ProcessHandle) -> None:
        shared = self._shared
        assert shared is not None
        if self._sent is None:
            self._sent = sent_program(self._program, self._inherited)
        with self._starting:
            if self._table.closed:
                self._sent.close()
                raise LoaderClosedError(CLOSED_AT_START)
            shared.control[handle.slot] = 0
            maps = self._program.maps
            fds = () if maps is None else maps.fds
            inherited = self._inherited if not self._alone or is_alone() else None
            take = self._take_idle if self._pool is None else self._pool.take
            handle.start(self._sent, shared.memory, fds, take, inherited)
            if self._table.closed:  # by the garbage collector, in this thread
                handle.reap()

    def _take_idle(self) -> ChildProcess | None:
        return self._idle.pop() if self._idle else None

    # -- for reports of a stall --------------------------------------------------------------------------------------

    def activity(self) -> object:
        handles, shared = self._table.handles, self._shared
        words = b"" if shared is None else shared.control[: len(handles), [CURRENT, PLACE]].tobytes()
        return words, self._table.restarts, [handle.ready for handle in handles]

    async def workers_now(self) -> list[WorkerState]:
        handles = self._table.handles
        states = [handle.worker_state() for handle in handles]
        busy = [place for place, state in enumerate(states) if state.doing != "waiting"]
        stacks = await stacks_of([handles[place] for place in busy])
        for place, stack in zip(busy, stacks, strict=True):
            states[place] = replace(states[place], stack=stack)
        return states

    def close(self) -> None:
        table = self._table
        with self._starting:  # a worker that is being started is there afterwards, and ended like the others
            if table.closed:
                return
            table.closed = True
            if self._sent is not None:
                self._sent.close()
        if self._pool is not None and not table.users:
            self._return_processes(self._pool)
        for handle in table.handles:
            # One that still starts has nothing to finish, and its imports would keep the others from leaving.
            if not handle.ready:
                handle.child.kill()
        for child in self._idle:
            child.kill()
        end_all([*(handle.child for handle in table.handles), *self._idle], CLOSE_S)
        self._admin.close()
        self._copies.close()
        if self._shared is not None:
            self._shared.control = self._shared.control.copy()  # releases the memory

    def _return_processes(self, pool: WorkerPool) -> None:
        """Return the processes that are idle, or will be soon, to the pool; the others are ended."""
        for handle in self._table.handles:
            for attempt in handle.running.values():
                handle.cancel(attempt)
        # One that could not load its program has loaded half of it.
        whole = [handle for handle in self._table.handles if handle.ready or self._table.failure is None]
        leaving = [handle for handle in whole if handle.retire()]
        deadline = time.monotonic() + CLOSE_S
        for handle in leaving:
            child = handle.detach(deadline)
            if child is not None:
                pool.put(child)


def _parts_of_caller(program: Program) -> list[object]:
    """Return the parts of a program that need not be picklable where workers are forks."""
    stages = [*program.stages, *(stage for segment in program.later for stage in segment)]
    parts = [program.dataset, program.batchify, *(stage for stage in stages if not stage.native)]
    return [part for part in parts if part is not None]


class WorkerPool:
    """Worker processes that several loaders use one after the other: a new loader sends them its program.

    ::

        with aioloader.executors.WorkerPool(2) as pool:
            for fold in range(5):
                with aioloader.DataLoader(part(fold), 64, executor=pool) as loader:
                    ...

    Starting a process takes a second or more if other programs keep the machine busy, most of it for imports; a process
    of the pool needs a few milliseconds. When a loader is closed, its workers go back to the pool. A loader that finds
    too few starts more, so loaders may also be open at the same time: each has workers for itself. Batches do not
    depend on it.

    The processes are new interpreters: forks would keep the memory of the loaders that were open when they started.

    What your code leaves in a worker stays there, as in a thread pool: modules are not imported again when they change,
    and global variables keep their values. A worker that died or hung, or that could not load its program, does not go
    back.

    Args:
        workers: idle processes that are kept, and workers of a loader without `num_workers`.

    Raises:
        ValueError: `workers` is not between 1 and 1024.
    """

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers must be 1 to {MAX_WORKERS}, got {workers}")
        self.workers = workers
        self._idle: list[ChildProcess] = []
        self._lock = threading.Lock()
        self._guard = ForkGuard()
        self._finalizer = weakref.finalize(self, _end, self._idle, self._guard)

    @property
    def closed(self) -> bool:
        """Return True if the pool was closed."""
        return not self._finalizer.alive

    @property
    def idle(self) -> int:
        """Return the number of idle processes."""
        return len(self._idle)

    def take(self) -> ChildProcess | None:
        """Return a process of the pool, which belongs to the caller now; None if there is none."""
        if self._guard.forked:  # a fork of the pool's process: they are not its children
            return None
        with self._lock:
            return self._idle.pop() if self._idle else None

    def put(self, child: ChildProcess) -> None:
        """Take a process that is idle, or retires; it is ended if the pool has enough, or is closed."""
        with self._lock:
            kept = not self.closed and not self._guard.forked and len(self._idle) < self.workers
            if kept and child.retiring:
                self._idle.insert(0, child)  # those that can begin at once are taken first
            elif kept:
                self._idle.append(child)
        if not kept:
            end_all([child], CLOSE_S)

    def close(self) -> None:
        """End the idle processes. Those of open loaders end with them. May be called twice."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _end(idle: list[ChildProcess], guard: ForkGuard) -> None:
    if not guard.forked:
        children = idle[:]
        idle.clear()
        end_all(children, CLOSE_S)
