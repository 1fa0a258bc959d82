"""Tables of shards whose samples are still being found, so that a loader that reads in order need not wait for all.

A thread opens the shards in their order, at first two at a time: all would share the network's rate, and the first one
would be there hardly before the last. The tables so far are a beginning of the whole, so an index means the same sample
as later. What needs all of them waits for the end.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

import numpy as np

from aioloader.abc import SampleSearch
from aioloader.datasets.shard_tables import ShardTables
from aioloader.foundation.opening import Opening, current_opening
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.types import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.datasets.shard_tables import ShardTable
    from aioloader.foundation.types import Array, IntArray

_CLOSE_S = 0.5


class GrowingTables(ShardTables, SampleSearch):
    """Tables of the first shards, to which a thread adds the others. From any thread.

    Args:
        open_tables: yields the tables in order; blocking.
        timeout: most seconds that it may wait for one answer of a server.

    Raises:
        ThreadStartError: the system refuses the thread.
    """

    def __init__(self, open_tables: Callable[[], Iterator[ShardTable]], timeout: float) -> None:
        super().__init__(())
        self.complete = self.closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._opening = Opening(timeout)
        self._open_tables = open_tables
        context = contextvars.copy_context()
        self._thread = start_thread(context.run, "aioloader-search", self._run)

    def _run(self) -> None:
        current_opening.set(self._opening)
        try:
            for table in self._open_tables():
                with self._changed:
                    self.tables = (*self.tables, table)
                    self.starts = np.append(self.starts, self.starts[-1] + len(table))
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        with self._changed:
            self.complete = self._error is None
            self._changed.notify_all()

    @property
    def usable(self) -> bool:
        """Return whether all tables are known, or will be."""
        return self._error is None and not self.closed

    def wait(self, count: int | None = None) -> int:
        with self._changed:
            while not self.complete and (count is None or self.starts[-1] < count):
                if self._error is not None:
                    raise self._error.with_traceback(None)
                self._changed.wait()
            return int(self.starts[-1])

    def close(self) -> None:
        self.closed = True
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
        columns = [column(self.tables[number]) for number in numbers.tolist()]
        found: Array = np.empty((len(files), *columns[0].shape[1:]), columns[0].dtype)
        for number, values in enumerate(columns):
            here = places == number
            found[here] = values[rows[here]]
        return found
