"""Rows of each batch of MXNet's iterators, by the arithmetic of `aioloader.pipeline.plan.BatchSchedule`. Pure.

`BatchSchedule` cuts a pass into batches. MXNet's rules, which training schedules count on, decide where padding comes
from and where the next pass begins:

- `RecordSchedule` (`round_batch`): where the data ends inside a batch, the batch is filled with the first rows of the
  next pass, which begins behind them. 10 rows in batches of 4 are 0123 4567 89+01, then 2345 6789. A reset before the
  end of a pass returns to the first row. Without `round_batch` every pass has all rows, and the rest of the last batch
  is padded with values that are not rows.
- `ListSchedule` (`last_batch_handle`): "pad" fills the last batch from the start of the same order, "discard" drops it,
  "roll_over" keeps its items for the first batch of the next pass.

The loader's own plan never borrows from a later epoch and never keeps items of a list, so these rules are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.iterator import whole_number
from aioloader.pipeline.plan import BatchSchedule
from aioloader.samplers.epoch_order import permute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioloader.foundation.types import IntArray

LAST_BATCH = {"pad": "pad", "discard": "discard", "roll_over": "rollover"}
"""MXNet's words for `last_batch_handle`, and those of `BatchSchedule`."""

_BLOCK = 8192
_PASSES = 1 << 62


class Part(NamedTuple):
    """Some of the records, one after the other.

    Attributes:
        total: number of all records.
        first: number of the part's first record.
        length: number of its records.
        longest: number of records of the longest part, `length` or one more.
    """

    total: int
    first: int
    length: int
    longest: int


def part_of(total: int, num_parts: int, part_index: int, drop_remainder: bool = False) -> Part:
    """Return one of `num_parts` contiguous parts that are as even as possible: the first ones have one record more.

    With `drop_remainder` they are equal, and the remaining records are in none of them.
    """
    share, longer = divmod(total, num_parts)
    if drop_remainder:
        longer = 0
    first = share * part_index + min(part_index, longer)
    return Part(total, first, share + (part_index < longer), share + (longer > 0))


