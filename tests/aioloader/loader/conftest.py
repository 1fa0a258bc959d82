"""Fixtures of the loader's tests: code goes to worker processes by value, and only what hangs has a timeout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import cloudpickle
import pytest

from aioloader.executors.process.handle import ProcessHandle
from tests.aioloader.loader.samples import Hanging


@pytest.fixture(autouse=True, scope="module")
def sent_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send the functions of a test module to workers, because importing it with pytest takes each of them a while."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def only_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """Let the timeout of a sample pass only where the value's `hang` is called, or a process is marked.

    On a busy machine any sample may take longer than a short timeout.
    """
    hanging, patience = Hanging(tmp_path), ProcessHandle._patience

    def patience_if_hung(handle: ProcessHandle, current: int, place: int) -> float:
        assert handle.process is not None
        return patience(handle, current, place) if hanging.marked(handle.process.pid) else math.inf

    monkeypatch.setattr(ProcessHandle, "_patience", patience_if_hung)
    clock = SimpleNamespace(monotonic=lambda: 1000.0 * hanging.threads)
    monkeypatch.setattr("aioloader.executors.thread.time", clock)
    return hanging


class _Anyio:
    """The library, with another class of scopes."""

    def __init__(self, scope: Any) -> None:
        self.CancelScope = scope

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)


class CallScopes(list[anyio.CancelScope]):
    """Scopes of the calls of async transforms in their order, and the seconds that the calls were given at most."""

    longest_s = 0.0


@pytest.fixture
def call_scopes(monkeypatch: pytest.MonkeyPatch) -> CallScopes:
    """Return the scopes of the calls that follow. A call that begins has the last one; a test ends its time."""
    made = CallScopes()

    def make(*, deadline: float | None = None, **options: bool) -> anyio.CancelScope:
        scope = anyio.CancelScope(**options)
        if deadline is not None:
            made.append(scope)
            made.longest_s = max(made.longest_s, deadline - anyio.current_time())
        return scope

    monkeypatch.setattr("aioloader.pipeline.async_map.anyio", _Anyio(make))
    return made
