"""Cancellation around async code of the caller: whose it is, and time for the code to end.

anyio cancels a task again at every await until it has left the scope. Code written for asyncio expects one
cancellation, and awaits in its ``finally``, for example to close a connection. So under asyncio the first cancellation
goes through, and a shield keeps off those that would follow, for `GRACE_S` seconds. Under trio every cancellation is of
the other kind, and code written for trio expects it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

T = TypeVar("T")

GRACE_S = 0.5


def is_ours(error: BaseException, *, shielded: bool = False) -> bool:
    """Return True if an exception ends the epoch or the program; False if the caller's code has failed.

    A cancellation of something that the caller's code awaited looks the same to it. Call it where the exception was
    caught.

    Args:
        error: the exception that the caller's code raised.
        shielded: only its cancel scope ends this task: asyncio's own cancellation comes from the caller's code, or
            reaches the tasks around this one too.
    """
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return True
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup((cancelled, KeyboardInterrupt, GeneratorExit)) is not None
    if not isinstance(error, cancelled):
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # trio: only trio itself raises its Cancelled
    if task is None or not task.cancelling():
        return False
    if shielded:
        task.uncancel()
    return not shielded


class GraceScope:
    """Context in which coroutines of the caller run. When cancelled, each may await for `GRACE_S` seconds more.

    Every call of asyncio's own `Task.cancel` reaches them, as always. For one task.
    """

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> GraceScope:
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool:
        return bool(self._scope.__exit__(*error))

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
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
                self._end_shield()

    def _cancelled(self) -> None:
        if self._timer is None and anyio.current_effective_deadline() == -math.inf:
            self._scope.shield = True
            self._timer = self._loop.call_later(GRACE_S, self._end_shield)

    def _end_shield(self) -> None:
        self._scope.shield = False


class _Steps:
    """A coroutine that runs step by step; `cancelled` is called before a cancellation is thrown into it."""

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
