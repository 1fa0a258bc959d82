"""The steps of one batch: plan, fetch, dispatch, work, collate.

An epoch with one batch at a time (`aioloader.pipeline.inline`) takes the same steps as one with several; it differs in
how it waits for memory, and in what `source` and `run` of a `BatchTask` are.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import anyio
import numpy as np

from aioloader.errors import BatchMemoryError, LoaderError
from aioloader.foundation.concurrency import deferred
from aioloader.foundation.error_log import add_note, printable
from aioloader.foundation.pytree import flatten, leaf_spec
from aioloader.foundation.replacement import fallback_indices
from aioloader.foundation.types import EPOCH, INDEX, POSITION, ROW, BatchTimeline, Chunk, ChunkResult
from aioloader.pipeline.collate import Delivery, deliver, deliver_empty, row_layout, valid_rows
from aioloader.pipeline.dispatch import Run, Start, Started, average_s, chunk_size, record_run, run_timed
from aioloader.pipeline.fetch import Fetch
from aioloader.pipeline.memory import BatchMemory, may_lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioloader.abc import ByteSource
    from aioloader.foundation.types import IntArray
    from aioloader.pipeline.context import PipelineContext
    from aioloader.pipeline.plan import BatchPlan

# A larger copy is made in a thread.
_MOST_COPIED = 1 << 20
# Time that other samples wait for the one that shows the layout of the rows. A dataset may need several samples in the
# making at once, as one with a barrier for its workers does. With `in_order=False` a slow sample must not delay others.
_LAYOUT_PATIENCE_S = 5.0
_UNORDERED_PATIENCE_S = 0.05


class BatchTask:
    """A batch in the making. Call `prepare`, then `begin` or `complete`; or `abandon` at any time before these.

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
        self._result = ChunkResult()
        self._source = source
        self._run = run
        self._fetch = Fetch(context, plan, source)
        self._arrays = BatchMemory(context.memory, len(plan.indices))
        self._done: list[int] = []
        self._is_read = False
        self._is_over = False  # a sample failed that ends the batch
        # The sample that would have shown the layout of the rows, but takes long.
        self._first: Started | None = None
        # Cancels the chunks that `begin` has begun, and makes what is left once they are done.
        self._cancel: Callable[[], object] | None = None
        self._rest: Callable[[], Awaitable[Delivery]] | None = None

    async def prepare(
        self,
        wait_for_memory: Callable[[BatchTask], Awaitable[None]],
        tasks: anyio.abc.TaskGroup | None = None,
    ) -> None:
        """Plan the reads, get slab memory, and find the row layout if it is not known yet.

        Args:
            wait_for_memory: called where `allocate` fails; calls it until it succeeds, or raises `too_large`.
            tasks: where the sample that shows the layout is made if it takes long; None: it is waited for.

        If it raises or is cancelled, the task is abandoned.
        """
        if not self._arrays.rows:
            return  # nothing is read; `complete` makes the empty batch
        try:
            await self._fetch.plan()
            if not self.allocate():
                await wait_for_memory(self)
            if self.context.learned.layout is None and not self.context.custom_collate:
                await self._discover(tasks)
                if self._first is None and not self.allocate():
                    await wait_for_memory(self)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give the batch up; its slabs are freed when nothing uses them any more."""
        if self._first is not None:
            self._first.abandon()
        self._arrays.leave()

    def cancel(self) -> None:
        """Give the batch up if `begin` has begun it, and `done` was not called."""
        if self._cancel is not None:
            cancel, self._cancel = self._cancel, None
            cancel()
            self._arrays.leave()

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(self) -> bool:
        """Take the slabs that are known to be needed; return False if there is no room (nothing is taken then)."""
        fetch, arrays, memory, learned = self._fetch, self._arrays, self.context.memory, self.context.learned
        taken = None
        if fetch.slab is None and fetch.nbytes:
            taken = memory.allocate(fetch.nbytes)
            if taken is None:
                return False
        layout = None if self.context.custom_collate else learned.layout
        batches = self.context.prefetch if self.context.executor.spills else 0
        if arrays.slab is None and not arrays.allocate(layout, learned.spill, batches):
            if taken is not None:
                memory.free(taken)
            return False
        if taken is not None:
            fetch.slab = taken
            arrays.owned.append(taken)
        fetched = 0 if fetch.slab is None else fetch.slab.nbytes
        learned.largest_batch = max(learned.largest_batch, fetched + arrays.nbytes)
        return True

    def too_large(self) -> BatchMemoryError:
        """Return the error for a batch that does not fit into slab memory."""
        context, memory, rows = self.context, self.context.memory, self._arrays.rows
        # The sizes of files are not known before they were read.
        needed = self._fetch.nbytes if self._fetch.slab is None else self._fetch.slab.nbytes
        needed += context.learned.spill.known(rows)
        if context.learned.layout is not None:
            needed += context.learned.layout.offsets(rows)[1]
        return BatchMemoryError(rows, needed, memory.limit, memory.leased + memory.forked)

    # -- samples -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        self.timeline.enter("fetch")
        await self._fetch.read(self._arrays.owned)
        if self._fetch.failures:
            self._result.failures += self._fetch.failures
            self._done += [failure.row for failure in self._fetch.failures]

    async def _discover(self, tasks: anyio.abc.TaskGroup | None) -> None:
        """Make samples one at a time, by value, until one of them shows the layout of the rows, or takes long."""
        await self._read()
        self.timeline.enter("work")
        for row in range(self._arrays.rows):
            if self.context.learned.layout is not None:
                break
            if row in self._done:
                continue
            chunk = self._single(self._fetch, row)
            if tasks is None:
                result = await self._timed([chunk])
            else:
                self._first = Started([chunk])
                tasks.start_soon(deferred(self._first.run), self._timed)
                with anyio.move_on_after(self._patience_s):
                    await self._first.wait()
                if not self._first.is_over:
                    # The batch goes on without rows; what it has for results without rows belongs to this sample.
                    self.context.learned.layout_is_late = True
                    self._arrays.spill = (self._arrays.spill[0], 0)
                    self._done.append(row)
                    return
                result = await self._first.result()
                self._first = None
            if result.incomplete:
                continue  # `complete` makes it: other samples still need this memory
            self._done.append(row)
            self._take_first(result)
            if self._is_over:
                break
        self._arrays.drop(free=not self._result.tainted)  # it has no rows

    @property
    def _patience_s(self) -> float:
        if self.context.learned.layout_is_late:
            return 0.0
        return _LAYOUT_PATIENCE_S if self.context.in_order else _UNORDERED_PATIENCE_S

    def _take_first(self, result: ChunkResult) -> None:
        """Take the sample that shows the layout of the rows."""
        learned = self.context.learned
        learned.spill.guess(result.spill_nbytes)
        result.spill_nbytes = 0
        self._result.merge(result)
        self._is_over = bool(result.failures) and self.context.on_error == "raise"
        for sample in result.values.values():
            if learned.layout is None:
                structure, leaves = flatten(sample)
                learned.layout = row_layout(structure, [leaf_spec(leaf) for leaf in leaves])

    # -- chunks ------------------------------------------------------------------------------------------------------

    @property
    def _timed(self) -> Run:
        """Return a function that has chunks run, and records the time that they take; without this task."""
        return functools.partial(
            run_timed, run=self._run, metrics=self.context.metrics, timeline=self.timeline
        )

    def _chunks(self, ahead: int) -> list[Chunk]:
        """Return the chunks of all rows that are not made yet; `ahead` is that of `chunk_size`."""
        context, arrays = self.context, self._arrays
        rows = np.arange(arrays.rows)
        if self._done:
            rows = np.delete(rows, self._done)
        count = size = len(rows)
        if not count:
            return []
        if not context.custom_collate:
            size = chunk_size(
                count, context.executor.workers, context.learned.sample_s, ahead=ahead, left=self.plan.left
            )
        if size >= count:
            return [self._chunk(self._fetch, rows, spill=arrays.spill)]
        pieces = [rows[start : start + size] for start in range(0, count, size)]
        share = arrays.spill[1] // len(pieces) // 64 * 64
        return [
            self._chunk(self._fetch, piece, spill=(arrays.spill[0] + part * share, share))
            for part, piece in enumerate(pieces)
        ]

    def _single(self, fetch: Fetch, row: int) -> Chunk:
        """Return the chunk of one row, whose sample is returned by value."""
        return replace(self._chunk(fetch, np.asarray([row]), spill=self._arrays.spill), layout=None, bases=())

    def _chunk(self, fetch: Fetch, rows: IntArray, *, spill: tuple[int, int]) -> Chunk:
        plan, arrays, index_table = self.plan, self._arrays, fetch.index_table
        if len(rows) < index_table.shape[1]:
            index_table = np.ascontiguousarray(index_table[:, rows])
        arrays.enter()
        return Chunk(
            batch=plan.number,
            index_table=index_table,
            extras=None if fetch.extras is None else fetch.extras[rows],
            layout=arrays.layout,
            bases=arrays.bases,
            rows=arrays.rows,
            custom_collate=self.context.custom_collate,
            spill=spill,
            release=arrays.leave,
            samples=None if plan.samples is None else [plan.samples[row] for row in rows],
            first=(int(plan.epochs[0]), int(plan.positions[0])) if arrays.rows else (0, 0),
        )

    def _copies(self, fetch: Fetch, count: int) -> Chunk:
        """Return the chunk of a batch of copies of one item, which is returned by value, in no memory of this batch."""
        chunk = self._single(fetch, 0).part(np.zeros(count, np.int64))
        chunk.index_table[ROW] = np.arange(count)
        return replace(chunk, rows=count, spill=(self._arrays.spill[0], 0))

    # -- the batch ---------------------------------------------------------------------------------------------------

    def begin(self, start: Start, ahead: int, done: Callable[[Delivery | None], object]) -> bool:
        """Make the batch without a task, unless something else than chunks has to be waited for first.

        Args:
            start: see `aioloader.abc.Executor.start`.
            ahead: as for `complete`.
            done: called with the delivery, perhaps before this returns; or with None: `complete` makes the rest.

        Returns:
            False if nothing was begun: call `complete`.
        """
        if self._fetch.waits or self._fetch.failures or self._first is not None or self._is_over:
            return False
        try:
            if not self._is_read:
                self._is_read = True
                self.timeline.enter("fetch")
            self.timeline.enter("work")
            chunks = self._chunks(ahead)
            if not chunks:
                return False
            self._cancel = lambda: None  # until `start` has returned; it may call `_take`
            cancel = start(chunks, functools.partial(self._take, perf_counter(), done))
            if self._cancel is not None:
                self._cancel = cancel
        except Exception as error:
            self._cancel = None
            self._arrays.leave()
            done(self._failed(error))
        return True

    def _take(
        self, begin: float, done: Callable[[Delivery | None], object], outcome: ChunkResult | BaseException
    ) -> None:
        """Take the outcome of the chunks, and build the batch unless something has to be waited for."""
        self._cancel = None
        context, delivery = self.context, None
        try:
            if isinstance(outcome, ChunkResult):
                record_run(outcome, begin, context.metrics, self.timeline)
            if not isinstance(outcome, ChunkResult) or outcome.failures or self._result.failures:
                self._rest = functools.partial(self._finish, outcome)
            else:
                self._add(outcome)
                build, is_long = self._builder()
                if is_long and context.threads is not None:
                    self._rest = functools.partial(context.threads.run, build)
                else:
                    delivery = build()
        except BaseException as error:  # raised again where `complete` is called
            self._rest = functools.partial(self._finish, error)
        if delivery is not None:
            self._arrays.leave()
        done(delivery)

    async def complete(self, ahead: int = 0) -> Delivery:
        """Make the remaining samples and the batch. The error of a batch that failed is in its delivery.

        Args:
            ahead: batches in flight that will be delivered before this one.
        """
        try:
            if self._rest is not None:
                rest, self._rest = self._rest(), None
                return await rest
            await self._read()
            self.timeline.enter("work")
            chunks = [] if self._is_over else self._chunks(ahead)
            if not chunks:
                return await self._finish(ChunkResult(), learns=False)
            return await self._finish(await self._timed(chunks), learns=self._first is None)
        except Exception as error:
            return self._failed(error)
        except SystemExit as error:
            ended = LoaderError("the batchify function called sys.exit")
            ended.__cause__ = error
            return Delivery(self.plan.consumed, error=ended)
        finally:
            self._arrays.leave()

    def _failed(self, raised: Exception) -> Delivery:
        error = printable(raised)
        add_note(error, f"in batch {self.plan.number} of this epoch")
        return Delivery(self.plan.consumed, error=error)

    async def _finish(self, made: ChunkResult | BaseException, *, learns: bool = True) -> Delivery:
        """Make the batch of the outcome of its chunks.

        Args:
            made: the outcome.
            learns: it shows how much memory the results of a batch need: without the layout all are results without
                rows, and later ones are not.
        """
        if isinstance(made, BaseException):
            try:
                raise made
            finally:
                del made  # breaks the cycle error -> traceback -> frame -> error
        context = self.context
        if self._first is not None:
            first = await self._first.result()
            if first.incomplete:
                made.merge(first)
            else:
                self._take_first(first)
        if made.failures and made.incomplete:
            made = await self._remake(made, made.incomplete)
        self._add(made)
        result, replacement, rows = self._result, None, self._arrays.rows
        if (result.failures or not rows) and not valid_rows(result, rows):
            if result.failures and context.on_error == "replace":
                replacement, others = await self._find_replacement(
                    lambda fetch: iter([self._single(fetch, 0)])
                )
                for other in others:
                    result.merge(other)
            elif context.delivers_empty and (not rows or context.on_error == "skip"):
                # A batchify function may need several samples, or an even number of them.
                counts = (2, 4) if context.custom_collate else (1, 2)
                _, copies = await self._find_replacement(
                    lambda fetch: (self._copies(fetch, count) for count in counts)
                )
                return deliver_empty(context, self.plan, result, self._fetch.index_table, copies)
        build, is_long = self._builder(replacement, learns=learns)
        if is_long and context.threads is not None:
            return await context.threads.run(build)
        return build()

    def _add(self, made: ChunkResult) -> None:
        if self._done or self._result.failures:
            self._result.merge(made)
        else:  # nothing was made before
            self._result = made

    def _builder(
        self, replacement: int | None = None, *, learns: bool = True
    ) -> tuple[Callable[[], Delivery], bool]:
        """Return a function that builds the batch of its result, and whether it takes long, for a thread.

        Args:
            replacement: see `deliver`.
            learns: see `_finish`.
        """
        context, learned, result, arrays = self.context, self.context.learned, self._result, self._arrays
        self.timeline.enter("collate")
        learned.sample_s = average_s(learned.sample_s, result, arrays.rows)
        if learns:
            learned.spill.learn(result.spill_nbytes)
        if arrays.reserves and not result.tainted:
            arrays.trim_reserve(result.roots)
            fetched = 0 if self._fetch.slab is None else self._fetch.slab.nbytes
            learned.largest_batch = max(learned.largest_batch, fetched + arrays.nbytes)
        # It cannot hold a slab where a worker may still write, or beyond what the caller may keep.
        copy = result.tainted or not (
            arrays.slab is None or may_lease(context.memory, arrays.slab.nbytes, learned.largest_batch)
        )
        build = functools.partial(
            deliver,
            context,
            self.plan,
            result,
            arrays=arrays,
            index_table=self._fetch.index_table,
            replacement=replacement,
            copy=copy,
        )
        return build, copy and arrays.nbytes > _MOST_COPIED

    async def _remake(self, made: ChunkResult, incomplete: list[int]) -> ChunkResult:
        """Read items whole of which the parts were not enough, and make their samples; return the whole result.

        A batch that is collated as a whole is made again as a whole.
        """
        self._fetch.exclude(incomplete)
        rows = np.array(incomplete)
        again = set(incomplete)
        made.failures = [failure for failure in made.failures if failure.row not in again]
        if self.context.custom_collate:
            rows = np.delete(np.arange(self._arrays.rows), self._done)
            before, made = made, ChunkResult(tainted=made.tainted)
            made.add(before)
        # Results without rows that the first attempt left in the spill are still needed.
        spill = (self._arrays.spill[0], 0)
        while len(rows):
            self.timeline.enter("fetch")
            read, failures = await self._fetch.read_whole(rows, self._arrays.owned)
            rows = rows[len(read) :]
            made.failures += failures
            read = np.setdiff1d(read, [failure.row for failure in failures])
            self.timeline.enter("work")
            if len(read):
                made.merge(await self._timed([self._chunk(self._fetch, read, spill=spill)]))
        return made

    async def _fetched(self, plan: BatchPlan) -> Fetch | None:
        """Read the items of a plan into more memory of this batch; None if there is no room."""
        fetch = Fetch(self.context, plan, self._source, whole=True)
        await fetch.plan()
        if fetch.nbytes:
            fetch.slab = self.context.memory.allocate(fetch.nbytes)
            if fetch.slab is None:
                return None
            self._arrays.owned.append(fetch.slab)
        await fetch.read(self._arrays.owned)
        return fetch

    async def _find_replacement(
        self, chunks: Callable[[Fetch], Iterator[Chunk]]
    ) -> tuple[int | None, list[ChunkResult]]:
        """Make samples of another item for a batch that has no valid one.

        Args:
            chunks: iterates over the chunks to run, each alone, of the only item that was fetched.

        Returns:
            the item's index, and the result of each chunk; (None, []) if no item that was tried is valid.
        """
        context, plan, result = self.context, self.plan, self._result
        if plan.samples is not None or plan.keys is not None:
            # An iterable's next samples belong to the next batch, and other keys are not known.
            return None, []
        slab = self._fetch.slab
        if slab is not None and not result.tainted:
            # Nothing reads it any more; freed, it leaves room for one sample, however little memory there is.
            self._arrays.owned.remove(slab)
            context.memory.free(slab)
            self._fetch.slab = None
        length = context.items.length
        first, *draws = self._fetch.index_table[[INDEX, EPOCH, POSITION], :1]
        indices = [0, *fallback_indices(0, length)]
        if len(first):
            indices = fallback_indices(int(first[0]) % length, length)
        else:  # a plan without samples: what they draw is not delivered
            draws = [np.zeros(1, np.int64)] * 2
        for index in indices:
            one = replace(plan, indices=np.asarray([index]), epochs=draws[0], positions=draws[1])
            fetch = await self._fetched(one)
            if fetch is None:
                return None, []
            if fetch.failures:
                continue
            made = [await self._timed([chunk]) for chunk in chunks(fetch)]
            result.tainted |= any(each.tainted for each in made)
            if not any(each.failures for each in made):
                return index, made
        return None, []
