"""One batch in the making: the steps plan, fetch, dispatch, work and collate in their order, written once.

The concurrent pass (`aioloader.pipeline.epoch_runner`) and the inline pass (`aioloader.pipeline.inline`) differ in how
they wait for memory, and in what `source` and `run` are.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from aioloader.errors import LoaderError
from aioloader.foundation.concurrency import RefCount
from aioloader.foundation.replacement import fallback_indices
from aioloader.foundation.types import INDEX, BatchTimeline, ChunkResult, Slab
from aioloader.pipeline.collate import BatchRows
from aioloader.pipeline.deliver import Delivery, deliver, valid_rows
from aioloader.pipeline.dispatch import Dispatch, Run
from aioloader.pipeline.fetch import Fetch
from aioloader.pipeline.plan import BatchPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioloader.abc import ByteSource
    from aioloader.pipeline.context import PipelineContext


class BatchTask:
    """A batch in the making. Call `prepare`, then `complete`; or `abandon` at any time before `complete`.

    Args:
        context: the shared parts.
        plan: which samples.
        source: reads the bytes; None without a byte part.
        run: runs chunks, see `aioloader.abc.Executor.run`.

    Attributes:
        timeline: the stage that the batch is in, and when it entered each.
    """

    def __init__(
        self, context: PipelineContext, plan: BatchPlan, source: ByteSource | None, run: Run
    ) -> None:
        self.context = context
        self.plan = plan
        self.timeline = BatchTimeline()
        self._source = source
        self._fetch = Fetch(context, plan, source)
        self._arrays = BatchRows(len(plan.indices))
        self._result = ChunkResult()
        self._done: list[int] = []
        self._is_read = False
        # Not a method of this task: that would be a cycle, and memory would wait for the garbage collector.
        self._owned: list[Slab] = []
        self._holders = RefCount(functools.partial(context.memory.free_later, self._owned))
        self._dispatch = Dispatch(context, plan, run, timeline=self.timeline, holders=self._holders)

    async def prepare(self, wait_for_memory: Callable[[BatchTask], Awaitable[None]]) -> None:
        """Plan the reads, get slab memory, and find the row layout if it is not known yet.

        Args:
            wait_for_memory: calls `allocate` until it succeeds, or raises `too_large`.

        If it raises or is cancelled, the task is abandoned.
        """
        try:
            await self._fetch.plan()
            await wait_for_memory(self)
            if self.context.layout is None and not self.context.custom_collate:
                await self._discover()
                await wait_for_memory(self)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give the batch up; its slabs are freed when nothing uses them any more."""
        self._holders.leave()

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(self) -> bool:
        """Take the slabs that are known to be needed; return False if there is no room (nothing is taken then)."""
        fetch, memory = self._fetch, self.context.memory
        taken = None
        if fetch.slab is None and fetch.nbytes:
            taken = memory.allocate(fetch.nbytes)
            if taken is None:
                return False
        if self._arrays.slab is None and not self._allocate_rows():
            if taken is not None:
                memory.free(taken)
            return False
        if taken is not None:
            fetch.slab = taken
            self._owned.append(taken)
        nbytes = sum(slab.nbytes for slab in (fetch.slab, self._arrays.slab) if slab is not None)
        self.context.largest_batch = max(self.context.largest_batch, nbytes)
        return True

    def _allocate_rows(self) -> bool:
        context, arrays = self.context, self._arrays
        arrays.layout = None if context.custom_collate else context.layout
        offsets, total = ([], 0) if arrays.layout is None else arrays.layout.offsets(arrays.rows)
        spill = context.spill_per_sample * arrays.rows
        if not total + spill:
            arrays.bases = (0,) * len(offsets)
            return True
        slab = context.memory.allocate(total + spill, lasting=True)
        if slab is None:
            return False
        self._owned.append(slab)
        arrays.slab = slab
        arrays.bases = tuple(slab.offset + offset for offset in offsets)
        arrays.spill = (slab.offset + total, spill // 64 * 64)
        return True

    def too_large(self) -> LoaderError:
        """Return the error for a batch that does not fit into slab memory."""
        context, memory, rows = self.context, self.context.memory, self._arrays.rows
        needed = self._fetch.nbytes + context.spill_per_sample * rows
        if context.layout is not None:
            needed += context.layout.offsets(rows)[1]
        return LoaderError(
            f"a batch of {rows} samples needs {needed} bytes, but of memory_limit={memory.limit} bytes "
            f"only {memory.limit - memory.leased - memory.forked} are not held by batches that you keep, here or in "
            "forks of this process: raise memory_limit, make batches smaller, or keep fewer of them"
        )

    # -- samples -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        self.timeline.enter("fetch")
        await self._fetch.read(self._owned)
        self._result.failures += self._fetch.failures
        self._done += [failure.row for failure in self._fetch.failures]

    async def _discover(self) -> None:
        """Make samples one at a time, by value, until one of them shows the layout of the rows."""
        await self._read()
        self.timeline.enter("work")
        for row in range(self._arrays.rows):
            if self.context.layout is not None:
                break
            if row in self._done:
                continue
            result = await self._run_one(self._fetch, self._arrays, row)
            self._done.append(row)
            self._result.merge(result)
            for sample in result.values.values():
                self._dispatch.learn_layout(sample)

    async def _run_one(self, fetch: Fetch, arrays: BatchRows, row: int) -> ChunkResult:
        chunk = self._dispatch.chunk(fetch, arrays, np.asarray([row]), spill=self._arrays.spill)
        return await self._dispatch.run([chunk])

    async def complete(self) -> Delivery:
        """Make the remaining samples and the batch. The error of a batch that failed is in its delivery."""
        try:
            await self._read()
            self.timeline.enter("work")
            result, arrays = self._result, self._arrays
            chunks = self._dispatch.chunks(self._fetch, arrays, self._done)
            if chunks:
                result.merge(await self._dispatch.run(chunks))
            replacement = None
            if result.failures and self.context.on_error == "replace" and not valid_rows(result, arrays.rows):
                replacement = await self._find_replacement()
            self.timeline.enter("collate")
            self._dispatch.learn_costs(result, arrays.rows)
            delivery = deliver(
                self.context,
                self.plan,
                result,
                arrays=arrays,
                index_table=self._fetch.index_table,
                replacement=replacement,
            )
            if arrays.leased and arrays.slab is not None:
                self._owned.remove(arrays.slab)
            self._result = ChunkResult()
            return delivery
        except Exception as error:
            error.add_note(f"in batch {self.plan.number} of this pass")
            return Delivery(self.plan.consumed, error=error)
        except SystemExit as error:
            ended = LoaderError("the batchify function called sys.exit")
            ended.__cause__ = error
            return Delivery(self.plan.consumed, error=ended)
        finally:
            self._holders.leave()

    async def _find_replacement(self) -> int | None:
        """Make one sample of another item for a batch whose samples all failed; by value, as its row 0.

        Returns:
            the item's index; None if no item that was tried is valid.
        """
        context, plan, result = self.context, self.plan, self._result
        if plan.samples is not None:
            return None  # an iterable's next samples belong to the next batch
        slab = self._fetch.slab
        if slab is not None and not result.tainted:
            # Nothing reads it any more; freed, it leaves room for one sample, however little memory there is.
            self._owned.remove(slab)
            context.memory.free(slab)
            self._fetch.slab = None
        by_value = BatchRows(self._arrays.rows)
        for index in fallback_indices(int(self._fetch.index_table[INDEX, 0]), context.items.length):
            one = BatchPlan(
                plan.number,
                plan.position,
                np.asarray([index]),
                epochs=plan.epochs[:1],
                consumed=plan.consumed,
            )
            fetch = Fetch(context, one, self._source)
            await fetch.plan()
            if fetch.nbytes:
                fetch.slab = context.memory.allocate(fetch.nbytes)
                if fetch.slab is None:
                    return None
                self._owned.append(fetch.slab)
            await fetch.read(self._owned)
            if fetch.failures:
                continue
            made = await self._run_one(fetch, by_value, 0)
            result.tainted |= made.tainted
            if not made.failures:
                result.merge(made)
                return index
        return None
