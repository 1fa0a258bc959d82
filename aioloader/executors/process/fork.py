"""Processes that are forks of this one: they have its objects and modules, and start within milliseconds."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, NoReturn

from aioloader.executors.shared_memory import fork_without_batches
from aioloader.foundation.descriptors import sent_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.005
# Handlers of a script are for the script's process.
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR2") if hasattr(signal, name)]


class ForkedProcess:
    """Child process that calls a function and exits; it has those methods of `subprocess.Popen` that are used here.

    The child has one thread, an empty context, the null device as standard input, and a separate session. It exits
    with status 0 if the function returns, and 1 if it raises.

    Args:
        run: the function.

    Attributes:
        pid: number of the process.
        returncode: its exit status, negative for a signal; None until it is reaped.

    Raises:
        OSError: the system refuses a fork.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        with fork_without_batches(), _no_warning():
            self.pid = os.fork()
        if self.pid == 0:
            _become(run)

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        if self.returncode is None and self._lock.acquire(blocking=False):
            try:
                self._reap(os.WNOHANG)
            finally:
                self._lock.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit status. Blocking.

        Args:
            timeout: seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if timeout is not None and self.poll() is None:
            self._wait_for_end(timeout)
            if self.poll() is None:
                raise subprocess.TimeoutExpired("aioloader worker", timeout)
        with self._lock:
            if self.returncode is None:
                self._reap(0)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kill the process, if it was not reaped."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait_for_end(self, timeout: float) -> None:
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this system
            deadline = time.monotonic() + timeout
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            return
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(1000 * timeout)
        finally:
            os.close(fd)

    def _reap(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:  # somebody else has reaped it, so the status is not known
            self.returncode = 0
        else:
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def _no_warning() -> Iterator[None]:
    if sys.version_info < (3, 12):
        yield
        return
    # The child calls only what a worker calls, and nothing of the threads that are not in it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _become(run: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        gc.freeze()  # the objects of the parent are not this process's to finalize, and their pages stay shared
        os.setsid()
        signal.set_wakeup_fd(-1)  # of the parent's event loop
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        sent_descriptors.forget()
        _own_streams()
        contextvars.Context().run(run)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _own_streams() -> None:
    """Read from the null device, and write without what the parent has buffered and will write itself."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null > 2:
        os.close(null)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper or stream.closed:
            continue  # a notebook's, or a test's: it knows forks, or shows nothing
        with contextlib.suppress(OSError, ValueError):
            if stream.fileno() != fd:
                continue
            made = io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(fd, "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,  # as standard error: what ends a process comes without warning
                write_through=stream.write_through,
            )
            _parents.append(stream)  # its end would write what it has buffered
            setattr(sys, name, made)


_parents: list[object] = []
