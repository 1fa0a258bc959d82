"""Many reads of one file by one system call, with the interpreter's lock given up once.

A loop over `os.preadv` gives the lock up and asks for it again at every record; with small records and other threads at
work, that costs more than the reads. Linux takes a whole list of reads (its native asynchronous I/O; on an ordinary
file the call returns when all are done). Where the kernel lacks it, `KernelAioReader.read` reports no read as done,
and the caller loops.

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
    from aioloader.foundation.types import IntArray

__all__ = ("KernelAioReader",)

_AT_ONCE = 256
_NOWAIT = 8  # RWF_NOWAIT
# setup, destroy, getevents, submit: the C library has no functions for them.
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
    """Contexts of the kernel, one for each thread that reads at the time.

    Attributes:
        reads_without_waiting: whether ``wait=False`` works, as far as is known.
    """

    def __init__(self) -> None:
        self._syscall = _load()
        self._refused = False
        self.reads_without_waiting = self._syscall is not None
        self._idle: deque[int] = deque()
        self._lock = threading.Lock()
        self._closed = False
        if self._syscall is not None:
            self._setup, self._destroy, self._getevents, self._submit = _NUMBERS[platform.machine()]

    @property
    def available(self) -> bool:
        """Whether the system has it, as far as is known; a sandbox may still forbid it."""
        return self._syscall is not None and not self._refused

    def read(
        self,
        fd: int,
        offset: IntArray,
        nbytes: IntArray,
        out: memoryview,
        place: IntArray,
        *,
        wait: bool = True,
    ) -> IntArray:
        """Read many stretches of a file. Blocks, unless `wait` is False.

        Args:
            fd: the file.
            offset: int64 (n,), where each stretch begins, at least 0.
            nbytes: int64 (n,), its length.
            out: writable bytes.
            place: int64 (n,), where in `out` each stretch goes; the caller sees to it that it fits.
            wait: False: what is not in memory is not read.

        Returns:
            int64 (n,), the bytes that were read of each; less than asked for at the end of the file, negative where
            it failed or was not tried.
        """
        got = np.full(len(offset), -1, np.int64)
        context = self._context()
        if context is None:
            return got
        start = np.frombuffer(out, np.uint8).__array_interface__["data"][0]
        clean = False
        try:
            for low in range(0, len(offset), _AT_ONCE):
                part = slice(low, low + _AT_ONCE)
                flags = 0 if wait else _NOWAIT
                clean = self._some(
                    context, fd, offset[part], nbytes[part], start + place[part], got[part], flags
                )
                if not clean:
                    break
            if not (clean or wait):
                self.reads_without_waiting = False  # this file system does not
        finally:
            # One that may still hold answers is not used again; its end waits for what is under way.
            with self._lock:
                keep = clean and not self._closed
                if keep:
                    self._idle.append(context)
            if not keep:
                self._call(self._destroy, ctypes.c_ulong(context))
        return got

    def _some(
        self,
        context: int,
        fd: int,
        offset: IntArray,
        nbytes: IntArray,
        address: IntArray,
        got: IntArray,
        flags: int,
    ) -> bool:
        n = len(offset)
        requests = np.zeros(n, _REQUEST)
        requests["data"] = np.arange(n)
        requests["fd"] = fd
        requests["rw_flags"] = flags
        requests["buffer"] = address
        requests["nbytes"] = nbytes
        requests["offset"] = offset
        first = requests.__array_interface__["data"][0]
        pointers = first + np.arange(n, dtype=np.int64) * _REQUEST.itemsize
        wanted = pointers.__array_interface__["data"][0]
        taken = self._call(self._submit, ctypes.c_ulong(context), ctypes.c_long(n), ctypes.c_void_p(wanted))
        done = 0
        while done < taken:
            events = np.empty(taken - done, _EVENT)
            count = self._call(
                self._getevents,
                ctypes.c_ulong(context),
                ctypes.c_long(1),
                ctypes.c_long(len(events)),
                ctypes.c_void_p(events.__array_interface__["data"][0]),
                None,
            )
            if count > 0:
                got[events["data"][:count].astype(np.int64)] = events["result"][:count]
                done += count
            elif ctypes.get_errno() != 4:  # anything but an interruption by a signal
                return False
        return bool(taken == n)

    def _call(self, number: int, *args: Any) -> int:
        result: int = self._syscall(ctypes.c_long(number), *args)
        return result

    def _context(self) -> int | None:
        if not self.available:
            return None
        try:
            return self._idle.pop()
        except IndexError:
            context = ctypes.c_ulong(0)
            if self._call(self._setup, ctypes.c_long(_AT_ONCE), ctypes.byref(context)) < 0:
                self._refused = True  # none left, or forbidden: it will not be asked for again
                return None
            return context.value

    def close(self) -> None:
        """Give the contexts back; those in use go with their call."""
        with self._lock:
            self._closed = True
        while self._idle:
            self._call(self._destroy, ctypes.c_ulong(self._idle.pop()))
