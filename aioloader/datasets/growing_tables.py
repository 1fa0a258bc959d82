"""Tables of shards whose samples are still being found, so that a loader need not wait for all of them.

A thread opens the shards in the order in which an epoch needs them, one more than are waited for, and more at a time
the longer a loader waits: all would share the network's rate and the processors with the first batches. What needs all
of them waits for the end.

In order, the tables so far are a beginning of the whole, so an index means the same sample as later. In a shuffled
order an index names a shard and a row (`shard_tables.first_indices`), also when all tables are known: a sample's draws
depend on its index.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

import numpy as np

from aioloader.abc import SampleSearch
from aioloader.datasets.shard_tables import ShardTables
from aioloader.errors import LoaderClosedError
from aioloader.foundation.opening import Opening, current_opening
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.types import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.datasets.shard_tables import ShardTable
    from aioloader.foundation.types import Array, IntArray
    from aioloader.samplers.blocks import BlockShuffleSampler

_CLOSE_S = 0.5


class GrowingTables(ShardTables, SampleSearch):
    """Tables of some shards, to which a thread adds the others. From any thread.

    Args:
        open_tables: yields the tables of shards, of which it gets the numbers, in their order; blocking. It also gets a
            function that waits until more of them are needed, and returns how many to open at a time.
        shards: number of shards.
        timeout: most seconds that it may wait for one answer of a server.
        sampler: makes the sampler of shuffled epochs of the samples in each shard, int64 (shards,); None: in order.
        shuffled: (seed, epoch) of the first epoch, if there is a sampler.

    Raises:
        ThreadStartError: the system refuses the thread.
    """

    def __init__(
        self,
        open_tables: Callable[[IntArray, Callable[[], int]], Iterator[ShardTable]],
        shards: int,
        timeout: float,
        sampler: Callable[[IntArray], BlockShuffleSampler] | None = None,
        shuffled: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(())
        self.complete = self.closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._at_a_time = 1
        self._ahead = 0  # tables that came while nobody waited
        self._opening = Opening(timeout)
        self._make_sampler = sampler
        self._sampler: tuple[int, BlockShuffleSampler] | None = None
        self._sizes = np.zeros(shards, np.int64)
        order = np.arange(shards) if sampler is None else sampler(self._sizes).block_order(*shuffled)
        self._by_number: dict[int, ShardTable] = {}
        context = contextvars.copy_context()
        self._thread = start_thread(context.run, "aioloader-search", self._run, open_tables, order)

    def _run(
        self, open_tables: Callable[[IntArray, Callable[[], int]], Iterator[ShardTable]], order: IntArray
    ) -> None:
        current_opening.set(self._opening)
        try:
            tables = open_tables(order, self._wait_for_need)
            for number, table in zip(order.tolist(), tables, strict=True):
                with self._changed:
                    self._ahead = 0 if self._waiting else self._ahead + 1
                    self._at_a_time += self._waiting > 0 and len(self.tables) > 0
                    self._by_number[number] = table
                    self._sizes[number] = len(table)
                    self.tables = (*self.tables, table)
                    self.starts = np.append(self.starts, self.starts[-1] + len(table))
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        with self._changed:
            self.complete = self._error is None
            self._changed.notify_all()

    def _wait_for_need(self) -> int:
        """Wait until a shard has to be opened, in the thread; return how many to open at a time.

        Raises:
            LoaderClosedError: none has to be any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._ahead or self.closed)
            if self.closed:
                raise LoaderClosedError("the loader was closed while samples were being found")
            return self._at_a_time

    @property
    def usable(self) -> bool:
        """Return whether all tables are known, or will be."""
        return self._error is None and not self.closed

    def in_order(self) -> ShardTables:
        """Return the tables of all shards, once they are known. Blocking.

        Raises:
            Exception: one cannot be opened.
        """
        self.wait_for()
        return ShardTables([self._by_number[number] for number in range(len(self._sizes))])

    def table(self, number: int) -> ShardTable:
        return self._by_number[number]

    def wait_for(self, count: int | None = None) -> int:
        """Wait until that many samples of any shards were found, or all; return their number. Blocking.

        Raises:
            Exception: the next shard cannot be opened.
        """
        return self._wait(count, lambda: int(self.starts[-1]))

    def wait(self, seed: int, epoch: int, count: int | None = None) -> int:
        def found() -> int:
            sampler = self._known_sampler()
            if sampler is None:
                return int(self.starts[-1])
            known = np.zeros(len(self._sizes), bool)
            known[list(self._by_number)] = True
            return sampler.positions_of(seed, epoch, known)

        return self._wait(count, found)

    def _wait(self, count: int | None, found: Callable[[], int]) -> int:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                while not self.complete and (count is None or found() < count):
                    if self._error is not None:
                        raise self._error.with_traceback(None)
                    self._changed.wait()
                return found()
            finally:
                self._waiting -= 1

    def _known_sampler(self) -> BlockShuffleSampler | None:
        """Return the sampler of shuffled epochs, in which shards that are not known yet have no samples."""
        if self._make_sampler is None:
            return None
        with self._changed:
            if self._sampler is None or self._sampler[0] != len(self._by_number):
                self._sampler = len(self._by_number), self._make_sampler(self._sizes)
            return self._sampler[1]

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        sampler = self._known_sampler()
        if sampler is None:
            return np.arange(start, stop, dtype=np.int64)
        return sampler.indices(seed, epoch, start, stop)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._opening.cancel()
        self._thread.join(_CLOSE_S)

    def spans(self, indices: IntArray) -> Spans:
        """Return the spans of samples that were found."""
        files, rows = self.rows(indices)
        offset = self._gathered(files, rows, lambda table: table.offset)
        return Spans(files, offset, self._gathered(files, rows, lambda table: table.read_length))

    def column_at(self, name: str, indices: IntArray) -> Array:
        """Return a column of samples that were found, (n, ...)."""
        return self._gathered(*self.rows(indices), lambda table: table.columns[name])

    def _gathered(self, files: IntArray, rows: IntArray, column: Callable[[ShardTable], Array]) -> Array:
        """Return numbers of samples that were found, without those of all others being joined."""
        numbers, places = np.unique(files, return_inverse=True)
        columns = [column(self.table(number)) for number in numbers.tolist()]
        found: Array = np.empty((len(files), *columns[0].shape[1:]), columns[0].dtype)
        for number, values in enumerate(columns):
            here = places == number
            found[here] = values[rows[here]]
        return found
