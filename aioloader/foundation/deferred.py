"""Coroutines that are made when they are first run.

A loop that ends cancels its tasks, and asyncio never runs the coroutine of a task that had not begun. An ordinary
coroutine then warns that it "was never awaited", although nothing is wrong: the caller has left, and the loop too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ("Deferred", "deferred")


class Deferred(Coroutine[Any, Any, None]):
    """Stands for ``fn(*args)`` and makes it at the first step."""

    def __init__(self, fn: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
        self._fn = fn
        self._args = args
        self._made: Coroutine[Any, Any, None] | None = None
        self.__name__ = getattr(fn, "__name__", "late")
        self.__qualname__ = getattr(fn, "__qualname__", "late")

    def _coroutine(self) -> Coroutine[Any, Any, None]:
        if self._made is None:
            self._made = self._fn(*self._args)
        return self._made

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        if self._made is None:
            raise error
        return self._made.throw(error, *rest)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def deferred(fn: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Deferred]:
    """An async function whose coroutines are made when they are first run."""

    def make(*args: Any) -> Deferred:
        return Deferred(fn, args)

    make.__name__ = getattr(fn, "__name__", "late")
    make.__qualname__ = getattr(fn, "__qualname__", "late")
    return make