class RecordSchedule:
    """Batches of one pass after the other: a batch sampler, whose ``iter`` is the current pass.

    Rows are the numbers of records among all records. The same number plus `part.total` means that record as a row of
    padding. Each pass can have its own order, and all parts have passes of the same number of batches: a part with
    fewer records than the longest one is padded with the first record of its pass.

    Args:
        part: the records.
        batch_size: rows of a batch, at least 1.
        round_batch: fill the last batch with the first rows of the next pass.
        seed: seed of the order, 0 <= seed < 2**64; None for the order of the file.

    Attributes:
        passed_over: batches of the current pass that an earlier run had.

    Raises:
        MXNetError: `round_batch`, and a batch has more than twice as many rows as there are records, but not none.
    """

    def __init__(self, part: Part, batch_size: int, round_batch: bool, seed: int | None = None) -> None:
        if round_batch and part.length and 2 * part.longest < batch_size:
            raise MXNetError(
                f"number of input images must be bigger than the batch size: there are {part.length} for batches of "
                f"{batch_size}; give round_batch=False or a smaller batch_size"
            )
        self._part = part
        self._length = part.longest if part.length else 0
        self._schedule = BatchSchedule(batch_size, "pad" if round_batch else "keep")
        self._seed = seed
        # Start of the current pass: number of its order, and rows of that order that an earlier pass borrowed.
        self._order = 0
        self._borrowed = 0
        self.passed_over = 0

    def advance(self) -> None:
        """Go to the next pass: the current one has ended."""
        if not self._length:
            return
        self.passed_over = 0
        self._order, self._borrowed = divmod(
            self._order * self._length + self._borrowed + self._rows, self._length
        )

    def rewind(self) -> None:
        """Begin at the first record, in a new order: the current pass was left early."""
        self._order, self._borrowed, self.passed_over = self._order + 1, 0, 0

    def identity(self) -> dict[str, Any]:
        """Return the entries that a state must share with this schedule."""
        return {
            "rows": self._part.total,
            "part": [self._part.first, self._part.length, self._part.longest],
            "batch_size": self._schedule.batch_size,
            "round_batch": self._schedule.pads,
            "order_seed": self._seed,
        }

    def place(self) -> dict[str, int]:
        """Return the start of the current pass."""
        return {"order": self._order, "borrowed": self._borrowed}

    def go_to(self, place: Mapping[str, Any], passed_over: int) -> None:
        """Make the pass that begins at `place` the current one, without its first `passed_over` batches.

        Raises:
            ResumeError: there is no such place.
        """
        order = whole_number(place, "order", 0, _PASSES)
        borrowed = whole_number(place, "borrowed", 0, max(1, self._length))
        batches = self._schedule.steps(self._length - borrowed)
        whole_number({"taken": passed_over}, "taken", 0, batches + 1)
        self._order, self._borrowed, self.passed_over = order, borrowed, passed_over

    @property
    def batches(self) -> int:
        """Return the number of batches of the current pass, including those of an earlier run."""
        return self._schedule.steps(self._length - self._borrowed)

    def __len__(self) -> int:
        return self.batches - self.passed_over

    @property
    def first_position(self) -> int:
        """Return the number of samples before the current pass's first batch; see `ListPlan`."""
        return self._part.first + self.passed_over * self._schedule.batch_size

    @property
    def _rows(self) -> int:
        """Return the number of rows of the current pass, including those that it borrows."""
        return (
            self.batches * self._schedule.batch_size if self._schedule.pads else self._length - self._borrowed
        )

    def pad(self, number: int) -> int:
        """Return the number of rows at the end of batch `number` of the current pass that are padding."""
        size = self._schedule.batch_size
        left = self._part.length - self._borrowed - number * size
        return size - min(max(left, 0), size)

    def __iter__(self) -> Iterator[IntArray]:
        """Iterate over the batches of the current pass, int64 (n,)."""
        return self._from(self._order, self._borrowed, self._rows, self.passed_over)

    def batch(self, number: int) -> IntArray:
        """Return the rows of batch `number` of the current pass, counted from 0: int64 (n,)."""
        first = number * self._schedule.batch_size
        return self._take(
            self._order, self._borrowed + first, min(self._schedule.batch_size, self._rows - first)
        )

    def _from(self, order: int, borrowed: int, rows: int, number: int) -> Iterator[IntArray]:
        size = self._schedule.batch_size
        step = max(1, _BLOCK // size) * size
        for begin in range(number * size, rows, step):
            block = self._take(order, borrowed + begin, min(step, rows - begin))
            for low in range(0, len(block), size):
                yield block[low : low + size]

    def _take(self, order: int, start: int, count: int) -> IntArray:
        """Return rows from `start` of an order on; those behind its end are borrowed from the orders after it."""
        parts = []
        total = self._part.total
        while count:
            later, place = divmod(start, self._length)
            stop = min(self._length, place + count)
            rows = self._of_order(order + later, place, stop)
            parts.append(np.where(rows < total, rows + total, rows) if later else rows)
            start += stop - place
            count -= stop - place
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _of_order(self, order: int, start: int, stop: int) -> IntArray:
        """Return rows of one order, including those that pad the part at its end."""
        count = self._part.length
        end = min(stop, count)
        rows = self._records(order, min(start, end), end)
        if stop <= count:
            return rows
        filling = self._records(order, 0, 1) + self._part.total
        return np.concatenate((rows, np.repeat(filling, stop - max(start, count))))

    def _records(self, order: int, start: int, stop: int) -> IntArray:
        if self._seed is None:
            return np.arange(self._part.first + start, self._part.first + stop, dtype=np.int64)
        rows = permute(self._seed, order, self._part.length, start, stop)
        rows += self._part.first
        return rows


class ListSchedule:
    """Batches of the rest of a pass over a list: a batch sampler. It is empty until `begin`.

    Args:
        batch_size: items of a batch, at least 1.
        last_batch_handle: "pad", "discard" or "roll_over".
    """

    def __init__(self, batch_size: int, last_batch_handle: str) -> None:
        self._schedule = BatchSchedule(batch_size, LAST_BATCH[last_batch_handle])
        self.begin((), 0, ())

    def begin(self, order: Sequence[int], start: int, kept: Sequence[int]) -> None:
        """Begin with a pass, or with the rest of one.

        Args:
            order: the items of the whole pass.
            start: place in `order` of the next item.
            kept: items of the pass before, which come first.
        """
        self._order = order
        self._start = start
        self._kept = list(kept)
        self._items = [*kept, *order[start:]]

    def __len__(self) -> int:
        return self._schedule.steps(len(self._items))

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.items, range(len(self)))

    def items(self, number: int) -> list[int]:
        """Return the items of batch `number`, counted from 0."""
        first = number * self._schedule.batch_size
        found = self._items[first : first + self._schedule.batch_size]
        return found + [self._order[place % len(self._order)] for place in range(self.pad(number))]

    def pad(self, number: int) -> int:
        """Return the number of items at the end of batch `number` that are padding."""
        first = number * self._schedule.batch_size
        found = self._schedule.batch(first, len(self._items) - first)
        return 0 if found is None else found[2]

    def reached(self, number: int) -> int:
        """Return the number of items of `order` after `start` in the batches up to `number`, without padding."""
        return min((number + 1) * self._schedule.batch_size, len(self._items)) - len(self._kept)

    def kept_in(self, number: int) -> int:
        """Return the number of items of batch `number` that were kept from the pass before."""
        size = self._schedule.batch_size
        return max(0, min(size, len(self._kept) - number * size))

    def behind(self, number: int, place: int) -> tuple[int, list[int]]:
        """Return `start` and `kept` with which a pass continues behind the item at `place` of batch `number`."""
        item = number * self._schedule.batch_size - len(self._kept) + place + 1
        if item < 0:
            return self._start, self._kept[item:]
        return min(self._start + item, len(self._order)), []

    def left(self) -> list[int]:
        """Return the items to keep for the next pass: with "roll_over" those that do not fill a batch."""
        if self._schedule.last_batch != "rollover":
            return []
        return self._items[len(self) * self._schedule.batch_size :]
