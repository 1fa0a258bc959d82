"""Executors by name, for loaders and image services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.executors.inline import InlineExecutor
from aioloader.executors.owners import claim
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.executors.thread import ThreadExecutor
from aioloader.foundation.forks import check_fork

if TYPE_CHECKING:
    from aioloader.abc import Executor
    from aioloader.executors.process.executor import WorkerPool


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
        ValueError: the executor belongs to another one, or did.
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
    if given == "process":
        return ProcessExecutor(workers, timeout, pool=pool)
    if given == "fork":
        check_fork()
    return ProcessExecutor(workers, timeout, inherited=(), alone=given == "auto")
