"""Local files, read and written by position.

A position belongs to a call, not to the file: threads and forked children can share one descriptor
without disturbing each other (docs/format.md, "Reading"). Closing waits for nobody: a descriptor
that a call in another thread is still using is closed by that call when it ends, so its number
cannot be given to another file meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from recordio.errors import ClosedError, RecordFileNotFoundError, ShortReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("LocalFile", "read_at", "write_at", "write_pieces_at")

_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_seek_lock = threading.Lock()
# Smaller pieces are joined: telling the system of one takes as long as copying so many bytes.
_LARGE_PIECE = 4096
_PIECES_AT_ONCE = 1024


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read up to `length` bytes at a byte offset, without moving a shared position on POSIX."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def write_at(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at a byte offset; doing it twice leaves the same file."""
    view = memoryview(data)
    while view:
        if hasattr(os, "pwrite"):
            done = os.pwrite(descriptor, view, offset)
        else:
            with _seek_lock:
                os.lseek(descriptor, offset, os.SEEK_SET)
                done = os.write(descriptor, view)
        view = view[done:]
        offset += done


def write_pieces_at(descriptor: int, pieces: Sequence[bytes], offset: int) -> None:
    """`write_at` for a sequence of pieces; large ones are not copied."""
    if not hasattr(os, "pwritev") or sum(map(len, pieces)) < _LARGE_PIECE * len(pieces):
        write_at(descriptor, b"".join(pieces), offset)
        return
    views = deque(memoryview(piece) for piece in pieces if piece)
    while views:
        done = os.pwritev(descriptor, list(islice(views, _PIECES_AT_ONCE)), offset)
        offset += done
        while views and done >= len(views[0]):
            done -= len(views.popleft())
        if done:
            views[0] = views[0][done:]


class LocalFile:
    """A file opened at first use and read by position; safe in threads and after fork; picklable.

    Args:
        path: The file. It has to exist now, so that a wrong name is an error at the call.

    Raises:
        RecordFileNotFoundError: there is no such file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise RecordFileNotFoundError("no such record file", path=self.path)
        if os.path.isdir(self.path):
            raise RecordFileNotFoundError("this is a directory, not a record file", path=self.path)
        self._reset()

    def _reset(self) -> None:
        self._descriptor = -1
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def size(self) -> int:
        """Size of the file in bytes, now."""
        descriptor = self._enter()
        try:
            return os.fstat(descriptor).st_size
        finally:
            self._leave()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read `(offset, length)` ranges, both in bytes.

        Raises:
            ShortReadError: the file ends before a range does.
            ClosedError: the file was closed.
        """
        descriptor = self._enter()
        try:
            return [self._read(descriptor, offset, length) for offset, length in ranges]
        finally:
            self._leave()

    def _read(self, descriptor: int, offset: int, length: int) -> bytes:
        # One read per call returns at most 2 GiB on Linux, and may be cut short by a signal.
        if length > 1 << 20 and offset + length > (size := os.fstat(descriptor).st_size):
            # Checked before the call, which would allocate `length` bytes first.
            raise self._short(offset, length, max(0, size - offset))
        data = read_at(descriptor, length, offset)
        if len(data) == length:
            return data
        pieces = [data]
        held = len(data)
        while held < length:
            data = read_at(descriptor, length - held, offset + held)
            if not data:
                raise self._short(offset, length, held)
            pieces.append(data)
            held += len(data)
        return b"".join(pieces)

    def _short(self, offset: int, length: int, held: int) -> ShortReadError:
        return ShortReadError(
            f"{self.path}: {length} bytes were to be read at byte {offset} and only {held} are "
            "there; the file was cut or replaced while it was open",
            path=self.path,
            offset=offset,
            expected=length,
            found=held,
        )

    def close(self) -> None:
        """Close the file; a read that is under way in another thread ends first. Idempotent."""
        self._after_fork()
        with self._lock:
            self._closed = True
            self._close_if_idle()

    def _after_fork(self) -> None:
        # Another thread may have held the lock, or been reading, at the moment of the fork. It does
        # not exist in the child, which would wait for it for ever.
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._users = 0
            self._pid = os.getpid()

    def _enter(self) -> int:
        self._after_fork()
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self.path}: the file was closed; open a new reader")
            if self._descriptor < 0:
                try:
                    self._descriptor = os.open(self.path, os.O_RDONLY | _BINARY)
                except FileNotFoundError:
                    raise RecordFileNotFoundError("the record file is gone", path=self.path) from None
            self._users += 1
            return self._descriptor

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and self._users == 0 and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "closed": self._closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self._reset()
        self._closed = state["closed"]

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
