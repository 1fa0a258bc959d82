"""Python stacks: warnings that name the line of the package's caller, and the stacks of threads and coroutines.

No source file is read for them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str | Warning, category: type[Warning]) -> None:
    """Issue a warning that names the nearest line of code outside of this package.

    In a thread in which only code of the package and the standard library runs, it names the latter. In a context of
    `DeferredWarnings` it is kept for the thread that waits.
    """
    deferred = _deferred.get()
    if deferred is not None:
        deferred.append((message, category))
        return
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


class DeferredWarnings:
    """Warnings of code in another thread, kept for the thread that waits for it: its stack has the caller."""

    def __init__(self) -> None:
        self._warnings: list[tuple[str | Warning, type[Warning]]] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Return a context in which the warnings of `warn_caller` are kept."""
        token = _deferred.set(self._warnings)
        try:
            yield
        finally:
            _deferred.reset(token)

    def issue(self) -> None:
        """Issue the warnings that were kept, once."""
        while self._warnings:
            warn_caller(*self._warnings.pop(0))


_deferred: ContextVar[list[tuple[str | Warning, type[Warning]]] | None] = ContextVar(
    "aioloader_warnings", default=None
)


def stack_of(thread: int) -> str | None:
    """Return the Python stack of a thread, innermost call first, one line each; None if it has ended.

    Args:
        thread: its identifier.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return None
    lines = []
    while frame is not None:
        lines.append(_line(frame))
        frame = frame.f_back
    return "\n".join(lines)


def stack_of_coroutine(coroutine: Any) -> str | None:
    """Return the stack of a coroutine that waits, innermost call first; None if it is not known."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            lines.append(_line(frame))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "\n".join(reversed(lines)) or None


def _line(frame: FrameType) -> str:
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}'


def stacks_of(prefix: str) -> dict[str, str]:
    """Return the stacks of all threads whose names begin with `prefix`, by name."""
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith(prefix) and thread.ident is not None:
            stack = stack_of(thread.ident)
            if stack is not None:
                found[thread.name] = stack
    return found
