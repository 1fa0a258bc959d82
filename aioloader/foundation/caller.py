"""Warnings that name the line of code of the package's caller, from any depth inside the package."""

from __future__ import annotations

import contextlib
import sys
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
