"""Thread that notices a sampler or a source that holds the event loop.

Nothing in the loop could report it: the watchdog waits for the same loop.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from aioloader.errors import ThreadStartError
from aioloader.foundation.stacks import stack_of
from aioloader.foundation.thread_start import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType

_log = logging.getLogger("aioloader")
_POLL_S = 1.0


class HeldLoopWatch:
    """Observer of the thread of an event loop. It logs a warning when one call stays there for too long.

    The thread ends with the ``with`` block.

    Args:
        name: what is called, for the message: "the sampler Permutation".
        call: code of the function that calls it, in which the thread is while the loop is held.
        count: returns the number of the call that is under way, or was last.
        after_s: seconds after which it reports, and again at growing intervals.
    """

    def __init__(self, name: str, call: CodeType, count: Callable[[], int], after_s: float) -> None:
        self._name = name
        self._call = call
        self._count = count
        self._after_s = after_s
        self._loop = threading.get_ident()
        self._ended = threading.Event()

    def __enter__(self) -> None:
        with suppress(ThreadStartError):  # without the watch the epoch can be run all the same
            start_thread(self._watch, "aioloader-watch")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        interval = min(_POLL_S, self._after_s / 4)
        seen: int | None = None
        held_s, due_s = 0.0, self._after_s
        while not self._ended.wait(interval):
            count = self._count() if self._is_held() else None
            if count is None or count != seen:
                seen, held_s, due_s = count, 0.0, self._after_s
                continue
            held_s += interval
            if held_s >= due_s:
                due_s = 2 * held_s
                stack = stack_of(self._loop) or ""
                _log.warning(
                    "%s has held the event loop for %.1f s, and nothing else in it can run: let it wait in a thread, "
                    "or make it an asynchronous source of samples; it is at\n%s",
                    self._name,
                    held_s,
                    stack,
                    extra={"seconds": held_s, "stack": stack},
                )

    def _is_held(self) -> bool:
        frame: FrameType | None = sys._current_frames().get(self._loop)
        while frame is not None:
            if frame.f_code is self._call:
                return True
            frame = frame.f_back
        return False
