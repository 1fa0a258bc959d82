"""Where the threads of this process stand. Reads no source files, so it may be used in an event loop."""

from __future__ import annotations

import sys
import threading

__all__ = ("stack_of", "stacks_of")


def stack_of(thread: int) -> str | None:
    """The Python stack of a thread, innermost call first, one line each; None if it has ended.

    Args:
        thread: its identifier.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return None
    lines = []
    while frame is not None:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        frame = frame.f_back
    return "\n".join(lines)


def stacks_of(prefix: str) -> dict[str, str]:
    """The stacks of all threads whose names begin with `prefix`, by name."""
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith(prefix) and thread.ident is not None:
            stack = stack_of(thread.ident)
            if stack is not None:
                found[thread.name] = stack
    return found
