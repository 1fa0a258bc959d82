"""Python stacks of worker processes: told when they are asked for, and left behind by a crash.

A worker's listening thread tells where its main thread stands. That needs the interpreter's lock, which C code may hold
for ever; then a signal is sent, and `faulthandler` answers in C. Not before: a signal ends system calls that wait, and
asking should change nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import threading
import time

from aioloader.foundation.descriptors import above_streams
from aioloader.foundation.stacks import stack_of

__all__ = ("CRASHES", "StackFile", "answer_signals", "tell_stack")

_SIGNAL = getattr(signal, "SIGUSR1", None)
CRASHES = frozenset(
    -getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if hasattr(signal, name)
)
_PATIENCE_S = 0.15
_LOOK_S = 0.004
_MOST_BYTES = 1 << 16


# -- in the worker -----------------------------------------------------------------------------------------------------


def answer_signals(fd: int) -> None:
    """From the main thread: write its stack to `fd` at a signal, and when the process crashes.

    Where the user has switched `faulthandler` on, it goes on writing crashes to standard error.
    """
    if _SIGNAL is not None:
        # Only the thread that gets the signal, which is the main one: to look at others while they run is not safe.
        faulthandler.register(_SIGNAL, file=fd, all_threads=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=False)


def tell_stack(fd: int, token: int) -> None:
    """From any thread: write the stack of the main thread to `fd`, under a heading that names the question."""
    main = threading.main_thread().ident
    stack = None if main is None else stack_of(main)
    with contextlib.suppress(OSError):
        os.write(fd, f"{_heading(token)}{stack or ''}\n".encode("utf-8", "backslashreplace")[:_MOST_BYTES])


def _heading(token: int) -> str:
    return f"stack {token}:\n"


# -- in the core -------------------------------------------------------------------------------------------------------


def _catches(pid: int) -> bool:
    """Whether a child has a handler for the signal: without one it would die of it. False where that is not known."""
    assert _SIGNAL is not None
    try:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        ours = int(facts["PPid"]) == os.getpid()
        return ours and bool(int(facts["SigCgt"], 16) >> (_SIGNAL - 1) & 1)
    except (OSError, KeyError, ValueError):
        return False


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
                fd = os.memfd_create("aioloader-stack", os.MFD_CLOEXEC)
            else:
                fd, path = tempfile.mkstemp(prefix="aioloader-stack-")
                os.unlink(path)
            self.fd = above_streams(fd)
        except OSError:
            self.fd = -1

    def wait(self, pid: int, token: int) -> str | None:
        """The stack of a worker that was asked for it; None if it does not answer. Blocking, 0.3 s at most.

        Args:
            pid: a child of this process that was not waited for.
            token: what it was asked with; see `tell_stack`.
        """
        with self._lock:
            if self.fd < 0:
                return None
            stack = self._answer(token) or self._answer_to_signal(pid)
            self._empty()  # a crash is told apart
            return stack

    def _answer(self, token: int) -> str | None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not self._closing:
            _, found, stack = self._read().partition(_heading(token))
            if found:
                return _calls(stack)
            time.sleep(_LOOK_S)
        return None

    def _answer_to_signal(self, pid: int) -> str | None:
        if _SIGNAL is None or not _catches(pid):
            return None
        before = len(self._read())
        try:
            os.kill(pid, _SIGNAL)
        except OSError:
            return None
        deadline = time.monotonic() + _PATIENCE_S
        text = ""
        # The end is not marked: it is over when nothing more comes.
        while time.monotonic() < deadline and not self._closing:
            time.sleep(_LOOK_S)
            now = self._read()[before:]
            if now and now == text:
                break
            text = now
        return _calls(text)

    def left(self) -> str | None:
        """What the worker wrote when it crashed, or None. Its end was waited for."""
        with self._lock:
            return _calls(self._read()) if self.fd >= 0 else None

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

    def _read(self) -> str:
        return os.pread(self.fd, _MOST_BYTES, 0).decode("utf-8", "backslashreplace")


def _calls(text: str) -> str | None:
    """The lines of a stack, without headings."""
    lines = [line.rstrip() for line in text.splitlines() if line.startswith("  ")]
    return "\n".join(lines) or None
