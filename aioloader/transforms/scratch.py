"""Reusable memory for decoded images.

Fresh memory for every image costs page faults, and threads contend for them. A buffer is handed out again only when
nobody can still see it: numpy keeps the owner of memory alive for as long as any view of it lives, so the owner's
reference count tells. It is compared with the count of an idle buffer taken by the very same expression, because what
that expression itself adds differs between Python versions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

__all__ = ("Scratch",)

_GRAIN = 1 << 18


class Scratch:
    """A pool of uint8 buffers for decoding. Not thread-safe: one per thread.

    An array made in a buffer may be kept for as long as one likes: its buffer is then not used again, and the pool
    takes a new one. Only a bare address (``ctypes.data``) does not keep a buffer; hold the array too.

    Args:
        buffers: how many buffers are kept at most.
        max_nbytes: larger requests get memory of their own, which is not kept.

    Pickling gives an empty pool with the same limits.
    """

    __slots__ = ("_buffers", "_idle", "_oldest", "buffers", "max_nbytes")

    def __init__(self, buffers: int = 4, max_nbytes: int = 1 << 26) -> None:
        if buffers < 1 or max_nbytes < 0:
            raise ValueError(
                f"Scratch needs buffers >= 1 and max_nbytes >= 0, got {buffers!r} and {max_nbytes!r}"
            )
        self.buffers = buffers
        self.max_nbytes = max_nbytes
        self._buffers: list[Array] = [np.empty(1, np.uint8)]
        self._oldest = 0
        self._idle = self._references(0)
        held = self._buffers[0][:]
        if self._references(0) != self._idle + 1:
            # An interpreter that does not count references: nothing is ever known to be idle.
            self._idle = -1
        del held
        self._buffers.clear()

    def __reduce__(self) -> tuple[type[Scratch], tuple[int, int]]:
        return type(self), (self.buffers, self.max_nbytes)

    def __repr__(self) -> str:
        return f"Scratch(buffers={self.buffers}, max_nbytes={self.max_nbytes})"

    def _references(self, place: int) -> int:
        return sys.getrefcount(self._buffers[place])

    @property
    def nbytes(self) -> int:
        """Bytes held by the pool, in use or idle."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def take(self, nbytes: int) -> Array:
        """A buffer that nobody else sees, its content arbitrary.

        Args:
            nbytes: size, at least 0.

        Returns:
            uint8 (nbytes,), C-contiguous and writable.
        """
        buffers = self._buffers
        small = -1
        for place in range(len(buffers)):
            if self._references(place) == self._idle:
                if buffers[place].size >= nbytes:
                    return buffers[place][:nbytes]
                small = place
        if nbytes > self.max_nbytes:
            return np.empty(nbytes, np.uint8)
        size = min(-(-max(nbytes, 1) // _GRAIN) * _GRAIN, max(self.max_nbytes, nbytes, 1))
        if small < 0:
            if len(buffers) < self.buffers:
                small = len(buffers)
                buffers.append(np.empty(0, np.uint8))
            else:
                # All are in use: whoever holds the oldest keeps it, the pool lets it go.
                small = self._oldest
                self._oldest = (self._oldest + 1) % self.buffers
        # Freed before its successor is made, so that the two never stand side by side.
        buffers[small] = np.empty(0, np.uint8)
        buffers[small] = np.empty(size, np.uint8)
        return buffers[small][:nbytes]
