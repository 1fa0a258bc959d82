"""Python stacks of worker processes: asked for from outside, and left behind by a crash.

`faulthandler` writes them in C, from a signal handler. So they come from a worker that is inside of an extension or
holds the interpreter's lock for ever, too, and nothing in the worker has to help.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import threading
import time

__all__ = ("CRASHES", "StackFile", "write_stacks")

_SIGNAL = getattr(signal, "SIGUSR1", None)
CRASHES = frozenset(
    -getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if hasattr(signal, name)
)
_PATIENCE_S = 0.3
_LOOK_S = 0.004
_MOST_BYTES = 1 << 16


def write_stacks(fd: int) -> None:
    """In a worker's main thread: write its stack to `fd` when it is asked, and when it crashes.

    Where the user has switched `faulthandler` on, it goes on writing crashes to standard error.
    """
    if _SIGNAL is not None:
        # Only the thread that gets the signal, which is the main one: to look at others while they run is not safe.
        faulthandler.register(_SIGNAL, file=fd, all_threads=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=False)


def _catches(pid: int, ready: bool) -> bool:
    """Whether a process has a handler for the signal: without one it would die of it."""
    assert _SIGNAL is not None
    try:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        ours = int(facts["PPid"]) == os.getpid()
        return ours and bool(int(facts["SigCgt"], 16) >> (_SIGNAL - 1) & 1)
    except (OSError, KeyError, ValueError):
        return ready and not os.path.exists("/proc/self/status")


class StackFile:
    """Memory without a name, which one worker after the other writes its stack to. From any thread.

    Attributes:
        fd: its descriptor, for the worker to inherit; -1 if there is none to be had.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closing = False
        try:
            if hasattr(os, "memfd_create"):
                self.fd = os.memfd_create("aioloader-stack", os.MFD_CLOEXEC)
            else:
                self.fd, path = tempfile.mkstemp(prefix="aioloader-stack-")
                os.unlink(path)
        except OSError:
            self.fd = -1

    def ask(self, pid: int, ready: bool) -> str | None:
        """The stack of a process that called `write_stacks`; None if it does not answer. Blocking, 0.3 s at most.

        Args:
            pid: a child of this process that was not waited for.
            ready: it said that it is ready.
        """
        with self._lock:
            if self.fd < 0 or _SIGNAL is None or not _catches(pid, ready):
                return None
            self._empty()
            try:
                os.kill(pid, _SIGNAL)
            except OSError:
                return None
            deadline = time.monotonic() + _PATIENCE_S
            size = 0
            # The end is not marked: it is over when nothing more comes.
            while time.monotonic() < deadline and not self._closing:
                time.sleep(_LOOK_S)
                now = os.fstat(self.fd).st_size
                if now and now == size:
                    break
                size = now
            text = self._text()
            self._empty()  # a crash is told apart
            return text

    def left(self) -> str | None:
        """What the worker wrote when it crashed, or None. Its end was waited for."""
        with self._lock:
            return self._text() if self.fd >= 0 else None

    def clear(self) -> None:
        """Make room for another worker."""
        with self._lock:
            if self.fd >= 0:
                self._empty()

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        self._closing = True
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1

    def _empty(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
            os.lseek(self.fd, 0, os.SEEK_SET)  # the worker's place too: they share it

    def _text(self) -> str | None:
        text = os.pread(self.fd, _MOST_BYTES, 0).decode("utf-8", "backslashreplace")
        lines = [line.rstrip() for line in text.splitlines()]
        return "\n".join(line for line in lines if line.startswith("  ")) or None
