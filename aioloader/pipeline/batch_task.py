"""One batch's way: plan its reads, get memory, read, hand chunks to the executor, collate what comes back.

`BatchTask` is used by the pipeline (several at a time) and by the direct pass (one after the other); the order of the
steps is the same: ``plan_reads``, ``allocate``, ``discover`` while the rows' layout is unknown, ``complete``.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import numpy as np

from aioloader.errors import LoaderError, SampleError
from aioloader.foundation.concurrency import RefCount
from aioloader.foundation.replacement import fallback_indices, replacement_rows
from aioloader.foundation.types import BASE, INDEX, Array, Chunk, ChunkResult, Failure, RowLayout
from aioloader.observability.timeline import BatchTimeline
from aioloader.pipeline.collate import collate
from aioloader.pipeline.context import Delivery, PipelineContext
from aioloader.pipeline.fetch import Fetch
from aioloader.pipeline.plan import BatchPlan

__all__ = ("BatchTask",)

_SPILL_ALIGN = 4096

Run = Callable[[list[Chunk]], Awaitable[ChunkResult]]


class BatchTask:
    """A batch being made.

    Args:
        context: the parts.
        plan: which samples.
        blocking: nothing here may suspend (see `aioloader.pipeline.inline`).

    Attributes:
        timeline: where it is, and where it was.
    """

    def __init__(self, context: PipelineContext, plan: BatchPlan, blocking: bool = False) -> None:
        self.context = context
        self.plan = plan
        self._fetch = Fetch(context, plan, blocking)
        self._blocking = blocking
        self._result = ChunkResult()
        self._layout: RowLayout | None = None
        self._slab: Any = None
        self._bases: tuple[int, ...] = ()
        self._spill = (0, 0)
        self._done: list[int] = []
        self._is_read = False
        self._substitute: int | None = None
        self.timeline = BatchTimeline()
        # Not a method of this job: that would be a cycle, and memory would wait for the garbage collector.
        self._owned: list[Any] = []
        self._holders = RefCount(functools.partial(context.memory.retire, self._owned))

    @property
    def rows(self) -> int:
        """Samples of the batch, failed ones included."""
        return len(self.plan.indices)

    async def plan_reads(self) -> None:
        """First step."""
        await self._fetch.plan()

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(self) -> bool:
        """Take the slabs that are known to be needed; False if there is no room now (nothing is taken then)."""
        memory = self.context.memory
        taken = None
        if self._fetch.slab is None and self._fetch.nbytes:
            taken = memory.allocate(self._fetch.nbytes)
            if taken is None:
                return False
        if self._slab is None and not self._allocate_rows():
            if taken is not None:
                memory.free(taken)
            return False
        if taken is not None:
            self._fetch.slab = taken
            self._owned.append(taken)
        sizes = [slab.nbytes for slab in (self._fetch.slab, self._slab) if slab is not None]
        self.context.largest_batch = max(self.context.largest_batch, sum(sizes))
        return True

    def _allocate_rows(self) -> bool:
        context = self.context
        self._layout = None if context.custom_collate else context.layout
        offsets: list[int] = []
        total = 0
        if self._layout is not None:
            offsets, total = self._layout.offsets(self.rows)
        spill = context.spill_per_sample * self.rows
        if not total + spill:
            self._bases = (0,) * len(offsets)
            return True
        slab = context.memory.allocate(total + spill, lasting=True)
        if slab is None:
            return False
        self._slab = slab
        self._owned.append(slab)
        self._bases = tuple(slab.offset + offset for offset in offsets)
        self._spill = (slab.offset + total, spill)
        return True

    def too_large(self) -> LoaderError:
        """The error that says that the batch does not fit into slab memory."""
        memory = self.context.memory
        rows = 0 if self.context.layout is None else self.context.layout.offsets(self.rows)[1]
        needed = self._fetch.nbytes + rows + self.context.spill_per_sample * self.rows
        return LoaderError(
            f"a batch of {self.rows} samples needs {needed} bytes, but of memory_limit={memory.limit} bytes "
            f"only {memory.limit - memory.leased - memory.forked} are not held by batches that are kept, here or by "
            "forks of this process: raise memory_limit, make batches smaller, or keep fewer of them"
        )

    # -- work --------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        self.timeline.enter("read")
        await self._fetch.read(self._owned)
        self._result.failures += self._fetch.failures
        self._done += [failure.row for failure in self._fetch.failures]

    async def discover(self, run: Run) -> None:
        """Make samples one by one, by value, until one tells the layout of the rows."""
        await self._read()
        self.timeline.enter("work")
        for row in range(self.rows):
            if self.context.layout is not None:
                break
            if row in self._done:
                continue
            result = await self._worked(run, [self._chunk(np.asarray([row]))])
            self._done.append(row)
            self._result.merge(result)
            for sample in result.values.values():
                self.context.learn(sample)

    def _chunk(self, rows: Array, part: int = 0, parts: int = 1) -> Chunk:
        index_table = self._fetch.index_table
        if len(rows) < self.rows:
            index_table = np.ascontiguousarray(index_table[:, rows])
        extras = None if self._fetch.extras is None else self._fetch.extras[rows]
        start, room = self._spill
        share = room // parts // 64 * 64
        spill = (start + part * share, share)
        given = self.plan.samples
        samples = None if given is None else [given[row] for row in rows]
        self._holders.enter()
        return Chunk(
            batch=self.plan.number,
            index_table=index_table,
            rows=self.rows,
            extras=extras,
            layout=self._layout,
            bases=self._bases,
            custom_collate=self.context.custom_collate,
            spill=spill,
            release=self._holders.leave,
            samples=samples,
        )

    def _chunks(self) -> list[Chunk]:
        rows = np.arange(self.rows)
        if self._done:
            rows = np.setdiff1d(rows, self._done)
        if not len(rows):
            return []
        size = len(rows) if self.context.custom_collate else self.context.chunk_size(len(rows))
        pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [self._chunk(piece, part, len(pieces)) for part, piece in enumerate(pieces)]

    async def _worked(self, run: Run, chunks: list[Chunk]) -> ChunkResult:
        """Have chunks run, and enter what that took."""
        begin = perf_counter()
        result = await run(chunks)
        self.context.metrics.worked(
            perf_counter() - begin, result.work_s, result.longest_s, result.cpu_s, result.pauses
        )
        if result.spans:
            self.timeline.spans += [(begin, span) for span in result.spans]
        if result.calls:
            self.timeline.calls += result.calls
        return result

    async def complete(self, run: Run) -> Delivery:
        """Make what is left of the samples, and the batch. A failure of the batch is in the delivery."""
        try:
            await self._read()
            self.timeline.enter("work")
            chunks = self._chunks()
            if chunks:
                self._result.merge(await self._worked(run, chunks))
            if self._result.failures and self.context.on_error == "replace" and not self._sound():
                await self._find_substitute(run)
            self.timeline.enter("deliver")
            return self._deliver()
        except Exception as error:
            error.add_note(f"in batch {self.plan.number} of this pass")
            return Delivery(self.plan.consumed, error=error)
        except SystemExit as error:
            ended = LoaderError("the batchify function called sys.exit")
            ended.__cause__ = error
            return Delivery(self.plan.consumed, error=ended)
        finally:
            self._holders.leave()

    def _sound(self) -> list[int]:
        failed = {failure.row for failure in self._result.failures}
        return [row for row in range(self.rows) if row not in failed]

    async def _find_substitute(self, run: Run) -> None:
        """Make one sample from elsewhere for a batch that has no sound one of its own; by value, as its row 0."""
        context, plan, result = self.context, self.plan, self._result
        if plan.samples is not None:
            return  # there is no elsewhere: what comes next is the next batch's
        if self._fetch.slab is not None and not result.tainted:
            # Nobody reads it any more: so there is room for one sample, however scarce memory is.
            self._owned.remove(self._fetch.slab)
            context.memory.free(self._fetch.slab)
            self._fetch.slab = None
        for index in fallback_indices(int(self._fetch.index_table[INDEX, 0]), context.items.length):
            one = BatchPlan(plan.number, plan.position, np.asarray([index]), plan.epochs[:1], plan.consumed)
            fetch = Fetch(context, one, self._blocking)
            await fetch.plan()
            if fetch.nbytes:
                fetch.slab = context.memory.allocate(fetch.nbytes)
                if fetch.slab is None:
                    return
                self._owned.append(fetch.slab)
            await fetch.read(self._owned)
            if fetch.failures:
                continue
            self._holders.enter()
            chunk = Chunk(
                batch=plan.number,
                index_table=fetch.index_table,
                rows=self.rows,
                extras=fetch.extras,
                custom_collate=context.custom_collate,
                spill=self._spill,
                release=self._holders.leave,
            )
            made = await self._worked(run, [chunk])
            result.tainted |= made.tainted
            if not made.failures:
                result.merge(made)
                self._substitute = index
                return

    def abandon(self) -> None:
        """Give the job up; its slabs are freed when nobody touches them any more."""
        self._holders.leave()

    def _deliver(self) -> Delivery:
        context, result, plan = self.context, self._result, self.plan
        context.metrics.made(result.decode_s, result.transform_s, result.collate_s, result.transforms)
        if result.awaited:
            context.metrics.waited(result.awaited)
        done = max(1, self.rows)
        seconds = (result.decode_s + result.transform_s + result.collate_s) / done
        context.sample_s = seconds if not context.sample_s else 0.8 * context.sample_s + 0.2 * seconds
        # Chunks get equal shares of the spill, but samples need not be equal: leave room.
        context.spill_per_sample = max(context.spill_per_sample, result.spill_nbytes * 5 // 4)

        failures = sorted(result.failures, key=lambda each: each.row)
        records = [self._record(failure) for failure in failures]
        if records and context.on_error == "raise":
            return Delivery(plan.consumed, error=records[0])
        fill: dict[int, int] = {}
        if records and context.on_error == "replace":
            fill = self._fill()
            if not fill and self._substitute is None:
                return Delivery(plan.consumed, None, self._irreplaceable(records[0]), records)
            for failure, record in zip(failures, records, strict=True):
                record.replaced_by = self._stand_in(fill, failure.row)
        batch, samples, holds = collate(
            context, result, self._layout, self._slab, self._bases, self.rows, fill
        )
        if holds:
            self._owned.remove(self._slab)
        self._result = ChunkResult()
        return Delivery(plan.consumed, batch, None, records, samples, plan.padded)

    def _fill(self) -> dict[int, int]:
        """For every row that has no sample the row that fills it."""
        if self._substitute is not None:
            return dict.fromkeys(range(1, self.rows), 0)
        return replacement_rows(self.rows, self._sound())

    def _stand_in(self, fill: dict[int, int], row: int) -> int:
        if self._substitute is not None:
            return self._substitute
        return int(self._fetch.index_table[INDEX, fill[row]])

    def _irreplaceable(self, record: SampleError) -> LoaderError:
        others = ", and neither is any of the other items that were tried in their place"
        if self.plan.samples is not None:
            others = ", and of an iterable dataset no others can be had in their place"
        error = LoaderError(
            f"no sample of this batch of {self.rows} is sound{others}; see loader.errors for why"
        )
        error.__cause__ = record
        return error

    def _record(self, failure: Failure) -> SampleError:
        index_table = self._fetch.index_table
        row = failure.row
        return self.context.sample_error(
            int(index_table[INDEX, row]),
            int(index_table[BASE, row]),
            self.plan.position + row,
            failure.stage,
            failure.error,
        )
