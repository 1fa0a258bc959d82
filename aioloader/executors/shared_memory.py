"""Slab memory: one region that is shared with the worker processes, reused, and leased to the caller with every batch.

Rules (docs/design.md, "Memory and leases"):

- The region is a memfd, reserved sparsely at its limit: no name, nothing in /dev/shm, freed with its last process.
  Without memfd it is an unlinked temporary file. If no other process uses it, it is anonymous memory.
- Freed slabs are reused from the same end, because pages touched once are many times faster than fresh ones.
- A leased array is a separate root over the mapping. numpy collapses the bases of views onto the root, so the weak
  reference to it dies with the last view. Its callback may run in any thread, inside the garbage collector: it only
  appends to a deque, which the next allocation empties. Arrays that are lent together share one base, which is neither
  an array nor a memoryview, and the reference is to that.
- A fork maps the region too: slabs that were leased at that moment are never used again.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import errno
import functools
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader.abc
from aioloader.foundation.descriptors import anonymous_file
from aioloader.foundation.types import Array, IntArray, Slab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PAGE = 4096
MAX_WORKERS = 1024
CONTROL_WORDS = 8
CONTROL_BYTES = MAX_WORKERS * CONTROL_WORDS * 8
_MIN_LIMIT = 64 << 20
UNKNOWN_MEMORY = 4 << 30  # where the system does not report its memory
# The limit of a process that each error is about, and its option of `ulimit`.
_LIMITS = {
    errno.EFBIG: ("files must not be this long", "f"),
    errno.ENOMEM: ("the address space is smaller", "v"),
}
# Constants of Linux that Python's mmap does not name in every version.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000


def default_memory_limit() -> int:
    """Return a quarter of the memory that this process may use (bytes), control groups included; at least 64 MiB."""
    from aioloader.foundation.host_limits import process_limit, usable_memory  # not for workers

    # The region is one file that is mapped as a whole: limits of both count (`ulimit`).
    limits = (usable_memory() or UNKNOWN_MEMORY, process_limit("AS")[0], process_limit("FSIZE")[0])
    return max(_MIN_LIMIT, min(limit for limit in limits if limit is not None) // 4)


def _region(nbytes: int, shared: bool) -> tuple[int, mmap.mmap]:
    """Return the descriptor of a new file, or -1, and its mapping as a whole."""
    fd = anonymous_file("aioloader") if shared else -1
    try:
        if shared:
            os.ftruncate(fd, nbytes)
        return fd, mmap.mmap(fd, nbytes)
    except OSError as error:
        if shared:
            os.close(fd)
        if error.errno not in _LIMITS:
            raise
        why, option = _LIMITS[error.errno]
        raise OSError(
            error.errno,
            f"memory of {nbytes} bytes for batches cannot be reserved, because {why}: set a lower memory_limit, or "
            f"raise the limit of this process (ulimit -{option})",
        ) from error


def control_array(memory: mmap.mmap) -> IntArray:
    """Return the control words at the head of the region, int64 (MAX_WORKERS, 8), one row per worker."""
    shape = (MAX_WORKERS, CONTROL_WORDS)
    return np.ndarray(shape, dtype=np.int64, buffer=memory)


def private_after_fork(memory: mmap.mmap, fd: int) -> Callable[[], object]:
    """Return a function that a fork of this process calls to make its writes to the region private.

    Args:
        memory: the region, which must not be closed later.
        fd: its descriptor, open in the fork too.
    """
    if sys.platform != "linux":
        return lambda: None
    remap = ctypes.CDLL(None).mmap
    remap.restype = ctypes.c_void_p
    remap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    flags = mmap.MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE
    # Everything is prepared before the fork: a lock that another thread holds then is never released.
    arguments = (address, len(memory), mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
    return functools.partial(remap, *arguments)


class SlabMemory(aioloader.abc.SlabMemory):
    """The region and its free list; `aioloader.abc.SlabMemory` documents the methods.

    A lease ends with the last view of its arrays, in any thread; the next `free_pending` frees the slab. One thread
    allocates; any thread may call `free_later`, `free_pending` and `usage`.

    Args:
        limit: most bytes that slabs take together; None: `default_memory_limit`.
        shared: other processes use it.

    Attributes:
        used: bytes of slabs that are not free.
        peak: most bytes used so far, without reserves for results that might have been larger.
    """

    def __init__(self, limit: int | None = None, *, shared: bool = True) -> None:
        self.limit = max(_PAGE, (limit or default_memory_limit()) // _PAGE * _PAGE)
        self.fd, self.memory = _region(CONTROL_BYTES + self.limit, shared)
        self._free: list[tuple[int, int]] = [(CONTROL_BYTES, self.limit)]
        # By the identity of the reference: that of an array cannot be hashed. A reference whose object has died calls
        # `self._ended.append`, in any thread, which refers to the deque only and never to the memory.
        self._leases: dict[int, tuple[weakref.ref[Any], Slab]] = {}
        self._ended: deque[weakref.ref[Any]] = deque()
        self._to_free: deque[Slab] = deque()
        self.used = 0
        self._spare = 0
        self.leased = 0
        self.peak = 0
        self.forked = 0
        self._lock = threading.RLock()
        _regions.add(self)

    def allocate(self, nbytes: int, *, lasting: bool = False, spare: int = 0) -> Slab | None:
        # Lasting slabs are taken from the end, others from the start, so that the caller's batches do not fragment the
        # room for short-lived slabs.
        size = max(_PAGE, -(-nbytes // _PAGE) * _PAGE)
        with self._lock:
            self.free_pending()
            slab = self._take(size, lasting, spare)
        reclaim = self.reclaim
        if slab is not None or reclaim is None:
            return slab
        reclaim()  # it may wait for a thread that wants this lock
        with self._lock:
            return self._take(size, lasting, spare)

    def _take(self, size: int, lasting: bool, spare: int) -> Slab | None:
        places = range(len(self._free))
        for place in reversed(places) if lasting else places:
            offset, extent = self._free[place]
            if extent < size:
                continue
            if extent == size:
                del self._free[place]
            elif lasting:
                self._free[place] = (offset, extent - size)
                offset += extent - size
            else:
                self._free[place] = (offset + size, extent - size)
            self.used += size
            self._spare += spare
            self._note_peak()
            return Slab(offset, size, spare=spare)
        return None

    def _note_peak(self) -> None:
        self.peak = max(self.peak, self.used - self._spare)

    def free(self, slab: Slab) -> None:
        with self._lock:
            self._spare -= slab.spare
            slab.spare = 0
            self.used -= slab.nbytes
            place = bisect.bisect(self._free, (slab.offset, 0))
            start, size = slab.offset, slab.nbytes
            if place < len(self._free) and self._free[place][0] == start + size:
                size += self._free.pop(place)[1]
            if place and sum(self._free[place - 1]) == start:
                place -= 1
                start, before = self._free.pop(place)
                size += before
            self._free.insert(place, (start, size))

    def shrink(self, slab: Slab, nbytes: int) -> None:
        kept = max(_PAGE, -(-nbytes // _PAGE) * _PAGE)
        with self._lock:
            self._spare -= slab.spare
            slab.spare = 0
            if kept < slab.nbytes:
                rest = Slab(slab.offset + kept, slab.nbytes - kept)
                slab.nbytes = kept
                self.free(rest)
            self._note_peak()

    def free_later(self, slabs: Sequence[Slab]) -> None:
        self._to_free.extend(slabs)

    def view(self, slab: Slab) -> memoryview:
        return memoryview(self.memory)[slab.offset : slab.offset + slab.nbytes]

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return np.ndarray(tuple(shape), dtype=dtype, buffer=self.memory, offset=offset)

    def lease(self, slab: Slab, arrays: Sequence[Array]) -> None:
        with self._lock:
            self.leased += slab.nbytes
            slab.leases = len(arrays)
            for array in arrays:
                self._refer(array, slab)

    def lend(self, slab: Slab, parts: Sequence[tuple[int, tuple[int, ...], np.dtype[Any]]]) -> list[Array]:
        # All have one base, which is neither an array nor a memoryview, so that numpy does not collapse it: it dies
        # after the last of them.
        base = (ctypes.c_char * slab.nbytes).from_buffer(self.memory, slab.offset)
        with self._lock:
            self.leased += slab.nbytes
            slab.leases = 1
            self._refer(base, slab)
        buffer: Any = base
        return [np.ndarray(shape, dtype, buffer, place) for place, shape, dtype in parts]

    def _refer(self, holder: Any, slab: Slab) -> None:
        reference = weakref.ref(holder, self._ended.append)
        self._leases[id(reference)] = (reference, slab)

    def free_pending(self) -> None:
        """Free the slabs whose leases have ended, and those passed to `free_later`. From any thread.

        `allocate`, `usage` and `close` call it. The end of a lease wakes no task: tasks that wait for memory poll.
        """
        with self._lock:
            while self._to_free:
                self.free(self._to_free.popleft())
            while self._ended:
                _, slab = self._leases.pop(id(self._ended.popleft()))
                slab.leases -= 1
                if slab.leases == 0:
                    self.leased -= slab.nbytes
                    if slab.forked:
                        self.forked += slab.nbytes
                    else:
                        self.free(slab)

    def usage(self) -> tuple[int, int, int]:
        with self._lock:
            self.free_pending()
            return self.used, self.peak, self.limit

    def keep_leased(self) -> None:
        """Exclude leased slabs from reuse for ever. Called before a fork, in any thread."""
        for _, slab in list(self._leases.values()):
            slab.forked = True

    def close(self) -> None:
        # The mapping stays while an array over it lives; its free pages go back to the system.
        if len(self.memory) < CONTROL_BYTES:
            return
        self.free_pending()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        if self._leases and hasattr(mmap, "MADV_REMOVE"):
            for offset, extent in self._free:
                if extent >= _PAGE:
                    self.memory.madvise(mmap.MADV_REMOVE, offset, extent)
        self.memory = mmap.mmap(-1, 1)


# A fork shares the region: batches that the parent holds at that moment are in the child too, and must not change.
_regions: weakref.WeakSet[SlabMemory] = weakref.WeakSet()


_forking = threading.RLock()
_no_batches: int | None = None  # the thread that forks a process without use of them


@contextlib.contextmanager
def fork_without_batches() -> Iterator[None]:
    """Return a context in which this thread forks a process that uses none of the batches that this one holds."""
    global _no_batches
    with _forking:
        _no_batches = threading.get_ident()
        try:
            yield
        finally:
            _no_batches = None


def _before_fork() -> None:
    if _no_batches == threading.get_ident():
        return
    for region in list(_regions):
        region.keep_leased()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
