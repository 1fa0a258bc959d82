"""Region of slab memory for the results of a chunk that have no row: the spill region."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mmap

    from aioloader.foundation.types import Array

_ALIGN = 64


class Spill:
    """Part of the slab memory that is filled from its start.

    Args:
        memory: the slab memory, writable.
        spill: (offset, nbytes) of the region in it.
    """

    def __init__(self, memory: mmap.mmap, spill: tuple[int, int]) -> None:
        self._memory = memory
        self._start, room = spill
        self._next = self._start
        self._end = self._start + room

    @staticmethod
    def extent(nbytes: int) -> int:
        """Return the bytes that an array of `nbytes` takes, with the space to the next one."""
        return -(-nbytes // _ALIGN) * _ALIGN

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in the region, or in new memory where it does not fit or is empty."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not nbytes or self._next + nbytes > self._end:
            return np.empty(shape, dtype)
        offset, self._next = self._next, self._next + self.extent(nbytes)
        return np.ndarray(shape, dtype, self._memory, offset)

    def write(self, data: memoryview) -> tuple[int, int] | None:
        """Write bytes to the region; return their (offset, nbytes) in the memory, or None if there is no room."""
        if not data.nbytes or self._next + data.nbytes > self._end:
            return None
        offset, self._next = self._next, self._next + self.extent(data.nbytes)
        region = np.frombuffer(self._memory, np.uint8, data.nbytes, offset)
        region[:] = np.frombuffer(data, np.uint8)  # which lets other threads run, as a copy of bytes does not
        return offset, data.nbytes

    def place_of(self, data: memoryview) -> tuple[int, int] | None:
        """Return the (offset, nbytes) of bytes that are in the region already; they are not overwritten any more.

        None for bytes elsewhere.
        """
        if self._start == self._end or not data.nbytes:
            return None
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        address: int = np.frombuffer(data, np.uint8).ctypes.data
        offset = address - base
        if not self._start <= offset <= offset + data.nbytes <= self._end:
            return None
        self._next = max(self._next, offset + self.extent(data.nbytes))
        return offset, data.nbytes
