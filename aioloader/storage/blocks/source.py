"""Byte source of items that are rows of blocks.

A span is a row: `Spans.file` is the number of the block, over all files, and `Spans.offset` the row in it. Planning
loads the blocks that are not in the cache, in threads, several at a time, because the size of an item is known only
then; reading copies the items into the slab. Blocks of the next batches are loaded before (`announce`).

A block that cannot be read is the failure of its samples only, except where a server cannot be reached: then the batch
fails, as with `RemoteByteSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import anyio
import numpy as np

from aioloader.errors import ForkedError, MissingPackageError, RemoteReadError, single
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import ReadPlan
from aioloader.storage.blocks.announced import AnnouncedBlocks
from aioloader.storage.blocks.cache import BlockCache
from aioloader.storage.layout import fetch_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray, Spans
    from aioloader.metrics import StorageStats
    from aioloader.storage.blocks.block import Block, Selection

Failures = list[tuple[int, BaseException]]

# Errors that are not those of one block: nothing can be read.
_OF_ALL = (RemoteReadError, ForkedError, MissingPackageError)
# Copying this many bytes takes less time than a hop to a thread.
_COPIED_HERE = 1 << 19
_COPYING_THREADS = 2
# Share of the cache's limit that announced blocks may take before a batch needs them.
_ANNOUNCED_SHARE = 4


class BlockReader(Protocol):
    """Reader of the blocks of a format. Used from several threads at a time."""

    @property
    def paths(self) -> Sequence[str]:
        """Return the path or URL of the file of each block."""
        ...

    def nbytes(self, number: int) -> int:
        """Return about how many bytes a block takes in memory."""
        ...

    def read(self, number: int) -> Block:
        """Read a block.

        Raises:
            SampleFormatError: it is damaged.
            OSError, EOFError, ValueError: it cannot be read.
            RemoteReadError: the server cannot be reached.
        """
        ...

    def fault(self, number: int, row: int, reason: str) -> Exception:
        """Return the error for a row that cannot be a sample."""
        ...

    def close(self) -> None:
        """Close files and connections; may be called twice."""
        ...


class BlockByteSource:
    """Byte source of rows of blocks; implements `BlockingByteSource`, `FetchingByteSource` and `AnnouncedByteSource`.

    Args:
        reader: reads the blocks; closed with this source.
        limit_nbytes: most bytes of blocks in memory.
        threads: most blocks that are loaded at a time.
        announced: see `aioloader.abc.AnnouncedByteSource`.

    Attributes:
        announced: as given.
        cache: the blocks in memory.
    """

    def __init__(self, reader: BlockReader, *, limit_nbytes: int, threads: int, announced: int) -> None:
        self._reader = reader
        self._thread_count = threads
        self.announced = announced
        self.cache = BlockCache(reader.read, reader.nbytes, limit_nbytes=limit_nbytes)
        self._threads: Threads | None = None
        # Separate, so that no copy waits for loads.
        self._copying: Threads | None = None
        self._ahead = AnnouncedBlocks(limit_nbytes // _ANNOUNCED_SHARE)
        self._closed = False

    @property
    def paths(self) -> Sequence[str]:
        return self._reader.paths

    def close(self) -> None:
        self._closed = True
        for threads in (self._threads, self._copying):
            if threads is not None:
                threads.close()
        self._threads = self._copying = None
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
        blocks = np.unique(spans.file).tolist()
        return sum(map(self._reader.nbytes, blocks)) > self.cache.limit_nbytes

    def announce(self, spans: Spans) -> None:
        """Begin to load the blocks of spans that will be planned soon, as far as there is room for them."""
        if self._closed:
            return
        for number in dict.fromkeys(spans.file.tolist()):
            if self.cache.holds(number) or number in self._ahead:
                continue
            if not self._ahead.add(number, self._reader.nbytes(number)):
                return
            self._started().start(self._load_ahead, number)

    def _load_ahead(self, number: int) -> None:
        # A batch that needed the block meanwhile has loaded it.
        if not self._closed and number in self._ahead:
            self.cache.get(number)

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

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        return fetch_with(self.plan_blocking, self.read_blocking, spans)


class CountingBlockByteSource(BlockByteSource):
    """Byte source of rows of blocks of files whose reads are counted; implements `CountingByteSource` too.

    Args:
        reader: as for `BlockByteSource`.
        objects: the source with which the reader reads; closed by it.
        limit_nbytes, threads, announced: as for `BlockByteSource`.
    """

    def __init__(
        self, reader: BlockReader, objects: Any, *, limit_nbytes: int, threads: int, announced: int
    ) -> None:
        super().__init__(reader, limit_nbytes=limit_nbytes, threads=threads, announced=announced)
        self._objects = objects

    def stats(self) -> StorageStats:
        """Return the statistics so far."""
        stats: StorageStats = self._objects.stats()
        return stats


class RemoteBlockByteSource(CountingBlockByteSource):
    """Byte source of rows of blocks of remote objects; implements `NetworkByteSource` too.

    Args:
        reader, objects, limit_nbytes, threads, announced: as for `CountingBlockByteSource`.

    Attributes:
        samples_ahead: see `aioloader.abc.NetworkByteSource`. Blocks are announced, so few batches wait at a time.
    """

    samples_ahead = 1

    @property
    def timeout(self) -> float:
        """Return the seconds that one call may take."""
        return float(self._objects.timeout)

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._objects.timeout = seconds


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

    def __init__(self, spans: Spans, reader: BlockReader, detach: bool) -> None:
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
