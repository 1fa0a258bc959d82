"""Python stacks of worker processes: written at a request of the core, and by a crash.

A worker's listening thread writes the stack of its main thread. That needs the interpreter's lock, which C code may
hold for ever; then the core sends a signal, and `faulthandler` writes the stack in C. Not before: a signal interrupts
system calls that wait, and a request for a stack should change nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from aioloader.foundation.descriptors import anonymous_file
from aioloader.foundation.stacks import stack_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNAL = getattr(signal, "SIGUSR1", None)
CRASHES = frozenset(
    -getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if hasattr(signal, name)
)
_PATIENCE_S = 0.15
# Nothing but a busy machine keeps a signal from being answered, and a worker that has no CPU time is late.
_SIGNAL_PATIENCE_S = 1.5
_SETTLED_S = 0.02
_LOOK_S = 0.004
_MOST_BYTES = 1 << 16


# -- in the worker -----------------------------------------------------------------------------------------------------


def answer_signals(fd: int) -> None:
    """Write the stack of the main thread, which calls this, to `fd` at a signal and when the process crashes.

    If the user has enabled `faulthandler`, crashes are still written to standard error.
    """
    if _SIGNAL is not None:
        # Only the thread that receives the signal, which is the main one: reading others while they run is not safe.
        faulthandler.register(_SIGNAL, file=fd, all_threads=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=False)


def write_stack(fd: int, token: int) -> None:
    """Write the stack of the main thread to `fd`, under a heading with the number of the request. From any thread."""
    main = threading.main_thread().ident
    stack = None if main is None else stack_of(main)
    with contextlib.suppress(OSError):
        os.write(fd, f"{_heading(token)}{stack or ''}\n".encode("utf-8", "backslashreplace")[:_MOST_BYTES])


def _heading(token: int) -> str:
    return f"stack {token}:\n"


# -- in the core ------------------------------------------------------------------------------------------------------


def _catches(pid: int) -> bool:
    """Return whether a child handles the signal, of which it would die otherwise; False where that is not known."""
    assert _SIGNAL is not None
    try:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        ours = int(facts["PPid"]) == os.getpid()
        return ours and bool(int(facts["SigCgt"], 16) >> (_SIGNAL - 1) & 1)
    except (OSError, KeyError, ValueError):
        return False


class StackFile:
    """Anonymous file to which one worker after the other writes its stack. From any thread.

    Attributes:
        fd: its descriptor, for the worker to inherit; -1 if none is available.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closing = False
        try:
            self.fd = anonymous_file("aioloader-stack")
        except OSError:
            self.fd = -1

    def wait(self, pid: int, token: int) -> str | None:
        """Return the stack that a worker writes at a request; None if it does not answer. Blocking, 1.7 s at most.

        Args:
            pid: a child of this process that is not reaped.
            token: number of the request; see `write_stack`.
        """
        with self._lock:
            if self.fd < 0:
                return None
            stack = self._answer(token) or self._answer_to_signal(pid)
            self._empty()  # a crash writes to the same file
            return stack

    def _answer(self, token: int) -> str | None:
        for text in self._readings():
            _, found, stack = text.partition(_heading(token))
            if found:
                return _calls(stack)
        return None

    def _answer_to_signal(self, pid: int) -> str | None:
        if _SIGNAL is None or not _catches(pid):
            return None
        before = len(self._read())
        try:
            os.kill(pid, _SIGNAL)
        except OSError:
            return None
        written, changed_at = "", time.monotonic()
        for text in self._readings(_SIGNAL_PATIENCE_S):
            # The end is not marked: the stack is complete when no more text is written.
            if text[before:] != written:
                written, changed_at = text[before:], time.monotonic()
            elif _calls(written) and time.monotonic() - changed_at > _SETTLED_S:
                break
        return _calls(written)

    def _readings(self, patience_s: float = _PATIENCE_S) -> Iterator[str]:
        """Yield the content again and again, as long as an answer may come."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self._closing:
            yield self._read()
            time.sleep(_LOOK_S)

    def left(self) -> str | None:
        """Return the stack that the worker wrote when it crashed, or None. After it was reaped."""
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
            os.lseek(self.fd, 0, os.SEEK_SET)  # the worker's offset too: it is shared

    def _read(self) -> str:
        return os.pread(self.fd, _MOST_BYTES, 0).decode("utf-8", "backslashreplace")


def _calls(text: str) -> str | None:
    """Return the lines of a stack, without headings."""
    lines = [line.rstrip() for line in text.splitlines() if line.startswith("  ")]
    return "\n".join(lines) or None
