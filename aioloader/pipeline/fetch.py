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
    from aioloader.pipeline.context import Engine
    from aioloader.pipeline.plan import BatchPlan

__all__ = ("Fetch",)


class Fetch:
    """The input of one batch: its numbers, its bytes in a slab.

    Args:
        engine: the parts.
        plan: the batch.
        blocking: use the source's blocking methods; then nothing here suspends.

    Attributes:
        numbers: int64 (8, n), see `aioloader.foundation.types.Chunk`.
        extras: numbers that travel with the samples, or None.
        failures: samples whose bytes could not be had.
    """

    def __init__(self, engine: Engine, plan: BatchPlan, blocking: bool) -> None:
        self._engine = engine
        self._blocking = blocking
        n = len(plan.indices)
        self.numbers = np.zeros((8, n), dtype=np.int64)
        self.numbers[ROW] = np.arange(n)
        base = engine.items.base(plan.indices)
        # One item is one item, and draws the same, whether it is counted from the start or from the end.
        self.numbers[INDEX] = np.where(plan.indices < 0, plan.indices + engine.items.length, plan.indices)
        self.numbers[EPOCH] = plan.epochs
        self.numbers[BASE] = base
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
        items = self._engine.items
        if items.spans is None:
            return
        base = self.numbers[BASE]
        spans = items.spans(base)
        self.numbers[FILE] = spans.file
        self.numbers[OFFSET] = spans.offset
        if items.extras is not None:
            self.extras = items.extras(base)
        source = self._engine.source
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
        self._engine.metrics.read(perf_counter() - begin, int(reads.length.sum()), len(self.numbers[ROW]))

    async def _read(self, reads: ReadPlan, slab: Any, items: IntArray) -> dict[int, int]:
        """Read some items of the batch; gives those that are longer than planned, and their length."""
        source = self._engine.source
        if reads.mapped:
            self.numbers[START, items] = -1
            self.numbers[LENGTH, items] = reads.length
            return {}
        out = self._engine.memory.view(slab)
        failed = source.read_blocking(reads, out) if self._blocking else await source.read(reads, out)
        longer: dict[int, int] = {}
        for place, error in failed:
            item = int(items[place])
            if isinstance(error, SpanTooShortError) and error.needed > reads.length[place]:
                longer[item] = error.needed
            else:
                self.failures.append(Failure(item, "read", error))
        self.numbers[START, items] = reads.start + slab.offset
        self.numbers[LENGTH, items] = reads.length
        return longer

    async def _read_longer(self, longer: dict[int, int], owned: list[Any]) -> None:
        """Read items again whose real length is known now. That happens only where an index is wrong."""
        items = np.array(list(longer), np.int64)
        spans = Spans(
            self.numbers[FILE, items], self.numbers[OFFSET, items], np.array(list(longer.values()), np.int64)
        )
        source = self._engine.source
        reads = source.plan_blocking(spans) if self._blocking else await source.plan(spans)
        failed = {place for place, _ in reads.failures}
        self.failures += [Failure(int(items[place]), "read", error) for place, error in reads.failures]
        slab = None if reads.mapped else self._engine.memory.allocate(reads.nbytes)
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
        return LoaderError(f"the file changed while the record at byte {self.numbers[OFFSET, item]} was read")
