"""The stage "fetch": read the bytes of a whole batch with few awaits, into one slab.

Planning the reads is here too: it fills the batch's index table, and finds how many bytes of slab memory are needed.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from aioloader.errors import LoaderError, SpanTooShortError
from aioloader.foundation.types import (
    BASE,
    EPOCH,
    FILE,
    INDEX,
    INDEX_TABLE_ROWS,
    LENGTH,
    OFFSET,
    POSITION,
    ROW,
    START,
    Array,
    Failure,
    IntArray,
    ReadPlan,
    Slab,
    Spans,
)
from aioloader.pipeline.plan import BatchPlan, base_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import ByteSource
    from aioloader.pipeline.context import PipelineContext

# See `aioloader.abc.ByteSource.reads_parts`.
_ALIGNMENT = 64
_NO_ROOM = "the item has to be read again, and no slab memory is free for it: raise memory_limit"


def _rooms(nbytes: IntArray) -> IntArray:
    """Return the bytes of memory that a source needs for items of some sizes, at most."""
    rooms: IntArray = -(-np.maximum(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
    return rooms


class Fetch:
    """Input of one batch: its index table, and its bytes in a slab.

    Args:
        context: the shared parts.
        plan: the batch.
        source: reads the bytes; None without a byte part.
        whole: read all items whole.

    Attributes:
        index_table: int64 (9, n), see `aioloader.foundation.types.Chunk`.
        extras: numbers that belong to the samples, or their keys; or None.
        failures: samples whose bytes could not be read.
        slab: takes the bytes; allocated between `plan` and `read`.
    """

    def __init__(
        self, context: PipelineContext, plan: BatchPlan, source: ByteSource | None, *, whole: bool = False
    ) -> None:
        self._context = context
        self._source = source
        self._whole = whole
        self._partial = None if whole else context.items.partial
        self._whole_nbytes: IntArray | None = None  # of each item, if some are partial
        n = len(plan.indices)
        self.index_table = np.zeros((INDEX_TABLE_ROWS, n), dtype=np.int64)
        self.index_table[ROW] = np.arange(n)
        # An item draws the same random numbers whether its index counts from the start or from the end.
        self.index_table[INDEX], self.index_table[BASE] = base_indices(context.items, plan.indices)
        self.index_table[EPOCH] = plan.epochs
        self.index_table[POSITION] = plan.positions
        self.extras: Array | None = plan.keys
        self.failures: list[Failure] = []
        self.slab: Slab | None = None
        self._reads: ReadPlan | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of slab memory that the batch needs; known after `plan`."""
        if self._reads is None:
            return 0
        if self._whole_nbytes is None:
            return self._reads.nbytes
        # Room for `read_whole`: a batch that is collated as a whole is read whole at once, any other in groups.
        rooms = _rooms(self._whole_nbytes)
        whole = rooms.sum() if self._context.custom_collate else rooms.max()
        return max(self._reads.nbytes, int(whole))

    async def plan(self) -> None:
        """Find where the bytes are and how many."""
        items = self._context.items
        if items.spans is None or self._source is None:
            return
        base = self.index_table[BASE]
        spans = (
            items.whole_spans(base) if self._whole and items.whole_spans is not None else items.spans(base)
        )
        self.index_table[FILE] = spans.file
        self.index_table[OFFSET] = spans.offset
        if items.extras is not None:
            self.extras = items.extras(base)
        whole = spans.length
        narrowed = None
        if self._partial is not None:
            draws = self.index_table[[INDEX, EPOCH, POSITION]]
            narrowed = await self._partial.narrow(spans, *draws)
        if narrowed is not None:
            spans, self.extras = narrowed
        self._reads = reads = await self._source.plan(spans)
        if reads.partial is not None:
            # The source may know better how long the others are.
            self._whole_nbytes = np.where(reads.partial, whole, reads.length)
        if reads.failures:
            self.failures = [Failure(place, "fetch", error) for place, error in reads.failures]
        if not self.nbytes:
            self._reads = None
            self.index_table[START, reads.mapped] = -1
            self.index_table[LENGTH] = reads.length
            self._context.metrics.bytes_read += int(reads.length.sum())

    @property
    def waits(self) -> bool:
        """Return whether there is something to read; known after `plan`."""
        return self._reads is not None

    async def read(self, owned: list[Slab]) -> None:
        """Read into the slab, if there is anything to read.

        Args:
            owned: receives further slabs that turn out to be needed.
        """
        reads, self._reads = self._reads, None
        if reads is None:
            return
        begin = perf_counter()
        longer = await self._read(reads, self.slab, np.arange(len(reads.start)))
        if longer:
            await self._read_longer(longer, owned)
        metrics = self._context.metrics
        metrics.fetch_s += perf_counter() - begin
        metrics.bytes_read += int(reads.length.sum())

    async def _read(self, reads: ReadPlan, slab: Slab | None, items: IntArray) -> dict[int, int]:
        """Read some items of the batch; return the lengths of those that are longer than planned, by item."""
        assert self._source is not None
        longer: dict[int, int] = {}
        self.index_table[START, items[reads.mapped]] = -1
        self.index_table[LENGTH, items] = reads.length
        if slab is None:
            return longer
        for place, error in await self._source.read(reads, self._context.memory.view(slab)):
            item = int(items[place])
            if isinstance(error, SpanTooShortError) and error.needed > reads.length[place]:
                longer[item] = error.needed
            else:
                self.failures.append(Failure(item, "fetch", error))
        read = np.delete(np.arange(len(items)), reads.mapped)
        self.index_table[START, items[read]] = reads.start[read] + slab.offset
        return longer

    @property
    def has_parts(self) -> bool:
        """Return True if only parts of some items were read, or nothing."""
        return self._whole_nbytes is not None

    def exclude(self, rows: Sequence[int]) -> None:
        """Exclude items from partial reads: their samples could not be made of the parts that were read."""
        if self._partial is not None:
            for file, offset in self.index_table[[FILE, OFFSET]][:, rows].T.tolist():
                self._partial.exclude(file, offset)

    async def read_whole(self, rows: IntArray, owned: list[Slab]) -> tuple[IntArray, list[Failure]]:
        """Read items whole, into the memory of the batch, which nothing else may need any more.

        Args:
            rows: of the items.
            owned: as for `read`.

        Returns:
            the rows that had room in this memory, at least one; and the failures among them.
        """
        assert self._whole_nbytes is not None
        assert self._source is not None
        assert self.slab is not None
        fits = np.cumsum(_rooms(self._whole_nbytes[rows])) <= self.slab.nbytes
        rows = rows[fits]
        items, begin = self._context.items, perf_counter()
        assert items.whole_spans is not None
        spans = items.whole_spans(self.index_table[BASE, rows])
        self.index_table[FILE, rows], self.index_table[OFFSET, rows] = spans.file, spans.offset
        reads = await self._source.plan(spans)
        slab: Slab | None = self.slab
        if reads.nbytes > self.slab.nbytes:  # sizes of files were not known, or are others now
            slab = self._context.memory.allocate(reads.nbytes)
            if slab is None:
                return rows, [Failure(row, "fetch", LoaderError(_NO_ROOM)) for row in rows.tolist()]
            owned.append(slab)
        before, self.failures = self.failures, []
        longer = await self._read(reads, slab, rows)
        if longer:
            await self._read_longer(longer, owned)
        failures, self.failures = self.failures, before
        failures += [Failure(int(rows[place]), "fetch", error) for place, error in reads.failures]
        if self.extras is not None and self._partial is not None:
            self.extras[rows] = 0
        metrics = self._context.metrics
        metrics.fetch_s += perf_counter() - begin
        metrics.bytes_read += int(reads.length.sum())
        return rows, failures

    async def _read_longer(self, longer: dict[int, int], owned: list[Slab]) -> None:
        """Read items again whose real length is known now. That happens only where an index is wrong."""
        items = np.array(list(longer), np.int64)
        spans = Spans(
            self.index_table[FILE, items],
            self.index_table[OFFSET, items],
            np.array(list(longer.values()), np.int64),
        )
        assert self._source is not None
        reads = await self._source.plan(spans)
        failed = {place for place, _ in reads.failures}
        self.failures += [Failure(int(items[place]), "fetch", error) for place, error in reads.failures]
        slab = self._context.memory.allocate(reads.nbytes) if reads.nbytes else None
        if slab is not None:
            owned.append(slab)
        if slab is not None or not reads.nbytes:
            for item in await self._read(reads, slab, items):
                offset = self.index_table[OFFSET, item]
                changed = LoaderError(f"the file changed while the record at byte {offset} was read")
                self.failures.append(Failure(item, "fetch", changed))
            return
        short = LoaderError(
            f"{reads.nbytes} bytes of slab memory are needed to read it whole, and fewer are free: raise memory_limit"
        )
        self.failures += [
            Failure(int(item), "fetch", short) for place, item in enumerate(items) if place not in failed
        ]
