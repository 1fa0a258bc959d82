"""The caller's async code, cancelled as it expects it.

anyio cancels a task again at every await, until it has left the scope. What is written for asyncio knows a cancellation
that comes once, and awaits in its ``finally``: to close a connection, or to say goodbye. So under asyncio the first one
goes through, and a shield keeps off what would follow, for `GRACE_S` seconds. Under trio every cancellation is of the
other kind, and code written for trio knows it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

__all__ = ("GRACE_S", "GraceScope")

T = TypeVar("T")

GRACE_S = 0.5


class GraceScope:
    """A context in which coroutines of the caller's run. Cancelled, each may await for `GRACE_S` seconds more.

    Of asyncio's own `Task.cancel` every call reaches them, as always. For one task.
    """

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> GraceScope:
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return bool(self._scope.__exit__(kind, error, traceback))

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return await coroutine
        try:
            result: T = await _Steps(coroutine, self._cancelled)
            return result
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._unveil()

    def _cancelled(self) -> None:
        if self._timer is None and anyio.current_effective_deadline() == -math.inf:
            self._scope.shield = True
            self._timer = self._loop.call_later(GRACE_S, self._unveil)

    def _unveil(self) -> None:
        self._scope.shield = False


class _Steps:
    """A coroutine that is run step by step; `cancelled` is called before it is told of a cancellation."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], cancelled: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._cancelled = cancelled

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    if error is None:
                        awaited = self._coroutine.send(value)
                    else:
                        awaited = self._coroutine.throw(error)
                except StopIteration as end:
                    return end.value
                value = error = None
                try:
                    value = yield awaited
                except GeneratorExit:
                    self._coroutine.close()
                    raise
                except BaseException as raised:
                    error = raised
                    if isinstance(error, asyncio.CancelledError):
                        self._cancelled()
        finally:
            error = None  # breaks the cycle error -> traceback -> frame -> error
