"""Slab memory of a batch, and of the images that a service makes together: taken, waited for, lent and given back."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.concurrency import RefCount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioloader.abc import SlabMemory
    from aioloader.foundation.types import Array, RowLayout, Slab

# Batches in flight may reserve one part in four of the slab memory for results of an unknown size.
_RESERVED = 4
_ALIGN = 64
PATIENCE_S = 2.0
"""Time after which memory that nothing else in flight will free counts as held by the caller."""


async def wait_for_room(
    take: Callable[[], bool],
    *,
    others: Callable[[], bool],
    give_way: Callable[[float], bool],
    pause: Callable[[], Awaitable[object]],
) -> None:
    """Wait until there is room in slab memory. A lease that the caller releases sends no signal, so it asks repeatedly.

    Args:
        take: takes the room; returns whether there was any.
        others: returns whether others in flight will free theirs.
        give_way: called with the seconds for which none would; returns True if it asks for less from now on, and
            raises where waiting does not help.
        pause: waits before the next attempt.
    """
    alone_since = None
    while not take():
        if others():
            alone_since = None
        else:
            now = perf_counter()
            alone_since = alone_since or now
            if give_way(now - alone_since):
                continue
        await pause()


@dataclass(slots=True)
class Spill:
    """Slab memory for results without rows: how much batches need.

    Attributes:
        per_sample: bytes for each sample.
        guessed: no batch was completed yet: it is 0, or that of samples that were made before the layout of the rows
            was known.
        limit: most bytes for a batch: less than the memory has if that much was never free.
    """

    per_sample: int = 0
    guessed: bool = True
    limit: int = sys.maxsize

    def known(self, rows: int) -> int:
        """Return the bytes that a batch is known to need."""
        return min(self.per_sample * rows, self.limit)

    def guess(self, nbytes: int) -> None:
        """Take the size of a sample that was made before the layout of the rows was known.

        Later samples need as much if they do not fit the rows, and nothing if they do, which the first batch shows.
        """
        if self.guessed:
            self.per_sample = max(self.per_sample, _with_room(nbytes))

    def learn(self, nbytes: int) -> None:
        """Take the bytes for each sample that the results of a batch needed."""
        if self.guessed:
            self.guessed = False
            self.per_sample = 0
        if nbytes:
            self.per_sample = max(self.per_sample, _with_room(nbytes))

    def reserve(self, memory: SlabMemory, batches: int) -> int:
        """Return the bytes to reserve for a batch while they are only guessed.

        All batches in flight together reserve at most a quarter of the memory; a batch returns what it has not used.

        Args:
            memory: the slab memory.
            batches: the most that are in flight; 0: their results have no use for it.
        """
        if not batches:
            return 0
        return memory.limit // (_RESERVED * batches) // _ALIGN * _ALIGN

    def limit_to(self, memory: SlabMemory, rows: int) -> bool:
        """Ask for less from now on, because it cannot be had; what does not fit is sent through the worker's socket.

        Returns:
            False if a batch of `rows` samples needs none already.
        """
        needed = self.known(rows)
        if not needed:
            return False
        room = (memory.limit - memory.leased - memory.forked) // 4
        self.limit = min(room, needed // 2) // _ALIGN * _ALIGN
        return True


def _with_room(nbytes: int) -> int:
    # Chunks get equal shares of the spill, but samples need not be equal.
    return nbytes * 5 // 4


class BatchMemory(RefCount):
    """Slab memory of one batch, and the count of those who use it: whoever makes the batch, and each of its chunks.

    The last one to leave passes the slabs to `free_later`, but not one that the caller has meanwhile (`lease`).

    Args:
        memory: contains the slabs.
        rows: samples of the batch.
        layout: of a row; None: there are no arrays, and samples are returned by value.

    Attributes:
        owned: the slabs.
        slab: contains an array for each leaf of a sample, with a row for each sample, and the spill region; or None.
        bases: byte offset in the slab memory of each leaf's array.
        spill: (offset, nbytes) in the slab memory for results that have no row.
        nbytes: that the rows and the spill region are known to need.
        reserves: the spill region is larger than that, because the size of the results is not known.
    """

    def __init__(self, memory: SlabMemory, rows: int, layout: RowLayout | None = None) -> None:
        self.owned: list[Slab] = []
        # Not a method of this object: that would be a cycle, and the memory would wait for the garbage collector.
        super().__init__(functools.partial(memory.free_later, self.owned))
        self._memory = memory
        self.rows = rows
        self.layout = layout
        self.slab: Slab | None = None
        self.bases: tuple[int, ...] = ()
        self.spill = (0, 0)
        self.nbytes = 0
        self.reserves = False

    def allocate(self, layout: RowLayout | None, spill: Spill, batches: int) -> bool:
        """Take a slab for the rows and the spill region, if they need one; return False if there is no room.

        Args:
            layout: of a row, or None.
            spill: how large the spill region has to be.
            batches: see `Spill.reserve`.
        """
        self.layout = layout
        offsets, total = ([], 0) if layout is None else layout.offsets(self.rows)
        self.bases = (0,) * len(offsets)
        self.nbytes = total + spill.known(self.rows)
        reserve = spill.reserve(self._memory, batches) if spill.guessed else 0
        most = max(self.nbytes, total + reserve)
        if not most:
            return True
        slab = self._memory.allocate(most, lasting=True, spare=most - self.nbytes)
        if slab is None and most > self.nbytes:
            # Without the reserve large results take the way of small ones.
            most = self.nbytes
            if not most:
                return True
            slab = self._memory.allocate(most, lasting=True)
        if slab is None:
            return False
        self.reserves = most > self.nbytes
        self.owned.append(slab)
        self.place(slab, offsets, total, most)
        return True

    def place(self, slab: Slab, offsets: Sequence[int], total: int, nbytes: int) -> None:
        """Place the arrays at their offsets in a slab, and the spill region behind their `total` bytes, to `nbytes`."""
        self.slab = slab
        self.bases = tuple([slab.offset + offset for offset in offsets])
        self.spill = (slab.offset + total, (nbytes - total) // 64 * 64)

    def drop(self, *, free: bool) -> None:
        """Do without the slab, as before `allocate`; `free`: no worker may still write to it."""
        if self.slab is not None and free:
            self.owned.remove(self.slab)
            self._memory.free(self.slab)
        self.slab, self.layout, self.bases, self.spill, self.reserves = None, None, (), (0, 0), False

    def trim_reserve(self, roots: Sequence[Array]) -> None:
        """Free the part of the reserve that was not needed. No worker may still write to the slab.

        Args:
            roots: the arrays in the spill region that are still needed.
        """
        assert self.slab is not None
        start, end = self.slab.offset, self.spill[0]
        if roots:
            begin = self._memory.array(start, (1,), np.dtype(np.uint8)).ctypes.data
            end = max(end, *(start + root.ctypes.data - begin + root.nbytes for root in roots))
        self._memory.shrink(self.slab, end - start)
        self.nbytes = self.slab.nbytes

    def lease(self, roots: Sequence[Array]) -> None:
        """Lend the slab to the caller, until the last view of these arrays in it ends."""
        assert self.slab is not None
        self._memory.lease(self.slab, roots)
        self.owned.remove(self.slab)


def may_lease(memory: SlabMemory, nbytes: int, largest: int = 0) -> bool:
    """Return True if the caller may keep `nbytes` more of slab memory: at most half, and never what batches need.

    The slabs that are kept fragment the memory, hence three times the bytes of the largest batch.
    """
    leased = memory.leased + nbytes
    return 2 * leased <= memory.limit and leased + 3 * largest <= memory.limit
