"""Fetch: the bytes of a whole batch with few awaits, into one slab."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import LoaderError, SpanTooShortError
from aioloader.foundation.types import (
    BASE,
    EPOCH,
    FILE,
    INDEX,
    LENGTH,
    OFFSET,
    ROW,
    START,
    Array,
    Failure,
    IntArray,
    ReadPlan,
    Spans,
)

if TYPE_CHECKING:
    from aioloader.pipeline.context import PipelineContext
    from aioloader.pipeline.plan import BatchPlan

__all__ = ("Fetch",)


class Fetch:
    """The input of one batch: its numbers, its bytes in a slab.

    Args:
        context: the parts.
        plan: the batch.
        blocking: use the source's blocking methods; then nothing here suspends.

    Attributes:
        index_table: int64 (8, n), see `aioloader.foundation.types.Chunk`.
        extras: numbers that travel with the samples, or None.
        failures: samples whose bytes could not be had.
    """

    def __init__(self, context: PipelineContext, plan: BatchPlan, blocking: bool) -> None:
        self._context = context
        self._blocking = blocking
        n = len(plan.indices)
        self.index_table = np.zeros((8, n), dtype=np.int64)
        self.index_table[ROW] = np.arange(n)
        base = context.items.base(plan.indices)
        # One item is one item, and draws the same, whether it is counted from the start or from the end.
        self.index_table[INDEX] = np.where(
            plan.indices < 0, plan.indices + context.items.length, plan.indices
        )
        self.index_table[EPOCH] = plan.epochs
        self.index_table[BASE] = base
        self.extras: Array | None = None
        self.failures: list[Failure] = []
        self.slab: Any = None
        self._reads: ReadPlan | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of slab that the batch needs; known after `plan`."""
        return 0 if self._reads is None else self._reads.nbytes

    async def plan(self) -> None:
        """Find out where the bytes are and how many."""
        items = self._context.items
        if items.spans is None:
            return
        base = self.index_table[BASE]
        spans = items.spans(base)
        self.index_table[FILE] = spans.file
        self.index_table[OFFSET] = spans.offset
        if items.extras is not None:
            self.extras = items.extras(base)
        source = self._context.source
        reads = source.plan_blocking(spans) if self._blocking else await source.plan(spans)
        self._reads = reads
        self.failures = [Failure(place, "read", error) for place, error in reads.failures]

    async def read(self, owned: list[Any]) -> None:
        """Read into the slab, which has been allocated by now.

        Args:
            owned: takes further slabs that turn out to be needed.
        """
        reads, self._reads = self._reads, None
        if reads is None or (self.slab is None and not reads.mapped):
            return
        begin = perf_counter()
        longer = await self._read(reads, self.slab, np.arange(len(reads.start)))
        if longer:
            await self._read_longer(longer, owned)
        self._context.metrics.read(
            perf_counter() - begin, int(reads.length.sum()), len(self.index_table[ROW])
        )

    async def _read(self, reads: ReadPlan, slab: Any, items: IntArray) -> dict[int, int]:
        """Read some items of the batch; gives those that are longer than planned, and their length."""
        source = self._context.source
        if reads.mapped:
            self.index_table[START, items] = -1
            self.index_table[LENGTH, items] = reads.length
            return {}
        out = self._context.memory.view(slab)
        failed = source.read_blocking(reads, out) if self._blocking else await source.read(reads, out)
        longer: dict[int, int] = {}
        for place, error in failed:
            item = int(items[place])
            if isinstance(error, SpanTooShortError) and error.needed > reads.length[place]:
                longer[item] = error.needed
            else:
                self.failures.append(Failure(item, "read", error))
        self.index_table[START, items] = reads.start + slab.offset
        self.index_table[LENGTH, items] = reads.length
        return longer

    async def _read_longer(self, longer: dict[int, int], owned: list[Any]) -> None:
        """Read items again whose real length is known now. That happens only where an index is wrong."""
        items = np.array(list(longer), np.int64)
        spans = Spans(
            self.index_table[FILE, items],
            self.index_table[OFFSET, items],
            np.array(list(longer.values()), np.int64),
        )
        source = self._context.source
        reads = source.plan_blocking(spans) if self._blocking else await source.plan(spans)
        failed = {place for place, _ in reads.failures}
        self.failures += [Failure(int(items[place]), "read", error) for place, error in reads.failures]
        slab = None if reads.mapped else self._context.memory.allocate(reads.nbytes)
        if slab is not None:
            owned.append(slab)
        if slab is not None or reads.mapped:
            again = await self._read(reads, slab, items)
            self.failures += [Failure(item, "read", self._changed(item)) for item in again]
            return
        short = LoaderError(
            f"no {reads.nbytes} bytes of slab memory are free to read it whole: raise memory_limit"
        )
        self.failures += [
            Failure(int(item), "read", short) for place, item in enumerate(items) if place not in failed
        ]

    def _changed(self, item: int) -> LoaderError:
        return LoaderError(
            f"the file changed while the record at byte {self.index_table[OFFSET, item]} was read"
        )
