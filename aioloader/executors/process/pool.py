"""Idle worker processes that go from one loader to the next."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from aioloader.executors.process.child import end_all
from aioloader.executors.shared_memory import MAX_WORKERS
from aioloader.executors.worker_table import CLOSE_S

if TYPE_CHECKING:
    from typing import Self

    from aioloader.executors.process.child import ChildProcess


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
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._idle, self._pid)

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
        if self._pid != os.getpid():  # a fork of the pool's process: they are not its children
            return None
        with self._lock:
            return self._idle.pop() if self._idle else None

    def put(self, child: ChildProcess) -> None:
        """Take a process that is idle, or retires; it is ended if the pool has enough, or is closed."""
        with self._lock:
            kept = not self.closed and self._pid == os.getpid() and len(self._idle) < self.workers
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


def _end(idle: list[ChildProcess], pid: int) -> None:
    if pid == os.getpid():
        children = idle[:]
        idle.clear()
        end_all(children, CLOSE_S)
