"""Bounded set of open files, shared by threads.

A descriptor is never closed while a thread reads from it: another file could get the same number at once, and the read
would return that file's bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections import OrderedDict
from contextlib import contextmanager
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING

from aioloader.errors import SampleFormatError
from aioloader.foundation.descriptors import try_lock
from recordio.errors import NotSeekableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


# Programs that this process starts do not inherit the descriptors (PEP 446). Without O_NONBLOCK, open() of a named pipe
# would block the thread for ever.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_seek_lock = threading.Lock()


def open_regular(path: str, flags: int = 0) -> int:
    """Open a regular file for reading.

    Args:
        path: the file.
        flags: further flags of `os.open`.

    Raises:
        OSError: it does not exist, cannot be read, or is a directory, pipe or device.
    """
    fd = os.open(path, _FLAGS | flags)
    try:
        check_regular(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_regular_file(path: str, kind: type[FileIO] = FileIO) -> FileIO:
    """Open a regular file for reading. The object owns the descriptor: Ctrl-C at this moment leaves nothing open.

    It costs 2 µs more than `open_regular`.

    Args:
        path: the file.
        kind: class of the object.

    Raises:
        OSError: it does not exist, cannot be read, or is a directory, pipe or device.
    """
    check_regular(os.stat(path), path)  # first: open() of a named pipe would block
    return kind(path, "rb")


def check_regular(status: os.stat_result, path: str) -> None:
    """Raise OSError unless `status` is that of a regular file; `NotSeekableError` for a pipe or device."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotSeekableError(
            f"{path}: not a regular file: a pipe or device can only be read once and in order, so copy its bytes to a "
            "file",
            path=path,
        )


def read_into(fd: int, out: memoryview, offset: int) -> int:
    """Fill `out` with the bytes of a file from an offset on.

    Returns:
        bytes read; fewer than `len(out)` only at the end of the file.
    """
    done, nbytes = 0, len(out)
    while done < nbytes:
        got = _read_some(fd, out[done:], offset + done)
        if got == 0:
            break
        done += got
    return done


@contextmanager
def opened_regular(path: str) -> Iterator[tuple[int, Callable[[int, int], bytes]]]:
    """Open a regular file: yield its size, and a function that returns the bytes at an offset, of a length.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be opened.
        SampleFormatError: by the function: the file ends before these bytes, because it shrank after it was opened.
    """
    fd = open_regular(path)
    try:
        yield os.fstat(fd).st_size, partial(_read_all, path, fd)
    finally:
        os.close(fd)


def _read_all(path: str, fd: int, offset: int, nbytes: int) -> bytes:
    data = read_at(fd, nbytes, offset)
    if len(data) < nbytes:
        raise SampleFormatError(
            "the file shrank while it was read",
            path=path,
            offset=offset,
            expected=f"{nbytes} bytes",
            found=f"{len(data)} bytes",
        )
    return data


def read_at(fd: int, nbytes: int, offset: int) -> bytes:
    """Return bytes of a file from an offset on; fewer than `nbytes` only at the end of the file."""
    if hasattr(os, "pread"):
        found = os.pread(fd, nbytes, offset)
        if len(found) == nbytes:  # no copy, and half of the time of `read_into` for short reads
            return found
    data = bytearray(nbytes)
    return bytes(data[: read_into(fd, memoryview(data), offset)])


def _read_some(fd: int, out: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(fd, [out], offset)
    with _seek_lock:  # Windows: seek and read are two calls
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, min(len(out), 1 << 20))
    out[: len(data)] = data
    return len(data)


class _HeldFile(FileIO):
    """File that is closed without a ResourceWarning when it is collected.

    The owner of the set closes it, but in a cycle, as of a traceback that is kept, Python may collect the file first.
    """

    def __del__(self) -> None:
        self.close()


class _Open:
    __slots__ = ("file", "users")

    def __init__(self, file: FileIO) -> None:
        self.file = file
        self.users = 0


class Descriptors:
    """Set of open files by number; the least recently used are closed first.

    Args:
        limit: most files that stay open while no thread reads from them.
        flags: further flags of `os.open`.
    """

    def __init__(self, limit: int, flags: int = 0) -> None:
        self._flags = flags
        self._limit = limit
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def borrow(self, number: int, path: str) -> Iterator[int]:
        """Return a context manager of the descriptor of a file, which is opened if necessary.

        Raises:
            OSError: the file cannot be opened.
            RuntimeError: `close` was called.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the byte source is closed")
            held = self._open.get(number)
            if held is None:
                held = self._open[number] = _Open(self._new(path))
            else:
                self._open.move_to_end(number)
            held.users += 1
        try:
            yield held.file.fileno()
        finally:
            with self._lock:
                held.users -= 1
                self._shrink()

    def _new(self, path: str) -> FileIO:
        if self._flags:
            return _HeldFile(open_regular(path, self._flags), "rb")
        return open_regular_file(path, _HeldFile)

    def holds(self, number: int) -> bool:
        """Return whether a file is open now."""
        return number in self._open

    def close(self) -> None:
        """Close all files; those in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            self._limit = 0
            self._shrink()

    def _shrink(self) -> None:
        surplus = len(self._open) - self._limit
        if surplus <= 0:
            return
        idle = [number for number, held in self._open.items() if held.users == 0]
        for number in idle[:surplus]:
            self._open.pop(number).file.close()


def open_locked(path: Path) -> int | None:
    """Open a file for reading and writing, creating it if it is missing, and lock it.

    Returns:
        a descriptor, which the caller closes; None if another process holds the lock.

    Raises:
        OSError: it cannot be opened, or the file system does not support locks.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        fd = os.open(path, flags, 0o666)
        try:
            if not try_lock(fd):
                os.close(fd)
                return None
            # The previous holder may have deleted it in the meantime: then this file has no name any more.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
