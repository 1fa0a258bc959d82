"""Reader that makes many reads of one file with one system call and releases the interpreter's lock once.

A loop over `os.preadv` releases and acquires the lock for every record; with small records and other busy threads, that
costs more than the reads. Linux takes a whole list of reads (its native asynchronous I/O; on an ordinary file the call
returns when all are done). Where the kernel lacks it, `KernelAioReader.read` reports that no read was done, and the
caller loops.

Source: io_setup(2), io_submit(2), io_getevents(2), preadv2(2), and linux/aio_abi.h.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


_AT_ONCE = 256
_NOWAIT = 8  # RWF_NOWAIT
# setup, destroy, getevents, submit: system calls for which the C library has no functions.
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2), "riscv64": (0, 1, 4, 2)}
_REQUEST = np.dtype(
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("rw_flags", "<u4"),
        ("opcode", "<u2"),  # 0 reads
        ("priority", "<i2"),
        ("fd", "<u4"),
        ("buffer", "<u8"),
        ("nbytes", "<u8"),
        ("offset", "<i8"),
        ("reserved", "<u8"),
        ("flags", "<u4"),
        ("event_fd", "<u4"),
    ]
)
_EVENT = np.dtype([("data", "<u8"), ("request", "<u8"), ("result", "<i8"), ("result2", "<i8")])


def _requests(fd: int, reads: IntArray, address: int, flags: int) -> Array:
    requests = np.zeros(len(reads), _REQUEST)
    requests["data"] = np.arange(len(reads))
    requests["fd"] = fd
    requests["rw_flags"] = flags
    requests["buffer"] = address + reads[:, 3]
    requests["nbytes"] = reads[:, 2]
    requests["offset"] = reads[:, 1]
    return requests


def _load() -> Any:
    if sys.platform != "linux" or sys.maxsize < 2**32 or platform.machine() not in _NUMBERS:
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    call.restype = ctypes.c_long
    return call


class KernelAioReader:
    """Reader with contexts of the kernel, one for each thread that is reading.

    Attributes:
        available: the system has it, as far as is known; a sandbox may still forbid it.
        reads_without_waiting: ``wait=False`` works, as far as is known.
    """

    def __init__(self) -> None:
        self._syscall = _load()
        self.available = self.reads_without_waiting = self._syscall is not None
        self._idle: deque[int] = deque()
        self._lock = threading.Lock()
        self._closed = False
        if self._syscall is not None:
            self._setup, self._destroy, self._getevents, self._submit = _NUMBERS[platform.machine()]

    def read(self, fd: int, reads: IntArray, out: memoryview, *, wait: bool = True) -> IntArray:
        """Read many ranges of a file. Blocks, unless `wait` is False.

        Args:
            fd: the file.
            reads: int64 (n, 4), columns as in `aioloader.storage.layout.Read`; the number of the file is not used,
                offsets are at least 0, and the caller ensures that every range fits into `out`.
            out: writable bytes.
            wait: False: ranges that are not in memory are not read.

        Returns:
            int64 (n,), bytes read of each; fewer than requested at the end of the file, negative where a read failed
            or was not tried.
        """
        got = np.full(len(reads), -1, np.int64)
        context = self._context()
        if context is None:
            return got
        start = np.frombuffer(out, np.uint8).__array_interface__["data"][0]
        clean = False
        try:
            for low in range(0, len(reads), _AT_ONCE):
                part = slice(low, low + _AT_ONCE)
                requests = _requests(fd, reads[part], start, 0 if wait else _NOWAIT)
                clean = self._submit_all(context, requests, got[part])
                if not clean:
                    break
            if not (clean or wait):
                self.reads_without_waiting = False  # this file system does not
        finally:
            # A context that may still hold results is not used again; destroying it waits for its reads.
            with self._lock:
                keep = clean and not self._closed
                if keep:
                    self._idle.append(context)
            if not keep:
                self._call(self._destroy, (ctypes.c_ulong(context),))
        return got

    def _submit_all(self, context: int, requests: Array, got: IntArray) -> bool:
        """Make reads and write the bytes of each to `got`; return whether all of them were made."""
        n = len(requests)
        first = requests.ctypes.data  # `__array_interface__` describes all fields
        pointers = first + np.arange(n, dtype=np.int64) * _REQUEST.itemsize
        table = pointers.__array_interface__["data"][0]
        taken = self._call(self._submit, (ctypes.c_ulong(context), ctypes.c_long(n), ctypes.c_void_p(table)))
        done = 0
        while done < taken:
            events = np.empty(taken - done, _EVENT)
            count = self._wait(context, events)
            if count > 0:
                got[events["data"][:count].astype(np.int64)] = events["result"][:count]
                done += count
            elif ctypes.get_errno() != 4:  # anything but an interruption by a signal
                return False
        return bool(taken == n)

    def _wait(self, context: int, events: Array) -> int:
        """Wait for at least one event; return the number of events, or a negative number after an error."""
        room = ctypes.c_long(len(events))
        address = ctypes.c_void_p(events.ctypes.data)
        return self._call(self._getevents, (ctypes.c_ulong(context), ctypes.c_long(1), room, address, None))

    def _call(self, number: int, args: tuple[Any, ...]) -> int:
        result: int = self._syscall(ctypes.c_long(number), *args)
        return result

    def _context(self) -> int | None:
        if not self.available:
            return None
        try:
            return self._idle.pop()
        except IndexError:
            context = ctypes.c_ulong(0)
            if self._call(self._setup, (ctypes.c_long(_AT_ONCE), ctypes.byref(context))) < 0:
                self.available = False  # none left, or forbidden: not tried again
                return None
            return context.value

    def close(self) -> None:
        """Close the contexts; those in use are closed at the end of their call."""
        with self._lock:
            self._closed = True
        while self._idle:
            self._call(self._destroy, (ctypes.c_ulong(self._idle.pop()),))
