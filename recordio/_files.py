"""Local files, read and written by position.

A position belongs to a call, not to the file: threads and forked children can share one descriptor without disturbing
each other (docs/format.md, "Reading"). Closing a `LocalFile` does not wait: a descriptor that a call in another thread
still uses is closed at the end of that call, so its number cannot be reused for another file in the meantime.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from recordio._framing import UNKNOWN_SIZE
from recordio.errors import (
    ClosedError,
    NotSeekableError,
    RecordFileNotFoundError,
    ShortReadError,
    WrongProcessError,
)

if TYPE_CHECKING:
    import io
    from collections.abc import Sequence

_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_seek_lock = threading.Lock()
# Smaller pieces are joined: passing one to the system takes as long as copying this many bytes.
_LARGE_PIECE = 4096
_PIECES_AT_ONCE = 1024
_BUFFER_BYTES = 1 << 19  # of larger buffers malloc may return the memory to the system each time


def _read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read up to `length` bytes at a byte offset; on POSIX the shared position does not move."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _seek_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at a byte offset; writing it twice results in the same file."""
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


def _write_pieces_at(descriptor: int, pieces: Sequence[bytes], offset: int) -> None:
    """Write a sequence of pieces at a byte offset; large ones are not copied."""
    if not hasattr(os, "pwritev") or sum(map(len, pieces)) < _LARGE_PIECE * len(pieces):
        _write_at(descriptor, b"".join(pieces), offset)
        return
    views = deque(memoryview(piece) for piece in pieces if piece)
    while views:
        done = os.pwritev(descriptor, list(islice(views, _PIECES_AT_ONCE)), offset)
        offset += done
        while views and done >= len(views[0]):
            done -= len(views.popleft())
        if done:
            views[0] = views[0][done:]


def not_seekable_error(path: str, offset: int | None = None) -> NotSeekableError:
    """Return the error for a pipe or device that is not read in order; `offset`: up to where it was read."""
    before = "" if offset is None else f" ({offset} bytes of it were read)"
    return NotSeekableError(
        f"{path}: a pipe or device can only be read once, from the first record to the last{before}: iterate over "
        "a RecordReader or MXRecordIO, or copy the bytes to a file",
        path=path,
        offset=offset,
    )


