"""Starting a daemon thread, with a named error where the system refuses it, and giving way to others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from aioloader.errors import ThreadStartError

if TYPE_CHECKING:
    from collections.abc import Callable


def start_thread(target: Callable[..., object], name: str, *args: object) -> threading.Thread:
    """Start a daemon thread that calls ``target(*args)``, and return it.

    Raises:
        ThreadStartError: the system refuses the thread.
    """
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    start(thread)
    return thread


def start(thread: threading.Thread) -> None:
    """Start a thread that the caller made, who may have to end it when an interruption comes before this returns.

    Raises:
        ThreadStartError: the system refuses the thread.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise ThreadStartError(thread.name) from error


def let_threads_run() -> None:
    """Let other threads run, an event loop's among them: the interpreter keeps one for 5 ms unless it waits."""
    time.sleep(5e-5)
