"""Fetch: the bytes of a whole batch with few awaits, into one slab."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._types import BASE, EPOCH, FILE, INDEX, LENGTH, OFFSET, ROW, START, Array, Failure, ReadPlan

if TYPE_CHECKING:
    from aioloader._pipeline.engine import Engine
    from aioloader._pipeline.plan import BatchPlan

__all__ = ("Fetch",)


class Fetch:
    """The input of one batch: its numbers, its bytes in a slab.

    Args:
        engine: the parts.
        plan: the batch.
        blocking: use the source's blocking methods; then nothing here suspends.

    Attributes:
        numbers: int64 (8, n), see `aioloader._types.Chunk`.
        extras: numbers that travel with the samples, or None.
        failures: samples whose bytes could not be had.
    """

    def __init__(self, engine: Engine, plan: BatchPlan, blocking: bool) -> None:
        self._engine = engine
        self._blocking = blocking
        n = len(plan.indices)
        self.numbers = np.zeros((8, n), dtype=np.int64)
        self.numbers[ROW] = np.arange(n)
        self.numbers[INDEX] = plan.indices
        self.numbers[EPOCH] = plan.epochs
        self.numbers[BASE] = engine.items.base(plan.indices)
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

    async def read(self) -> None:
        """Read into the slab, which has been allocated by now."""
        reads, self._reads = self._reads, None
        if reads is None or self.slab is None:
            return
        begin = perf_counter()
        source = self._engine.source
        out = self._engine.memory.view(self.slab)
        if self._blocking:
            failed = source.read_blocking(reads, out)
        else:
            failed = await source.read(reads, out)
        self.failures += [Failure(place, "read", error) for place, error in failed]
        self.numbers[START] = reads.start + self.slab.offset
        self.numbers[LENGTH] = reads.length
        self._engine.metrics.read(perf_counter() - begin, int(reads.length.sum()), len(self.numbers[ROW]))
