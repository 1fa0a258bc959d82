"""Fixtures of the tests of aioloader: worker processes that go from test to test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from aioloader.executors import ProcessExecutor, WorkerPool
from tests.executors import OF_FORKS


def _surroundings() -> tuple[Any, ...]:
    """Return what a new process takes over from this one, without the folder for copies of each test."""
    variables = {name: value for name, value in os.environ.items() if name != "AIOLOADER_CACHE_DIR"}
    variables.pop("PYTEST_CURRENT_TEST", None)
    return os.getcwd(), sys.path.copy(), variables


FORK = pytest.param("fork", marks=[pytest.mark.slow, OF_FORKS])


@pytest.fixture(params=["inline", "thread", "process", FORK])
def executor(request: pytest.FixtureRequest) -> str:
    """Return the name of an executor, each in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def _workers() -> Iterator[WorkerPool]:
    with WorkerPool(3) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _shared_workers(
    request: pytest.FixtureRequest, _workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let process executors take workers that an earlier test has left, because each start costs a second of CPU time.

    A test has new workers if it is marked with `own_workers`, watches what is left behind or what is written to its
    streams, or has changed the environment, the folder or the path, which workers take over when they start.
    """
    if request.node.get_closest_marker("own_workers") or {"leftovers", "capfd"} & {*request.fixturenames}:
        return
    before, make = _surroundings(), ProcessExecutor.__init__

    def init(
        self: ProcessExecutor, *args: Any, pool: Any = None, inherited: Any = None, **options: Any
    ) -> None:
        if pool is None and inherited is None and _surroundings() == before:
            pool = _workers
        make(self, *args, pool=pool, inherited=inherited, **options)

    monkeypatch.setattr(ProcessExecutor, "__init__", init)
