"""Blocks that are loaded before a batch needs them, and the bytes that they may take. From any thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import numpy as np

from aioloader.abc import ByteSource
from aioloader.errors import ForkedError, MissingPackageError, RemoteReadError, SampleFormatError, single
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import ReadPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.formats.parquet.block import Block, Selection
    from aioloader.formats.parquet.row_groups import RowGroupReader
    from aioloader.foundation.types import IntArray, Spans
    from aioloader.metrics import StorageStats


# Batches after which an announced block is not expected any more: the epoch that needed it was left.
_EXPECTED_BATCHES = 64


class AnnouncedBlocks:
    """Announced blocks that no batch has needed yet.

    Args:
        limit_nbytes: most bytes that they take.
    """

    def __init__(self, limit_nbytes: int) -> None:
        self._limit = limit_nbytes
        self._nbytes = 0
        self._batches = 0
        self._blocks: dict[int, tuple[int, int]] = {}  # bytes, and the number of batches at the announcement
        self._lock = threading.Lock()

    def __contains__(self, number: int) -> bool:
        return number in self._blocks

    def add(self, number: int, nbytes: int) -> bool:
        """Add a block; return False if there is no room for it."""
        with self._lock:
            if number in self._blocks:
                return True
            if self._nbytes + nbytes > self._limit:
                return False
            self._blocks[number] = nbytes, self._batches
            self._nbytes += nbytes
            return True

    def planned(self, numbers: list[int]) -> None:
        """Remove the blocks that a batch needs, and those that are not expected any more."""
        with self._lock:
            self._batches += 1
            for number in numbers:
                self._remove(number)
            for number, (_, batches) in list(self._blocks.items()):
                if self._batches - batches <= _EXPECTED_BATCHES:
                    break  # those behind it were announced later
                self._remove(number)

    def _remove(self, number: int) -> None:
        nbytes, _ = self._blocks.pop(number, (0, 0))
        self._nbytes -= nbytes


# Damaged blocks that are remembered, so that each of their samples does not load them again.
_MOST_FAULTY = 1024


class _Load:
    """Load of one block in progress."""

    __slots__ = ("block", "done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.block: Block | None = None
        self.error: BaseException | None = None


class BlockCache:
    """Blocks by their numbers, up to a number of bytes.

    Args:
        load: reads a block; called in the thread that needs it, for several blocks at a time.
        estimate: returns about how many bytes a block will take.
        limit_nbytes: most bytes of all blocks together, those that are being loaded included. A block that is larger is
            loaded while no other is, and is not kept.

    Attributes:
        limit_nbytes: as given.
    """

    def __init__(
        self, load: Callable[[int], Block], estimate: Callable[[int], int], *, limit_nbytes: int
    ) -> None:
        self._load = load
        self._estimate = estimate
        self.limit_nbytes = limit_nbytes
        self._faulty: LRUCache[int, SampleFormatError] = LRUCache(_MOST_FAULTY)
        self._reset()

    def _reset(self) -> None:
        """Begin without any block: a fork has none of the threads that load some."""
        self._guard = ForkGuard()
        self._changed = threading.Condition()
        self._blocks: LRUCache[int, Block] = LRUCache(self.limit_nbytes)
        self._loads: dict[int, _Load] = {}
        self._loading_nbytes = 0

    @property
    def kept_nbytes(self) -> int:
        """Return the bytes of the blocks in the cache."""
        return self._blocks.size

    def holds(self, number: int) -> bool:
        """Return whether a block is in the cache, or is being loaded."""
        return number in self._blocks or number in self._loads

    def peek(self, number: int) -> Block | None:
        """Return a block if it is in the cache; never waits."""
        with self._changed:
            return None if self._guard.forked else self._blocks.get(number)

    def get(self, number: int) -> Block:
        """Return a block; load it, or wait for the thread that loads it, if it is not in the cache.

        Raises:
            Exception: the error of loading it. A `SampleFormatError` is remembered, and the block not read again.
        """
        if self._guard.forked:
            self._reset()
        while True:
            with self._changed:
                block = self._blocks.get(number)
                if block is not None:
                    return block
                error = self._faulty.get(number)
                if error is not None:
                    raise error.with_traceback(None)
                load = self._loads.get(number)
                mine = load is None
                if load is None:
                    load = self._loads[number] = _Load()
            if mine:
                self._run(number, load)
            else:
                load.done.wait()
            if load.block is not None:
                return load.block
            assert load.error is not None
            # A thread that was interrupted while it loaded the block (Ctrl-C) has not loaded it for the others.
            if mine or isinstance(load.error, Exception):
                raise load.error

    def _run(self, number: int, load: _Load) -> None:
        """Load a block and put it into the cache; an error becomes that of all who wait for it."""
        nbytes = 0
        try:
            nbytes = self._reserve(number)
            load.block = self._load(number)
        except BaseException as error:
            load.error = error
        finally:
            with self._changed:
                self._loading_nbytes -= nbytes
                if load.block is not None:
                    self._blocks.put(number, load.block, load.block.nbytes)
                    self._blocks.shrink(self.limit_nbytes - self._loading_nbytes)
                if isinstance(load.error, SampleFormatError):
                    self._remember(number, load.error)
                del self._loads[number]
                self._changed.notify_all()
            load.done.set()

    def _remember(self, number: int, error: SampleFormatError) -> None:
        """Keep the error of a damaged block, without the frames that hold its bytes."""
        error.__cause__ = error.__context__ = error.__traceback__ = None
        self._faulty.put(number, error)

    def _reserve(self, number: int) -> int:
        """Wait until there is room for a block; return the bytes that are reserved for it."""
        nbytes = min(self._estimate(number), self.limit_nbytes)
        with self._changed:
            # The others are at work, and end.
            while self._loading_nbytes and self._loading_nbytes + nbytes > self.limit_nbytes:
                self._changed.wait()
            self._loading_nbytes += nbytes
            self._blocks.shrink(self.limit_nbytes - self._loading_nbytes)
        return nbytes

    def clear(self) -> None:
        """Drop all blocks."""
        with self._changed:
            self._blocks.clear()


Failures = list[tuple[int, BaseException]]

# Errors that are not those of one block: nothing can be read.
_OF_ALL = (RemoteReadError, ForkedError, MissingPackageError)
# Copying this many bytes takes less time than a hop to a thread.
_COPIED_HERE = 1 << 19
_COPYING_THREADS = 2
# Share of the cache's limit that announced blocks may take before a batch needs them.
_ANNOUNCED_SHARE = 4


class BlockByteSource(ByteSource):
    """Byte source of rows of blocks. The blocks are announced, so that few batches wait at a time for remote ones.

    Args:
        reader: reads the blocks; closed with this source.
        limit_nbytes: most bytes of blocks in memory.
        threads: most blocks that are loaded at a time for batches, and as many for those that follow.
        announced: see `aioloader.abc.ByteSource`.

    Attributes:
        cache: the blocks in memory.
    """

    fetches = blocks = True

    def __init__(self, reader: RowGroupReader, *, limit_nbytes: int, threads: int, announced: int) -> None:
        self._reader = reader
        self.paths = reader.paths
        self.samples_ahead = min(reader.source.samples_ahead, 1)
        self._thread_count = threads
        self.announced = announced
        self.cache = BlockCache(reader.read, reader.nbytes, limit_nbytes=limit_nbytes)
        self._threads: Threads | None = None
        # At first one block is loaded ahead at a time, and another one for each that was: they share the network's rate
        # with the blocks of the first batch. Separate, so that no batch waits behind those that follow.
        self._loading_ahead: Threads | None = None
        self._may_widen = threads - 1
        # Separate, so that no copy waits for loads.
        self._copying: Threads | None = None
        self._ahead = AnnouncedBlocks(limit_nbytes // _ANNOUNCED_SHARE)
        # What is announced before the blocks of the first batch are loaded waits for them; None afterwards.
        self._held_back: list[Spans] | None = []
        self._closed = False

    def set_timeout(self, seconds: float) -> None:
        self._reader.source.set_timeout(seconds)

    def stats(self) -> StorageStats | None:
        """Return the statistics of the source that the reader reads with."""
        return self._reader.source.stats()

    def close(self) -> None:
        self._closed = True
        for threads in (self._threads, self._loading_ahead, self._copying):
            if threads is not None:
                threads.close()
        self._threads = self._loading_ahead = self._copying = None
        self._reader.close()
        self.cache.clear()

    # -- planning ------------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """Return the plan; loads blocks in threads. On cancellation loads in progress continue, into the cache."""
        batch = self._begin(spans)
        missing = (
            batch.blocks if batch.detach else [each for each in batch.blocks if not self._take(batch, each)]
        )
        if not missing:
            self._load_held_back(batch.blocks)
            return batch.plan()
        threads = self._started()

        async def load(number: int) -> None:
            await threads.run_abandonable(self._load, batch, number, abandoned=_nothing)

        try:
            async with anyio.create_task_group() as tasks:
                for number in missing:
                    tasks.start_soon(load, number)
        except BaseExceptionGroup as group:
            raise single(group) from None
        finally:
            self._load_held_back(batch.blocks)
        return batch.plan()

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        batch = self._begin(spans)
        for number in batch.blocks:
            self._load(batch, number)
        return batch.plan()

    def _begin(self, spans: Spans) -> _Batch:
        self._check_open()
        batch = _Batch(spans, self._reader, self._must_detach(spans))
        self._ahead.planned(batch.blocks)
        return batch

    def _take(self, batch: _Batch, number: int) -> bool:
        """Take the items of a block that is in the cache; return False if it is not."""
        block = self.cache.peek(number)
        if block is not None:
            batch.take(number, block)
        return block is not None

    def _load(self, batch: _Batch, number: int) -> None:
        if self._closed:
            return  # nobody waits any more
        try:
            block = self.cache.get(number)
        except _OF_ALL:
            raise
        except Exception as error:
            batch.fail(number, error)
        else:
            batch.take(number, block)

    def _must_detach(self, spans: Spans) -> bool:
        """Return whether items must be copied out of their blocks while a batch is planned.

        A plan that refers to its blocks keeps them in memory until it is read. A batch of a shuffle over all rows needs
        nearly as many blocks as it has samples.
        """
        return sum(map(self._reader.nbytes, {*spans.file.tolist()})) > self.cache.limit_nbytes

    def announce(self, spans: Spans) -> None:
        """Begin to load the blocks of spans that will be planned soon, as far as there is room for them."""
        if self._held_back is not None:
            self._held_back.append(spans)
        else:
            self._announce(spans, ())

    def _load_held_back(self, planned: Sequence[int]) -> None:
        """Announce what was held back, except of the blocks of the batch that was planned."""
        held_back, self._held_back = self._held_back, None
        for spans in held_back or ():
            self._announce(spans, planned)

    def _announce(self, spans: Spans, planned: Sequence[int]) -> None:
        if self._closed:
            return
        for number in dict.fromkeys(spans.file.tolist()):
            if number in planned or self.cache.holds(number) or number in self._ahead:
                continue
            if not self._ahead.add(number, self._reader.nbytes(number)):
                return
            self._loading_ahead = self._loading_ahead or Threads(1, "aioloader-ahead")
            self._loading_ahead.start(self._load_ahead, number)

    def _load_ahead(self, number: int) -> None:
        # A batch that needed the block meanwhile has loaded it.
        if not self._closed and number in self._ahead:
            self.cache.get(number)
        threads = self._loading_ahead
        if self._may_widen > 0 and threads is not None:
            self._may_widen -= 1
            threads.widen()

    def _started(self) -> Threads:
        self._check_open()
        if self._threads is None:
            self._threads = Threads(self._thread_count, "aioloader-blocks")
        return self._threads

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the byte source is closed")

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Copy the items, in a thread. On cancellation it returns when nothing is written any more."""
        if plan.nbytes <= _COPIED_HERE:
            return self.read_blocking(plan, out)
        self._check_open()
        self._copying = self._copying or Threads(_COPYING_THREADS, "aioloader-rows")
        return await self._copying.run(self.read_blocking, plan, out)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        self._check_open()
        memory = np.frombuffer(out, np.uint8) if len(out) else np.empty(0, np.uint8)
        for places, selection in plan.reads:
            selection.write(memory, plan.start[places])
        return []


