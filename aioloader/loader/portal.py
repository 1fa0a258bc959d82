"""Thread with an event loop for blocking callers: one for each blocking loader or image service."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.foundation.concurrency import Notification, Notify, deferred, loop_notifier
from aioloader.foundation.thread_start import start

if TYPE_CHECKING:
    from collections.abc import Callable

_END_S = 1.0


class Portal:
    """A daemon thread with an event loop, which lives as long as its owner.

    It is a daemon so that an interpreter that exits with the owner open does not wait for it. It is made first and
    opened when the owner has it, who can then stop it however far an interruption lets the opening come.
    """

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._waiting: deque[tuple[Callable[[], Any], contextvars.Context]] = deque()
        self._more = Notification()
        self._notify: Notify | None = None
        self._scope: anyio.CancelScope | None = None
        self._error: BaseException | None = None
        self._stopped = False
        self.thread = threading.Thread(target=self._run, name="aioloader-portal", daemon=True)

    def open(self) -> None:
        """Start the thread and wait for its loop.

        Raises:
            ThreadStartError, OSError: the system refuses the thread or the loop.
        """
        try:
            start(self.thread)
            self._ready.wait()
        except BaseException:
            self.stop()
            raise
        if self._error is not None:  # without descriptors there is no loop
            try:
                raise self._error
            finally:
                self._error = None

    def _run(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as error:
            self._error = error
            if self._ready.is_set():
                raise
        finally:
            self._ready.set()

    async def _main(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            self._notify = loop_notifier()
            self._ready.set()
            if self._stopped:
                return
            while True:
                while self._waiting:
                    task, callers = self._waiting.popleft()
                    _ = _context_here(callers).run(tasks.start_soon, deferred(task))
                await self._more.wait()

    def start(self, task: Callable[[], Any]) -> None:
        """Run an async function as a task of the portal, with the caller's context variables. It must not raise."""
        assert self._notify is not None
        self._waiting.append((task, contextvars.copy_context()))
        self._notify(self._more.set)

    def notify(self, fn: Callable[[], object]) -> None:
        """Call a function in the portal's thread, soon."""
        assert self._notify is not None
        self._notify(fn)

    def stop(self) -> None:
        """Cancel all tasks and wait for the thread's end, a second at most. Also if it was not opened, or half."""
        self._stopped = True
        if self._notify is not None and self._scope is not None:
            self._notify(self._scope.cancel)
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(_END_S)


def _context_here(callers: contextvars.Context) -> contextvars.Context:
    """Return the context variables of another thread, except those that identify the event loop of this one."""
    context = contextvars.copy_context()
    for variable, value in callers.items():
        if variable not in context:
            context.run(variable.set, value)
    return context