class LocalFile:
    """File opened at first use and read by position; safe in threads and after fork; picklable.

    A pipe or a device (`is_stream`) is read in order, once, in the process that opened it. A read waits until its bytes
    were written, and no longer.

    Args:
        path: The file. It has to exist now, so that a wrong name is an error at the call.

    Attributes:
        path: The file.
        is_stream: It is a pipe, a terminal or another device, without positions.

    Raises:
        RecordFileNotFoundError: There is no such file, or it is a directory.
    """

    _descriptor = -1
    _stream: io.BufferedReader | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise RecordFileNotFoundError("no such record file", path=self.path)
        if os.path.isdir(self.path):
            raise RecordFileNotFoundError("this is a directory, not a record file", path=self.path)
        self.is_stream = not stat.S_ISREG(os.stat(self.path).st_mode)
        self._reached = 0
        self._reset(closed=False)

    def _reset(self, *, closed: bool) -> None:
        self._users = 0
        self._closed = closed
        self._lock = threading.Lock()
        self._stream_lock = threading.Lock()  # held while waiting for bytes
        self._pid = os.getpid()

    def size(self) -> int:
        """Return the present size of the file in bytes; `UNKNOWN_SIZE` for a stream, which is not opened for it."""
        if self.is_stream:
            return UNKNOWN_SIZE
        descriptor = self._acquire()
        try:
            return os.fstat(descriptor).st_size
        finally:
            self._release()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read `(offset, length)` ranges, both in bytes.

        Raises:
            ShortReadError: The file ends before a range does; the last range of a stream is returned short instead.
            ClosedError: The file was closed.
            NotSeekableError: A range of a stream does not begin where the one before it ended.
            WrongProcessError: A stream was opened before a fork, by the parent.
        """
        if self.is_stream:
            return [self._read_next(offset, length) for offset, length in ranges]
        descriptor = self._acquire()
        try:
            return [self._read(descriptor, offset, length) for offset, length in ranges]
        finally:
            self._release()

    def _read(self, descriptor: int, offset: int, length: int) -> bytes:
        # One read per call returns at most 2 GiB on Linux, and may be cut short by a signal.
        if length > 1 << 20 and offset + length > (size := os.fstat(descriptor).st_size):
            # Checked before the call, which would allocate `length` bytes first.
            raise self._short(offset, length, max(0, size - offset))
        data = _read_at(descriptor, length, offset)
        if len(data) == length:
            return data
        pieces = [data]
        held = len(data)
        while held < length:
            data = _read_at(descriptor, length - held, offset + held)
            if not data:
                raise self._short(offset, length, held)
            pieces.append(data)
            held += len(data)
        return b"".join(pieces)

    def _read_next(self, offset: int, length: int) -> bytes:
        if self._pid != os.getpid():
            raise WrongProcessError(
                f"{self.path}: process {self._pid} opened this pipe or device and reads it; its children cannot"
            )
        with self._stream_lock:
            if self._closed:
                raise ClosedError(f"{self.path}: the file was closed; open a new reader")
            if offset != self._reached:
                raise not_seekable_error(self.path, self._reached)
            if self._stream is None:
                self._stream = open(self.path, "rb")  # noqa: SIM115 - closed with this object
            data = self._stream.read(length)
            self._reached += len(data)
            return data

    def _short(self, offset: int, length: int, held: int) -> ShortReadError:
        return ShortReadError(
            f"{self.path}: {length} bytes were requested at byte {offset} and only {held} exist; "
            "the file was cut or replaced while it was open",
            path=self.path,
            offset=offset,
            expected=length,
            found=held,
        )

    def close(self) -> None:
        """Close the file; a read in another thread ends first. Idempotent."""
        if self.is_stream:
            self._closed = True
            # A read that waits for bytes keeps the stream; it ends with the process, or with the writer.
            if self._stream is not None and self._stream_lock.acquire(blocking=False):
                self._stream.close()
                self._stream_lock.release()
            return
        self._after_fork()
        with self._lock:
            self._closed = True
            self._close_if_idle()

    def _after_fork(self) -> None:
        # Another thread may have held the lock, or been reading, at the moment of the fork. It does not exist in the
        # child, which would wait for it forever.
        if self._pid != os.getpid():
            self._reset(closed=self._closed)

    def _acquire(self) -> int:
        self._after_fork()
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self.path}: the file was closed; open a new reader")
            if self._descriptor < 0:
                try:
                    self._descriptor = os.open(self.path, os.O_RDONLY | _BINARY)
                except FileNotFoundError:
                    raise RecordFileNotFoundError("the record file was deleted", path=self.path) from None
            self._users += 1
            return self._descriptor

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and self._users == 0 and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __getstate__(self) -> dict[str, Any]:
        if self.is_stream:
            raise not_seekable_error(self.path)
        return {"path": self.path, "closed": self._closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self.is_stream = False
        self._reset(closed=state["closed"])

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class AppendFile:
    """File that bytes are appended to through a buffer that belongs to one process.

    Python's own buffered files write their buffer a second time when a forked child exits; a forked child can neither
    write nor flush this one. Every block is written at its own position and kept until that succeeded, so a flush
    that failed, or whose caller stopped waiting, can be repeated.

    Args:
        path: File to create; an old one is truncated.
        at_once: False creates the file at the first flush, so that the constructor does not access the disk.
        append: Continue at the end of the existing file.
    """

    _descriptor = -1

    def __init__(self, path: str, *, at_once: bool = True, append: bool = False) -> None:
        self.path = path
        self._append = append
        self._closed = False
        self._pid = os.getpid()
        self._buffer: list[bytes] = []  # not joined: large pieces are written without a copy
        self._pending = 0
        self._blocks: list[tuple[int, list[bytes]]] = []
        self._end = 0
        self._buffer_lock = threading.Lock()  # held for a moment, also on an event loop
        self._disk_lock = threading.Lock()  # held while writing, only in flush and close
        if at_once:
            self._create()

    def _create(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISFIFO(os.stat(self.path).st_mode):  # opening one waits for its reader
                raise NotSeekableError(
                    f"{self.path}: a pipe has no offsets, at which records are written: write a file, and copy its "
                    "bytes into the pipe",
                    path=self.path,
                )
        flags = os.O_WRONLY | os.O_CREAT | _BINARY | (0 if self._append else os.O_TRUNC)
        self._descriptor = os.open(self.path, flags, 0o666)
        if self._append:
            self._end += os.fstat(self._descriptor).st_size

    def tell(self) -> int:
        """Return the byte offset at which the next bytes are appended."""
        return self._end

    @property
    def is_full(self) -> bool:
        """Return True if the buffer holds enough bytes to be written."""
        return self._pending >= _BUFFER_BYTES

    @property
    def needs_close(self) -> bool:
        """Return True if this process opened the file, something was appended and it is not closed."""
        return not self._closed and self._end > 0 and self._pid == os.getpid()

    def check(self) -> None:
        """Check that this process may write to the file now.

        Raises:
            ClosedError: It is closed.
            WrongProcessError: It was opened before a fork, by the parent.
        """
        if self._closed:
            raise ClosedError(f"{self.path}: the writer is closed; open a new one")
        if self._pid != os.getpid():
            raise WrongProcessError(
                f"{self.path}: Forbidden operation in multiple processes: the writer was opened "
                f"by process {self._pid}; write from there, or open another file here"
            )

    def hold(self, *pieces: bytes) -> None:
        """Add bytes to the buffer, even if it is full; never wait for the disk."""
        self.check()
        nbytes = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        with self._buffer_lock:
            self._buffer += pieces
            self._pending += nbytes
            self._end += nbytes

    def append(self, *pieces: bytes) -> None:
        """Add bytes to the buffer and write it to the file when it is full."""
        self.hold(*pieces)
        if self.is_full:
            self.flush()

    def flush(self) -> None:
        """Write everything to the operating system. Any thread may call it."""
        self.check()
        with self._disk_lock:
            # A thread that closed it meanwhile wrote everything, and the file must not be created again.
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
            _write_pieces_at(self._descriptor, block, offset)
            del self._blocks[0]

    def close(self) -> None:
        """Flush and close; in a forked child, close the descriptor only. Idempotent."""
        if self._pid != os.getpid():
            self._close_descriptor()
            return
        with self._disk_lock:
            if self._closed:
                return
            try:
                self._write_out()
            finally:
                self._close_descriptor()

    def _close_descriptor(self) -> None:
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self.close()