def _nothing() -> None:
    pass


class _Batch:
    """Items of a batch whose blocks are being loaded, each by one thread.

    Args:
        spans: of the items.
        reader: of the blocks.
        detach: copy items out of their blocks.

    Attributes:
        blocks: numbers of the blocks, ascending.
        detach: as given.
    """

    def __init__(self, spans: Spans, reader: RowGroupReader, detach: bool) -> None:
        self._rows = spans.offset
        self._reader = reader
        self.detach = detach
        order = np.argsort(spans.file, kind="stable")
        numbers, firsts = np.unique(spans.file[order], return_index=True)
        self.blocks: list[int] = numbers.tolist()
        self._places = dict(zip(self.blocks, np.split(order, firsts)[1:], strict=True))
        self._selections: dict[int, tuple[IntArray, Selection]] = {}
        self._failures: Failures = []

    def take(self, number: int, block: Block) -> None:
        """Take the items of a block."""
        places = self._places[number]
        rows = self._rows[places]
        faulty = (rows < 0) | (rows >= block.rows)
        if block.faults:
            faulty |= np.isin(rows, list(block.faults))
        for place in places[faulty].tolist():
            row = int(self._rows[place])
            reason = block.faults.get(row, "there is no such row")
            self._failures.append((place, self._reader.fault(number, row, reason)))
        if faulty.any():
            places, rows = places[~faulty], rows[~faulty]
        selection = block.select(rows)
        self._selections[number] = places, selection.detach() if self.detach else selection

    def fail(self, number: int, error: BaseException) -> None:
        """Take the error of a block."""
        self._failures += [(place, error) for place in self._places[number].tolist()]

    def plan(self) -> ReadPlan:
        """Return the plan, with the items of each block next to each other."""
        length = np.zeros(len(self._rows), np.int64)
        start = np.full(len(self._rows), -1, np.int64)
        nbytes = 0
        chosen = [self._selections[number] for number in self.blocks if number in self._selections]
        for places, selection in chosen:
            length[places] = selection.nbytes
            ends = nbytes + np.cumsum(selection.nbytes)
            start[places] = ends - selection.nbytes
            nbytes = int(ends[-1]) if len(ends) else nbytes
        return ReadPlan(nbytes, start, length, chosen, sorted(self._failures, key=_place))


def _place(failure: tuple[int, BaseException]) -> int:
    return failure[0]
