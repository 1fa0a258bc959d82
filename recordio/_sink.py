"""A buffered file to write records to, which a forked child can neither write nor flush by
accident."""

from __future__ import annotations

import contextlib
import os
import threading

from recordio._files import write_pieces_at
from recordio.errors import ClosedError, WrongProcessError

__all__ = ("AppendFile",)

_BUFFER_BYTES = 1 << 20


class AppendFile:
    """Appends bytes to a new file through a buffer of its own.

    Python's own buffered files write what they hold a second time when a forked child ends; this
    one belongs to the process that opened it. Every block is written at its own position and kept
    until that succeeded, so a flush that failed, or whose caller stopped waiting, can be done
    again.

    Args:
        path: File to create; an old one is truncated.
        at_once: False creates the file at the first flush, so that making a sink touches no disk.
        append: go on at the end of the file that is there.
    """

    def __init__(self, path: str, *, at_once: bool = True, append: bool = False) -> None:
        self.path = path
        self._append = append
        self._descriptor = -1
        self._closed = False
        self._pid = os.getpid()
        self._buffer: list[bytes] = []  # not joined: large pieces are written from where they are
        self._pending = 0
        self._blocks: list[tuple[int, list[bytes]]] = []
        self._end = 0
        self._buffer_lock = threading.Lock()  # held for a moment, also on an event loop
        self._disk_lock = threading.Lock()  # held while writing, only in flush and close
        if at_once:
            self._create()

    def _create(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (0 if self._append else os.O_TRUNC)
        flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path, flags, 0o666)
        if self._append:
            self._end += os.fstat(self._descriptor).st_size

    def tell(self) -> int:
        """Bytes appended so far."""
        return self._end

    @property
    def pending(self) -> int:
        """Bytes in the buffer that `flush` would write."""
        return self._pending

    @property
    def is_open(self) -> bool:
        """False once closed."""
        return not self._closed

    @property
    def owned(self) -> bool:
        """True in the process that opened the file."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Raise if this file must not be written here and now.

        Raises:
            ClosedError: it is closed.
            WrongProcessError: it was opened before a fork, by the parent.
        """
        if self._closed:
            raise ClosedError(f"{self.path}: the writer is closed; open a new one")
        if not self.owned:
            raise WrongProcessError(
                f"{self.path}: Forbidden operation in multiple processes: the writer was opened "
                f"by process {self._pid}; write from there, or open another file here"
            )

    def hold(self, *pieces: bytes) -> None:
        """Add bytes to the buffer, however full it is; never waits for the disk."""
        self.check()
        nbytes = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        with self._buffer_lock:
            self._buffer += pieces
            self._pending += nbytes
            self._end += nbytes

    def append(self, *pieces: bytes) -> None:
        """Add bytes to the buffer and write it out when it is full."""
        self.hold(*pieces)
        if self._pending >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system. Any thread may call it."""
        self.check()
        with self._disk_lock:
            # A thread that closed it meanwhile wrote everything, and the file must not be made anew.
            if not self._closed:
                self._write_out()

    def _write_out(self) -> None:
        if self._descriptor < 0:
            self._create()
        with self._buffer_lock:
            if self._buffer:
                self._blocks.append((self._end - self._pending, self._buffer))
                self._buffer = []
                self._pending = 0
        while self._blocks:
            offset, block = self._blocks[0]
            write_pieces_at(self._descriptor, block, offset)
            del self._blocks[0]

    def close(self) -> None:
        """Flush and close. In a forked child it only lets go of the file. Idempotent."""
        if not self.owned:
            self._let_go()
            return
        with self._disk_lock:
            if self._closed:
                return
            try:
                self._write_out()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            with contextlib.suppress(OSError):
                self.close()
