"""Python stacks of the threads and coroutines of this process, made without reading source files."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType


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
