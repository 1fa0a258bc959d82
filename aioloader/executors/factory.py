"""Executors by name, and those that callers made: each belongs to the loader or image service that opened it."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from aioloader.abc import Executor
from aioloader.executors.inline import InlineExecutor
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.executors.thread import ThreadExecutor
from aioloader.foundation.forks import check_fork

if TYPE_CHECKING:
    from aioloader.executors.process.executor import WorkerPool


KINDS = ("thread", "inline") if sys.platform == "win32" else ("thread", "process", "inline")
"""Executors from which "auto" chooses."""


def make_executor(
    given: str | Executor,
    workers: int,
    timeout: float,
    *,
    owner: object = None,
    pool: WorkerPool | None = None,
) -> Executor:
    """Return a new executor, or the caller's, which belongs to `owner` from now on.

    Args:
        given: "process", "fork", "thread" or "inline"; "auto": worker processes that are forks as long as no other
            thread runs; or the caller's executor of any class.
        workers: number of workers.
        timeout: seconds that a sample may take.
        owner: a loader or an image service.
        pool: idle processes, which are used before others are started.

    Raises:
        ValueError: the executor belongs to another one, or did; or Windows has no worker processes.
        ForkRefusedError: the workers cannot be forks.

    Warns:
        ForkWarning: other threads run while workers are to be forks.
    """
    if not isinstance(given, str):
        return claim(given, owner)
    if given == "inline":
        return InlineExecutor()
    if given == "thread":
        return ThreadExecutor(workers, timeout)
    return make_processes(given, workers, timeout, pool=pool)


def make_processes(
    given: str, workers: int, timeout: float, *, pool: WorkerPool | None = None
) -> ProcessExecutor:
    """Return a new executor of worker processes: "process", "fork" or "auto", see `make_executor`."""
    if sys.platform == "win32":
        raise ValueError(
            "worker processes need POSIX: pass executor='thread' or executor='inline' on Windows"
        )
    if given == "process":
        return ProcessExecutor(workers, timeout, pool=pool)
    if given == "fork":
        check_fork()
    return ProcessExecutor(workers, timeout, inherited=(), alone=given == "auto")


_owners: weakref.WeakKeyDictionary[Any, weakref.ref[object]] = weakref.WeakKeyDictionary()


def check_executor(executor: object) -> None:
    """Raise TypeError unless an object can be an executor."""
    if isinstance(executor, type) or not all(
        hasattr(executor, name) for name in ("open", "serving", "run", "close")
    ):
        raise TypeError(f"executor must be a name or an Executor, got {executor!r}")


def claim(executor: Any, owner: object) -> Executor:
    """Take note that an executor of any class belongs to `owner`, which will end it; return it as an `Executor`.

    Raises:
        ValueError: it belongs to another one, or did.
    """
    if _owners.setdefault(executor, weakref.ref(owner))() is not owner:
        raise ValueError(
            f"this {type(executor).__name__} belongs to another loader or image service, with which it ends: make one "
            "for each, or share the processes of an aioloader.executors.WorkerPool"
        )
    return executor if isinstance(executor, Executor) else ForeignExecutor(executor)


def _own(name: str) -> Any:
    """Return a property: an attribute of the caller's executor, or the default where it has none."""

    def find(self: ForeignExecutor) -> Any:
        return getattr(self.given if hasattr(self.given, name) else super(ForeignExecutor, self), name)

    return property(find)


class ForeignExecutor(Executor):
    """Executor of the caller's that is not derived from `Executor`.

    Args:
        given: has its methods as far as `close`, and any of the others.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        for name in ("open", "serving", "close", "activity", "workers_now"):
            if hasattr(given, name):
                setattr(self, name, getattr(given, name))

    def run(self, chunks: Any) -> Any:
        return self.given.run(chunks)

    @property
    def kind(self) -> Any:
        return self.given.kind if hasattr(self.given, "kind") else type(self.given).__name__

    workers = _own("workers")
    spills = _own("spills")
    maps_files = _own("maps_files")
    shares_memory = _own("shares_memory")
    ready = _own("ready")
    failure = _own("failure")
    restarts = _own("restarts")
    most = _own("most")
    tuning = _own("tuning")
    concurrency = _own("concurrency")
    queued = _own("queued")
