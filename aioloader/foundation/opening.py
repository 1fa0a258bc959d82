"""Limits of code that opens a loader's dataset: how long it may wait for an answer, and whether it is still wanted.

Opening is blocking code in one thread. The limits travel in a context variable, because the code that waits for a
server is many calls below the loader, and some of it runs before there is any loader.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class Opening:
    """Opening of one loader.

    Args:
        timeout: most seconds that it may wait for one answer.

    Attributes:
        timeout: as above.
        cancelled: nobody waits for it any more.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.cancelled = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """End what it waits for. From any thread; may be called twice."""
        with self._lock:
            self.cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def ending(self, callback: Callable[[], object]) -> Iterator[None]:
        """Return a context in which a cancellation calls a function; at once if it has come before."""
        with self._lock:
            cancelled = self.cancelled
            if not cancelled:
                self._callbacks.append(callback)
        if cancelled:
            callback()
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._callbacks.remove(callback)


current_opening: ContextVar[Opening | None] = ContextVar("aioloader_opening", default=None)
"""The opening that the present code is part of, or None."""


def limited(timeout_s: float) -> float:
    """Return the seconds to wait for an answer: `timeout_s`, and no more than the present opening allows."""
    opening = current_opening.get()
    return timeout_s if opening is None else min(timeout_s, opening.timeout)


def in_this_opening(fn: Callable[..., T]) -> Callable[..., T]:
    """Return the function for other threads, where it is part of the same opening."""
    context = copy_context()
    return lambda *args: context.copy().run(fn, *args)
