"""Tests of a system that refuses a thread, a process or a descriptor: an error with a name, and nothing is left."""

from __future__ import annotations

import itertools
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, SimpleDataset
from aioloader.errors import LoaderError, ThreadStartError
from aioloader.foundation.threads import Threads
from tests.aioloader.loader.interrupted_program import count, settled
from tests.aioloader.loader.programs import run_program
from tests.executors import pool

pytestmark = pytest.mark.own_workers

EXECUTORS = ["inline", "thread", "process"]
STARTS: dict[str, tuple[Any, str, Callable[[], Exception]]] = {
    "thread": (threading.Thread, "start", lambda: RuntimeError("can't start new thread")),
    "memfd": (os, "memfd_create", lambda: OSError(24, "Too many open files")),
    "socketpair": (socket, "socketpair", lambda: OSError(24, "Too many open files")),
    "pipe": (os, "pipe", lambda: OSError(24, "Too many open files")),
    "epoll": (select, "epoll", lambda: OSError(24, "Too many open files")),
    "process": (
        subprocess.Popen,
        "__init__",
        lambda: BlockingIOError(11, "Resource temporarily unavailable"),
    ),
    "pidfd": (os, "pidfd_open", lambda: OSError(24, "Too many open files")),
}
STARTS = {name: start for name, start in STARTS.items() if hasattr(start[0], start[1])}
TIMEOUT_S = 1000.0  # longer than a test may take: whoever waits for it fails


def twice(x: int) -> np.float32:
    return np.float32(2 * x)


DATASET = SimpleDataset(list(range(12))).transform(twice)


@contextmanager
def refused(kind: str, turn: int) -> Iterator[list[int]]:
    """Refuse one start, the one with number `turn`; the list has its number once it was refused."""
    owner, name, error = STARTS[kind]
    real = getattr(owner, name)
    turns = itertools.count()
    fired: list[int] = []

    def start(*args: Any, **kwargs: Any) -> Any:
        # A loop of asyncio that cannot be made keeps its own descriptors.
        if not sys._getframe(1).f_globals["__name__"].startswith("asyncio.") and next(turns) == turn:
            fired.append(turn)
            raise error()
        return real(*args, **kwargs)

    with mock.patch.object(owner, name, start):
        yield fired


def options(executor: str) -> dict[str, Any]:
    return {"batch_size": 4, "timeout": TIMEOUT_S, **pool(executor, 1 if executor == "process" else 2)}


def blocking(executor: str) -> int:
    with DataLoader(DATASET, **options(executor)) as loader:
        return sum(len(batch) for batch in loader)


def awaited(executor: str) -> int:
    async def main() -> int:
        async with AsyncDataLoader(DATASET, **options(executor)) as loader:
            return sum([len(batch) async for batch in loader])

    return anyio.run(main)


def check(run: Callable[[str], int], executor: str, kind: str, turn: int) -> bool:
    """Refuse one start in a pass; return whether there was such a start."""
    before = count()
    with refused(kind, turn) as fired:
        try:
            assert run(executor) == 12
        except (LoaderError, OSError) as error:
            assert str(error)
            assert isinstance(error, ThreadStartError) == (kind == "thread")
    assert settled(before) == {}
    return bool(fired)


@pytest.mark.parametrize(
    ("run", "executor", "kinds"),
    [
        *((run, executor, [*STARTS]) for run in (blocking, awaited) for executor in ("inline", "thread")),
        # A pass with processes takes a second, and there are several of them.
        (blocking, "process", ["process"]),
        pytest.param(blocking, "process", [*{*STARTS} - {"process"}], marks=pytest.mark.slow),
        pytest.param(awaited, "process", [*STARTS], marks=pytest.mark.slow),
    ],
)
def test_each_refused_start_ends_in_a_result_or_a_named_error(
    run: Callable[[str], int], executor: str, kinds: list[str]
) -> None:
    run(executor)  # what a process starts only once
    for kind in kinds:
        turn = 0
        while check(run, executor, kind, turn):
            turn += 1
        assert turn or kind != "memfd" or executor != "process"
    assert run(executor) == 12


def test_a_loader_can_be_used_after_a_refused_thread(executor: str) -> None:
    with DataLoader(DATASET, **options(executor)) as loader:
        with refused("thread", 0), pytest.raises(ThreadStartError, match="refused the thread aioloader-"):
            list(loader) if executor != "inline" else loader._open_portal()
        assert sum(len(batch) for batch in loader) == 12


async def test_threads_that_are_there_do_the_work_of_one_that_is_refused() -> None:
    threads = Threads(4, "worker")
    await threads.run(int)
    waiting = threading.Event()
    found = []

    async def run(work: Callable[[], object]) -> None:
        found.append(await threads.run(work))

    with refused("thread", 0) as fired:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, waiting.wait)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(run, int)
            await anyio.wait_all_tasks_blocked()
            assert fired
            waiting.set()
    assert sorted(found) == [False, True]
    threads.close()


UNPRIVILEGED = """
import os, resource
from aioloader.errors import LoaderError
from tests.aioloader.loader.interrupted_program import count, settled
from tests.aioloader.loader.test_refused_starts import awaited, blocking

ways = [(run, executor) for run in (blocking, awaited) for executor in ("inline", "thread")]
for run, executor in ways:  # reads all modules, which the other user may not be allowed to
    run(executor)
os.setgid(65534)
os.setuid(65534)
before = count()
outcomes = set()
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
for run, executor in ways:
    for spare in range(8):
        resource.setrlimit(resource.RLIMIT_NPROC, (1 + spare, hard))
        try:
            outcomes.add(run(executor))
        except LoaderError as error:
            outcomes.add(type(error).__name__)
        assert settled(before) == {}, (run, executor, spare)
print(sorted(outcomes, key=str))
"""


@pytest.mark.skipif(
    not hasattr(os, "setuid") or os.getuid() != 0, reason="it becomes another user, to whom limits apply"
)
def test_a_limit_of_processes_is_named() -> None:
    done = run_program(
        UNPRIVILEGED, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    assert (done.returncode, done.stdout) == (0, "[12, 'ThreadStartError']\n"), done.stderr
